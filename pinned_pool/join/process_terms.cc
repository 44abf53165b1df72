#include "pinned_pool/join/process_terms.h"

#include <algorithm>
#include <cstring>

namespace bedplate {
namespace {

bool makes_sense(const ProcessTerms& terms) noexcept {
  if (terms.verbs != ProcessTerms::Verbs::kDevice) {
    return terms.verbs <= ProcessTerms::Verbs::kDevice;
  }
  const char* end = std::find(terms.device, std::end(terms.device), '\0');
  return terms.port != 0 && end != terms.device && end != std::end(terms.device) &&
         std::all_of(terms.device, end, [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

ProcessTerms::ProcessTerms(const char* its_device, uint8_t its_port) noexcept
    : verbs(Verbs::kDevice), port(its_port) {
  BP_ASSERT(std::strlen(its_device) < sizeof device);
  std::strcpy(device, its_device);
  BP_ASSERT(makes_sense(*this));
}

Result<ProcessTerms> read_process_terms(std::span<const std::byte> bytes,
                                        const char* name) noexcept {
  ProcessTerms terms;
  if (bytes.empty()) return terms;
  Error error = error_while("reading what the owner of the pool grants %s", name)
                    .set_cure("run both programs from the same release of Bedplate");
  if (bytes.size() != sizeof terms) {
    return error.set_answer("it has %zu bytes, not %zu", bytes.size(), sizeof terms);
  }
  std::memcpy(static_cast<void*>(&terms), bytes.data(), sizeof terms);
  if (!makes_sense(terms)) return error.set_answer("its RDMA device is not valid");
  return terms;
}

}  // namespace bedplate
