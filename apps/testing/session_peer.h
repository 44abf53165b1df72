// A peer of a StreamSession without a socket: the test hands it bytes, in parts of any length, and
// takes the replies. TestClient (test_client.h) has a socket, and the service's whole StreamServer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "transport/sockets/stream_session_datapath.h"

namespace bedplate::testing {

// Threads: the session's.
class SessionPeer {
 public:
  // Ownership: `session` outlives this.
  explicit SessionPeer(StreamSession& session) noexcept : session_(session) {}

  // The time of the session's loop, set by the test. It never goes back.
  uint64_t now_ns = 0;

  // Moves at most `piece_bytes_max` bytes from the front of *text into the session. Returns how
  // many it took; 0: it takes nothing before replies are sent, or it is full.
  size_t give(std::string_view* text, size_t piece_bytes_max = SIZE_MAX) {
    const StreamSession::Input input = session_.input();
    size_t moved = 0;
    for (uint32_t i = 0; i < input.piece_count; ++i) {
      const iovec& piece = input.pieces[i];
      const size_t bytes = std::min({piece.iov_len, text->size(), piece_bytes_max - moved});
      std::memcpy(piece.iov_base, text->data(), bytes);
      text->remove_prefix(bytes);
      moved += bytes;
    }
    if (moved > 0) session_.received(moved, now_ns);
    return moved;
  }

  // Takes all replies that the session can send now.
  std::string take() {
    std::string all;
    for (auto pieces = session_.replies(); !pieces.empty(); pieces = session_.replies()) {
      for (const iovec& piece : pieces) {
        all.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
      }
      session_.handed_over(now_ns);
      session_.sent(now_ns);
    }
    return all;
  }

  // Sends `text` in parts of at most `piece_bytes_max` bytes, and takes the replies after each
  // part. Returns all replies. Ends early if the session takes nothing more.
  std::string say(std::string_view text, size_t piece_bytes_max = SIZE_MAX) {
    std::string all;
    while (!text.empty()) {
      const size_t moved = give(&text, piece_bytes_max);
      const std::string replies = take();
      all += replies;
      if (moved == 0 && replies.empty()) break;
    }
    return all;
  }

 private:
  StreamSession& session_;
};

}  // namespace bedplate::testing
