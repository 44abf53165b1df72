#include "transport/loop/doorbell.h"

#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

namespace bedplate {

Result<void> Doorbell::create() noexcept {
  event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_.is_open()) return error_from_errno("making a doorbell");
  return {};
}

void Doorbell::wake() noexcept {
  const uint64_t one = 1;
  // The write fails only with EAGAIN, when the counter is full; then the shard wakes anyway.
  [[maybe_unused]] const ssize_t written = write(event_.number(), &one, sizeof one);
}

void Doorbell::acknowledge() noexcept {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event_.number(), &count, sizeof count);
}

}  // namespace bedplate
