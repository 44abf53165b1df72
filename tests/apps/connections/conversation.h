// A conversation of a client with a session, without a socket.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "apps/connections/connection_session.h"

namespace bedplate::test {

// Sends `text` and returns the answers, both in parts of at most `step` bytes, until the session
// waits, has ended or has received all. Removes the received part from `text`.
inline std::string said_to(ConnectionSession& session, std::string_view* text,
                           size_t step = SIZE_MAX) {
  std::string answers;
  for (;;) {
    if (const std::string_view output = session.output(); !output.empty()) {
      const size_t bytes = std::min(output.size(), step);
      answers += output.substr(0, bytes);
      session.sent(bytes);
      continue;
    }
    const std::span<char> room = session.room();
    const size_t bytes = std::min({room.size(), text->size(), step});
    if (bytes == 0) return answers;
    std::memcpy(room.data(), text->data(), bytes);
    text->remove_prefix(bytes);
    session.received(bytes);
  }
}
inline std::string said_to(ConnectionSession& session, std::string_view text,
                           size_t step = SIZE_MAX) {
  return said_to(session, &text, step);
}

}  // namespace bedplate::test
