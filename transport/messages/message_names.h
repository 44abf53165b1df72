// Numbers of messages, by name.
//
// A message carries a number of 8 bits, which picks its handler. Programs that were built together
// agree on numbers up to 127 as they like. The others belong to names, "cache.get": each process
// gives its own names numbers, in any order, and tells them to those that ask
// (Messenger::ask_number). So a number is always the receiver's, and two services of one process,
// or two programs, need not know of each other to be told apart.
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
// The last two are questions about the others, and their answers.
inline constexpr AmId kAskNumberAm = 254;
inline constexpr AmId kTellNumberAm = 255;
inline constexpr size_t kMessageNameMax = 47;

// The names of one process, for all of its messengers. Changed before messages are sent, by one
// thread.
class MessageNames {
 public:
  // Gives `name` the next number. Errors (kSystem): it has one, is empty or longer than
  // kMessageNameMax bytes, or all are taken.
  Result<AmId> add(std::string_view name);
  // Nothing: there is no such name here. Threads: any, once all are added.
  std::optional<AmId> find(std::string_view name) const noexcept;

  const std::vector<std::string>& all() const noexcept { return names_; }

 private:
  std::vector<std::string> names_;  // of kFirstNamedAm and what follows
};

// A question that is under way. The caller's; it stays where it is until it was answered, or taken
// back (Messenger::take_back).
struct NumberQuery {
  // `number`: the peer's number for the message; nothing: the peer has none of this name.
  // Called once, from Messenger::poll; from then on the query may be asked again, or go.
  void (*answered)(NumberQuery& self, std::optional<AmId> number) noexcept = nullptr;

  const Endpoint* peer = nullptr;  // the messenger's, as is what follows
  uint32_t token = 0;
  NumberQuery* next = nullptr;
};

}  // namespace bedplate
