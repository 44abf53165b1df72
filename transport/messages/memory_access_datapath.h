// Puts, gets and atomics with both ends mapped in this process: the providers' common code.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "platform/units.h"
#include "transport/messages/endpoint.h"

namespace bedplate {

// Longer copies are split: in glibc one longer memcpy is slower than several of this size.
inline constexpr uint64_t kCopyPieceBytes = 64 * kKiB;

// Requires: the ranges do not overlap.
inline void copy_bytes(std::byte* to, const std::byte* from, uint64_t bytes) noexcept {
  for (uint64_t at = 0; at < bytes; at += kCopyPieceBytes) {
    std::memcpy(to + at, from + at, std::min(kCopyPieceBytes, bytes - at));
  }
}

inline std::byte* pointer_to(uint64_t address) noexcept {
  return reinterpret_cast<std::byte*>(address);
}

// Returns the old value of the word at `at`. `operand` is added, or stored if the word equals
// `expected`. Requires: is_atomic(kind); `at` is aligned to 8 bytes.
inline uint64_t apply_atomic(OperationKind kind, std::byte* at, uint64_t operand,
                             uint64_t expected) noexcept {
  auto* word = reinterpret_cast<uint64_t*>(at);
  if (kind == OperationKind::kFetchAdd) return __atomic_fetch_add(word, operand, __ATOMIC_ACQ_REL);
  __atomic_compare_exchange_n(word, &expected, operand, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;  // the old value, equal or not
}

}  // namespace bedplate
