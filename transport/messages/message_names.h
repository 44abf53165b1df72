// Numbers of messages, by name.
//
// A message carries a number of 8 bits, which selects its handler. Programs that were built
// together agree on numbers up to 127 as they like. The others belong to names such as "cache.get".
// Each process numbers its own names, in any order, and tells the numbers to peers that ask
// (Messenger::ask_number). So the receiver always defines the number. Two services of one process,
// or two programs, never clash, even if they know nothing of each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/result.h"
#include "transport/messages/endpoint.h"

namespace bedplate {

inline constexpr AmId kFirstNamedAm = 128;
// The last two numbers carry the questions for a number, and their answers.
inline constexpr AmId kAskNumberAm = 254;
inline constexpr AmId kTellNumberAm = 255;
inline constexpr size_t kMessageNameMax = 47;

// The names of one process, for all of its messengers. Threads: one adds names, before messages are
// sent.
class MessageNames {
 public:
  // Gives `name` the next number. Errors (kSystem): it already has one, is empty or longer than
  // kMessageNameMax bytes, or no number is left.
  Result<AmId> add(std::string_view name);
  // Returns nothing if this process has no such name. Threads: any, once all names are added.
  std::optional<AmId> find(std::string_view name) const noexcept;

  const std::vector<std::string>& all() const noexcept { return names_; }

 private:
  std::vector<std::string> names_;  // the first has the number kFirstNamedAm
};

// A pending question. Ownership: the caller's; it stays in place until it is answered, or taken
// back (Messenger::take_back).
struct NumberQuery {
  // `number`: the peer's number for the message; nothing: the peer has no such name. Called once,
  // from Messenger::poll; from then on the query may be asked again, or freed.
  void (*answered)(NumberQuery& self, std::optional<AmId> number) noexcept = nullptr;

  const Endpoint* peer = nullptr;  // the messenger's, as are the fields below
  uint32_t token = 0;
  NumberQuery* next = nullptr;
};

}  // namespace bedplate
