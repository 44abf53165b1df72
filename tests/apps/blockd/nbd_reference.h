// The slow reference of the NBD server's protocol, for its tests and its fuzz target.
//
// Written from the specification and docs/nbd.md, with literal numbers and whole buffers, so that
// it shares neither constants nor structure with the code under test. It also has builders for a
// client's messages, and a driver that feeds a conversation to a Negotiation in parts and checks
// its contract at each step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <initializer_list>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "apps/blockd/nbd_negotiation.h"
#include "apps/blockd/nbd_request_datapath.h"

namespace bedplate::nbd_reference {

using State = nbd::Negotiation::State;

// The seed of random tests, which they print. BEDPLATE_TEST_SEED in the environment repeats a run.
inline uint64_t test_seed() {
  const char* text = std::getenv("BEDPLATE_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10)
                         : static_cast<uint64_t>(std::time(nullptr));
}

// ---- Messages of a client ---------------------------------------------------------------------

// Returns the low `count` bytes of `value` in big-endian order.
inline std::string be(uint64_t value, int count) {
  std::string text;
  for (int i = count - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

// Reads the big-endian number in the `count` bytes at `at`.
inline uint64_t number_at(std::string_view text, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value = value << 8 | static_cast<uint8_t>(text.at(at + i));
  return value;
}

inline std::string option(uint64_t type, std::string_view data) {
  return "IHAVEOPT" + be(type, 4) + be(data.size(), 4) + std::string(data);
}

// The data of INFO and GO.
inline std::string info_data(std::string_view name, std::initializer_list<uint16_t> requests = {}) {
  std::string data = be(name.size(), 4) + std::string(name) + be(requests.size(), 2);
  for (const uint16_t request : requests) data += be(request, 2);
  return data;
}

inline std::string request(uint64_t flags, uint64_t command, uint64_t cookie, uint64_t offset,
                           uint64_t length) {
  return be(0x25609513, 4) + be(flags, 2) + be(command, 2) + be(cookie, 8) + be(offset, 8) +
         be(length, 4);
}

// ---- The handshake ----------------------------------------------------------------------------

// The server's output and state after a conversation.
struct Outcome {
  std::string output;  // all output of the server
  State state = State::kNegotiating;
  size_t taken_bytes = 0;   // of the input
  size_t export_index = 0;  // in kTransmission
  bool structured_replies = false;
  bool block_status = false;
  bool aborted = false;
  const char* broken = nullptr;  // the promise that Negotiation has broken

  bool operator==(const Outcome&) const = default;
};

inline std::string reply(uint64_t option_type, uint64_t type, std::string_view data) {
  return be(0x3e889045565a9, 8) + be(option_type, 4) + be(type, 4) + be(data.size(), 4) +
         std::string(data);
}

inline uint64_t flags_of(const nbd::ExportInfo& info, bool structured_replies) {
  return 0x96d + (info.read_only ? 2 : 0) + (structured_replies ? 0x80 : 0);
}

inline size_t find_export(std::span<const nbd::ExportInfo> exports, std::string_view name) {
  for (size_t i = 0; i < exports.size(); ++i) {
    if (name.empty() || exports[i].name == name) return i;
  }
  return SIZE_MAX;
}

// Returns the answer to a complete option GO or INFO. Sets `index` to the export if the answer is
// yes.
inline std::string answer_to_info(std::span<const nbd::ExportInfo> exports, uint64_t type,
                                  std::string_view data, bool structured_replies, size_t& index) {
  const std::string invalid = reply(type, 0x80000003, "");
  if (data.size() < 6) return invalid;
  const size_t name_bytes = number_at(data, 0, 4);
  if (name_bytes > data.size() - 6) return invalid;
  const size_t count = number_at(data, 4 + name_bytes, 2);
  if (data.size() != 6 + name_bytes + 2 * count) return invalid;
  index = find_export(exports, data.substr(4, name_bytes));
  if (index == SIZE_MAX) return reply(type, 0x80000006, "");
  bool wants_name = false;
  bool wants_block_size = false;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t wanted = number_at(data, 6 + name_bytes + 2 * i, 2);
    if (wanted == 1) wants_name = true;
    if (wanted == 3) wants_block_size = true;
  }
  const nbd::ExportInfo& info = exports[index];
  std::string answer =
      reply(type, 3, be(0, 2) + be(info.bytes, 8) + be(flags_of(info, structured_replies), 2));
  if (wants_block_size) {
    answer += reply(type, 3, be(3, 2) + be(1, 4) + be(4096, 4) + be(32 << 20, 4));
  }
  if (wants_name) answer += reply(type, 3, be(1, 2) + std::string(info.name));
  return answer + reply(type, 1, "");
}

// Returns the answer to a complete option LIST_META_CONTEXT (9) or SET_META_CONTEXT (10).
// `set_for`: the export for which base:allocation is set afterwards.
inline std::string answer_to_contexts(std::span<const nbd::ExportInfo> exports, uint64_t type,
                                      std::string_view data, bool structured_replies,
                                      size_t& set_for) {
  const bool is_set = type == 10;
  if (is_set) set_for = SIZE_MAX;
  const std::string invalid = reply(type, 0x80000003, "");
  if (data.size() < 8) return invalid;
  const size_t name_bytes = number_at(data, 0, 4);
  if (name_bytes > data.size() - 8) return invalid;
  const size_t count = number_at(data, 4 + name_bytes, 4);
  size_t at = 8 + name_bytes;
  bool wants = count == 0 && !is_set;
  for (size_t i = 0; i < count; ++i) {
    if (data.size() - at < 4) return invalid;
    const size_t query_bytes = number_at(data, at, 4);
    at += 4;
    if (query_bytes > data.size() - at) return invalid;
    const std::string_view query = data.substr(at, query_bytes);
    at += query_bytes;
    if (query == "base:allocation" || (query == "base:" && !is_set)) wants = true;
  }
  if (at != data.size() || !structured_replies) return invalid;
  const size_t index = find_export(exports, data.substr(4, name_bytes));
  if (index == SIZE_MAX) return reply(type, 0x80000006, "");
  if (wants && is_set) set_for = index;
  return (wants ? reply(type, 4, be(is_set ? 1 : 0, 4) + "base:allocation") : "") +
         reply(type, 1, "");
}

// Returns the required outcome for `input`, which the client sends without waiting for answers.
// Error texts are left out: see without_error_texts.
inline Outcome expected(std::span<const nbd::ExportInfo> exports, std::string_view input) {
  Outcome outcome;
  outcome.output = "NBDMAGICIHAVEOPT" + be(3, 2);
  outcome.taken_bytes = input.size();  // unless the conversation ends earlier
  size_t context_for = SIZE_MAX;
  size_t at = 0;
  const auto end = [&](State state) {
    outcome.state = state;
    outcome.taken_bytes = at;
    return outcome;
  };
  if (input.size() < 4) return outcome;
  at = 4;
  const uint64_t client_flags = number_at(input, 0, 4);
  if (client_flags > 3) return end(State::kDisconnect);
  while (input.size() - at >= 16) {
    const bool good_magic = input.substr(at, 8) == "IHAVEOPT";
    const uint64_t type = number_at(input, at + 8, 4);
    const size_t data_bytes = number_at(input, at + 12, 4);
    at += 16;
    if (!good_magic || data_bytes > 65536) return end(State::kDisconnect);
    if (input.size() - at < data_bytes) return outcome;
    const std::string_view data = input.substr(at, data_bytes);
    at += data_bytes;
    size_t index = SIZE_MAX;
    if (type == 2) {
      outcome.output += reply(2, 1, "");
      outcome.aborted = true;
      return end(State::kDisconnect);
    } else if (type == 1) {
      index = find_export(exports, data);
      if (index == SIZE_MAX) return end(State::kDisconnect);
      outcome.export_index = index;
      outcome.output += be(exports[index].bytes, 8) +
                        be(flags_of(exports[index], outcome.structured_replies), 2) +
                        std::string((client_flags & 2) != 0 ? 0 : 124, '\0');
      outcome.block_status = context_for == index;
      return end(State::kTransmission);
    } else if (data_bytes > 8192) {
      if (type == 10) context_for = SIZE_MAX;
      outcome.output += reply(type, 0x80000009, "");
    } else if (type == 9 || type == 10) {
      outcome.output +=
          answer_to_contexts(exports, type, data, outcome.structured_replies, context_for);
    } else if (type == 6 || type == 7) {
      outcome.output += answer_to_info(exports, type, data, outcome.structured_replies, index);
      if (type == 7 && index != SIZE_MAX) {
        outcome.export_index = index;
        outcome.block_status = context_for == index;
        return end(State::kTransmission);
      }
    } else if (type != 3 && type != 8) {
      outcome.output += reply(type, 0x80000001, "");
    } else if (data_bytes != 0) {
      outcome.output += reply(type, 0x80000003, "");
    } else {
      if (type == 8) outcome.structured_replies = true;
      for (size_t i = 0; type == 3 && i < exports.size(); ++i) {
        const std::string_view name = exports[i].name;
        outcome.output += reply(3, 2, be(name.size(), 4) + std::string(name));
      }
      outcome.output += reply(type, 1, "");
    }
  }
  return outcome;
}

// Returns `output` without the texts of error replies. Bytes that are no option reply stay, such as
// the answer to EXPORT_NAME.
inline std::string without_error_texts(std::string_view output) {
  std::string result(output.substr(0, 18));
  size_t at = 18;
  while (output.size() >= at + 20 && output.substr(at, 8) == be(0x3e889045565a9, 8)) {
    const uint64_t type = number_at(output, at + 12, 4);
    const size_t data_bytes = number_at(output, at + 16, 4);
    if (output.size() < at + 20 + data_bytes) break;
    const bool is_error = type >> 31 != 0;
    result += is_error ? std::string(output.substr(at, 16)) + be(0, 4)
                       : std::string(output.substr(at, 20 + data_bytes));
    at += 20 + data_bytes;
  }
  return at > output.size() ? result : result + std::string(output.substr(at));
}

// How the bytes of a conversation are split into parts.
enum class Feeding {
  kWhole,       // everything that is left, in and out
  kPolite,      // at most wanted_bytes(), all output at once
  kByteByByte,  // in and out
  kRandom,      // parts of random sizes, in and out
};
inline constexpr Feeding kFeedings[] = {Feeding::kWhole, Feeding::kPolite, Feeding::kByteByByte,
                                        Feeding::kRandom};

class Driver {
 public:
  Driver(nbd::Negotiation& negotiation, std::string_view input, Feeding feeding, uint32_t seed)
      : negotiation_(negotiation), input_(input), feeding_(feeding), random_(seed) {}

  Outcome converse() {
    send_all();
    while (negotiation_.state() == State::kNegotiating && at_ < input_.size() && !outcome_.broken) {
      receive_some();
      send_all();
    }
    outcome_.state = negotiation_.state();
    outcome_.taken_bytes = at_;
    outcome_.structured_replies = negotiation_.structured_replies();
    outcome_.aborted = negotiation_.is_aborted();
    if (outcome_.state == State::kTransmission) {
      outcome_.export_index = negotiation_.export_index();
      outcome_.block_status = negotiation_.block_status();
    } else if (outcome_.state == State::kDisconnect && *negotiation_.reason() == '\0') {
      promise(false, "a disconnect has a reason");
    }
    if (outcome_.state != State::kNegotiating) {
      promise(negotiation_.wanted_bytes() == 0, "wants nothing once it is over");
      promise(negotiation_.consume(bytes_of(input_.substr(at_))) == 0, "takes nothing once over");
    }
    return outcome_;
  }

 private:
  static std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
  }

  void promise(bool kept, const char* what) {
    if (!kept && outcome_.broken == nullptr) outcome_.broken = what;
  }

  size_t piece_of(size_t available) {
    if (feeding_ == Feeding::kByteByByte) return 1;
    if (feeding_ != Feeding::kRandom) return available;
    const size_t limit = random_() % 4 == 0 ? 4000 : 24;
    return 1 + random_() % std::min(available, limit);
  }

  void send_all() {
    while (!negotiation_.pending_output().empty()) {
      const std::span<const std::byte> pending = negotiation_.pending_output();
      promise(pending.size() <= nbd::Negotiation::kOutputCapacityBytes, "output is bounded");
      promise(negotiation_.wanted_bytes() == 0, "wants nothing before its output is sent");
      promise(negotiation_.consume(bytes_of(input_.substr(at_))) == 0,
              "takes nothing before its output is sent");
      const size_t sent_bytes = piece_of(pending.size());
      outcome_.output.append(reinterpret_cast<const char*>(pending.data()), sent_bytes);
      negotiation_.output_sent(sent_bytes);
    }
  }

  void receive_some() {
    const size_t wanted_bytes = negotiation_.wanted_bytes();
    promise(wanted_bytes > 0, "wants something as long as it negotiates");
    size_t offered_bytes = piece_of(input_.size() - at_);
    if (feeding_ == Feeding::kPolite) offered_bytes = std::min(offered_bytes, wanted_bytes);
    const size_t taken_bytes = negotiation_.consume(bytes_of(input_.substr(at_, offered_bytes)));
    promise(taken_bytes <= offered_bytes, "takes no more than there is");
    promise(taken_bytes >= std::min(wanted_bytes, offered_bytes), "takes what it wanted");
    promise(taken_bytes == offered_bytes || !negotiation_.pending_output().empty() ||
                negotiation_.state() != State::kNegotiating,
            "leaves bytes only behind an answer or the end");
    at_ += taken_bytes;
  }

  nbd::Negotiation& negotiation_;
  std::string_view input_;
  Feeding feeding_;
  std::minstd_rand random_;
  size_t at_ = 0;
  Outcome outcome_;
};

// ---- Requests ---------------------------------------------------------------------------------

// Returns the verdict on a request, with the specification's numbers and sums in 128 bits.
inline nbd::Verdict expected_verdict(const nbd::Request& request, const nbd::ExportView& view) {
  using Kind = nbd::Verdict::Kind;
  using Wide = unsigned __int128;
  const auto command = static_cast<uint32_t>(request.command);
  const bool is_read = command == 0;
  const bool is_write = command == 1;
  const bool is_flush = command == 3;
  const bool is_trim = command == 4;
  const bool is_write_zeroes = command == 6;
  const bool is_status = command == 7 && view.block_status;
  if (command == 2) return {.kind = Kind::kFinish};
  uint32_t error = 0;
  if (is_read || is_write || is_trim || is_write_zeroes || is_status) {
    const bool is_past_end = Wide{request.offset} + request.length > Wide{view.bytes};
    if ((is_read || is_write) && request.length > 32 << 20) error = 22;
    if (is_past_end) error = is_write || is_write_zeroes ? 28 : 22;
    if (request.length == 0) error = 22;
    if (!is_read && !is_status && view.read_only) error = 1;
  } else if (!is_flush) {
    error = 22;
  }
  for (uint32_t bit = 0; bit < 16; ++bit) {
    if ((request.flags >> bit & 1) == 0) continue;
    const bool is_allowed = bit == 0 || (bit == 1 && is_write_zeroes) ||
                            (bit == 2 && is_read && view.structured_replies) ||
                            (bit == 3 && is_status) || (bit == 4 && is_write_zeroes);
    if (!is_allowed) error = 22;
  }
  const auto code = static_cast<nbd::ErrorCode>(error);
  if (error == 0) return {.kind = Kind::kAccept};
  if (!is_write || request.length == 0) return {.kind = Kind::kRefuse, .error = code};
  if (request.length > 64 << 20) return {.kind = Kind::kDisconnect};
  return {.kind = Kind::kRefuseAndDrain, .error = code, .drain_bytes = request.length};
}

}  // namespace bedplate::nbd_reference
