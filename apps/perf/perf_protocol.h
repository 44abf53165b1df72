// The protocol between the two sides of `bedplate perf`, as active messages.
//
//     client --ask-->   server    the next operation to measure
//     client <--ready-- server    the address of its memory
//            data, puts, gets ...
//     client --stop-->  server
//     client <--tally-- server    the numbers that it has counted and verified
//
// A client that asks while another client measures replaces it; the server tells the replaced
// client (displaced).
//
// Messages have numbers, from 1. A message's number determines its bytes (after the warm-up, only
// its last byte), so either side knows which bytes to expect. A server ignores an empty ask: with
// one, a client tests whether the server runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "platform/clock.h"
#include "transport/messages/endpoint.h"

namespace bedplate {

inline constexpr uint32_t kPerfVersion = 1;
inline constexpr uint64_t kPerfBytesMax = 4 * kMiB;  // of one put or get
inline constexpr uint32_t kPerfPollBudget = 64;
inline constexpr char kPerfServerName[] = "perf-server";
inline constexpr char kPerfClientName[] = "perf-client";

inline constexpr AmId kPerfAsk = 1;
inline constexpr AmId kPerfReady = 2;
inline constexpr AmId kPerfData = 3;
inline constexpr AmId kPerfStop = 4;
inline constexpr AmId kPerfTally = 5;
inline constexpr AmId kPerfDisplaced = 6;

enum class PerfOperation : uint32_t { kSend, kPut, kGet };
enum class PerfMeasure : uint32_t { kLatency, kBandwidth };

struct PerfAsk {
  uint32_t version = kPerfVersion;
  PerfOperation operation = PerfOperation::kSend;
  PerfMeasure measure = PerfMeasure::kLatency;
  uint32_t is_both = 0;  // bandwidth: the server sends, too
  uint32_t sleeps = 0;   // 1: the server waits for events instead of polling
  uint32_t zero = 0;
  uint64_t bytes = 0;
  uint64_t warm_up_count = 0;  // the first messages: every byte is verified
  RemoteMemory source;         // the client's
  RemoteMemory target;
};

struct PerfReady {
  uint32_t version = kPerfVersion;
  uint32_t zero = 0;
  RemoteMemory source;
  RemoteMemory target;
};

struct PerfTally {
  uint64_t started_count = 0;   // --both: the server's operations
  uint64_t elapsed_ns = 0;      // --both
  uint64_t received_count = 0;  // messages
  uint64_t verified_count = 0;
  uint64_t wrong_count = 0;
};

// The last byte depends on the message's number: a side that polls memory waits for it.
inline std::byte perf_byte(uint64_t number, uint64_t from_end) noexcept {
  return static_cast<std::byte>(number + 37 * from_end);
}
inline void perf_fill(std::span<std::byte> memory, uint64_t number) noexcept {
  for (uint64_t i = 0; i < memory.size(); ++i) {
    memory[i] = perf_byte(number, memory.size() - 1 - i);
  }
}
inline bool perf_is(std::span<const std::byte> memory, uint64_t number) noexcept {
  for (uint64_t i = 0; i < memory.size(); ++i) {
    if (memory[i] != perf_byte(number, memory.size() - 1 - i)) return false;
  }
  return true;
}
// The same for memory whose last byte may arrive before the others, as when a processor copies.
// Waits at most 100 ms for them.
inline bool perf_becomes(std::span<const std::byte> memory, uint64_t number) noexcept {
  const uint64_t until_ns = monotonic_ns() + 100 * kNsPerMs;
  while (!perf_is(memory, number)) {
    if (monotonic_ns() > until_ns) return false;
  }
  return true;
}
// Writes only the last byte. Requires, here and for perf_has_come(): `memory` is not empty.
inline void perf_stamp(std::span<std::byte> memory, uint64_t number) noexcept {
  BP_DCHECK(!memory.empty());
  memory.back() = perf_byte(number, 0);
}
// Loads the last byte atomically: a peer's device or process writes it.
inline bool perf_has_come(std::span<const std::byte> memory, uint64_t number) noexcept {
  BP_DCHECK(!memory.empty());
  const auto* last = reinterpret_cast<const uint8_t*>(&memory.back());
  return std::byte{__atomic_load_n(last, __ATOMIC_ACQUIRE)} == perf_byte(number, 0);
}

// The bytes of `value` as the payload of a message; they point into `value`.
template <typename T>
std::span<const std::byte> perf_payload(const T& value) noexcept {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace bedplate
