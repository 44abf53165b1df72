// One line of the memcached text protocol, taken apart.
//
// What a malformed line is answered is memcached's wording, in memcached's order of checks.
#pragma once

#include <cstdint>
#include <string_view>

namespace bedplate::kvd {

enum class Verb : uint8_t {
  kGet,
  kGets,
  kSet,
  kAdd,
  kReplace,
  kAppend,
  kPrepend,
  kCas,
  kIncrement,
  kDecrement,
  kTouch,
  kDelete,
  kFlush,
  kVersion,
  kVerbosity,
  kStats,
  kQuit,
  kNone
};

struct Command {
  Verb verb = Verb::kNone;
  bool is_quiet = false;          // noreply: whatever the answer is
  const char* refusal = nullptr;  // what is wrong with it; then nothing else counts
  std::string_view key;           // of gets: all of them, with the spaces between them
  uint64_t flags = 0;
  int64_t expiry_s = 0;      // as the client gave it
  uint32_t value_bytes = 0;  // of the data that follows, without its line end
  uint64_t number = 0;       // the unique of cas; by how much to count

  bool is_storing() const noexcept { return verb >= Verb::kSet && verb <= Verb::kCas; }
};

// `line`: without its line end. What the command has of it lies in it.
Command parse_command(std::string_view line) noexcept;

// The first word of *text, which loses it; empty: there is none.
std::string_view take_word(std::string_view* text) noexcept;

// Whether all of `word` is a number that fits.
template <typename Number>
bool parse_number(std::string_view word, Number* to) noexcept;

}  // namespace bedplate::kvd
