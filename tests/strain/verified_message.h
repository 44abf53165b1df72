// A message that can be verified: it holds its sender, its receiver, its number in that pair, and a
// checksum of everything.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>

#include <unistd.h>

namespace bedplate::strain {

// Prints the fault and ends the process; the watching test fails on the exit code.
[[noreturn]] inline void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] inline void fail(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "FAILED (process %d): %s\n", getpid(), text);
  std::fflush(stderr);
  _exit(3);
}

struct VerifiedHeader {
  uint32_t checksum = 0;
  uint16_t sender = 0;
  uint16_t sender_generation = 0;
  uint16_t receiver = 0;
  uint16_t receiver_generation = 0;
  uint32_t bytes = 0;  // behind the header, or of the loan
  uint64_t sequence = 0;
  uint64_t sent_ns = 0;
};
static_assert(sizeof(VerifiedHeader) == 32);

inline uint64_t mix(uint64_t state, uint64_t word) noexcept {
  state = (state ^ word) * 0x9e37'79b9'7f4a'7c15;
  return state ^ state >> 29;
}

inline uint32_t checksum_of(VerifiedHeader header, std::span<const std::byte> content) noexcept {
  header.checksum = 0;
  uint64_t words[4];
  std::memcpy(words, &header, sizeof words);
  uint64_t state = mix(mix(mix(mix(1, words[0]), words[1]), words[2]), words[3]);
  size_t at = 0;
  for (; at + 8 <= content.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, content.data() + at, sizeof word);
    state = mix(state, word);
  }
  uint64_t rest = 0;
  if (at < content.size()) std::memcpy(&rest, content.data() + at, content.size() - at);
  return static_cast<uint32_t>(mix(state, rest) >> 32);
}

// Content that differs from message to message.
inline void fill(std::span<std::byte> content, uint64_t seed) noexcept {
  for (size_t at = 0; at < content.size(); at += 8) {
    seed += 0x9e37'79b9'7f4a'7c15;
    std::memcpy(content.data() + at, &seed, content.size() - at < 8 ? content.size() - at : 8);
  }
}

}  // namespace bedplate::strain
