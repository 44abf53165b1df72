// Puts, gets and atomics between members.
#include "transport/shm/shm_provider.h"

namespace bedplate {

SendStatus ShmEndpoint::put(std::span<const std::byte>, const RemoteMemory&, Completion*) noexcept {
  return SendStatus::kRefused;
}
SendStatus ShmEndpoint::get(std::span<std::byte>, const RemoteMemory&, Completion*) noexcept {
  return SendStatus::kRefused;
}
SendStatus ShmEndpoint::fetch_add(const RemoteMemory&, uint64_t, uint64_t*, Completion*) noexcept {
  return SendStatus::kRefused;
}
SendStatus ShmEndpoint::compare_swap(const RemoteMemory&, uint64_t, uint64_t, uint64_t*,
                                     Completion*) noexcept {
  return SendStatus::kRefused;
}
SendStatus ShmEndpoint::flush(Completion*) noexcept { return SendStatus::kDone; }
Result<RemoteMemory> ShmEndpoint::expose(std::span<std::byte>) { return RemoteMemory{}; }
void ShmEndpoint::withdraw(const RemoteMemory&) noexcept {}

}  // namespace bedplate
