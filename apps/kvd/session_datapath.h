// What one client says and is answered, without a socket: bytes in, pieces of replies out.
//
// Requests are taken apart where they were received. Replies of all that came at once leave in one
// send: short ones lie in a text of the session's own, long values go from the item, which is
// pinned until they are sent. While replies are on their way nothing more is answered, and no more
// received than the buffer takes: a client that does not read its replies is not read from either.
// A value too large for the buffer is received straight into its item.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <sys/uio.h>

#include "apps/kvd/command_datapath.h"
#include "apps/kvd/store_datapath.h"

namespace bedplate::kvd {

// What all sessions share, and outlives them.
struct SessionEnvironment {
  Store* store = nullptr;
  Counters* counters = nullptr;
  uint64_t value_bytes_max = 0;
  uint64_t started_ns = 0;  // monotonic, for stats
};

class Session {
 public:
  static constexpr uint32_t kBufferBytes = 16 * 1024;  // a line is that long at most
  static constexpr uint32_t kDirectBytes = 4 * 1024;   // longer values skip the buffer

  explicit Session(const SessionEnvironment& environment) noexcept : environment_(environment) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // A new client. What the last one left is given back.
  void reset() noexcept;

  // Where bytes that come are to go, and how many of them are worth a call; no piece: there is no
  // use for any now. Good until received() is told of some.
  struct Input {
    iovec* pieces;
    uint32_t piece_count;
    uint64_t min_bytes;
  };
  Input input() noexcept;
  void received(uint64_t bytes) noexcept;

  // What is to be sent now; empty: nothing. Once it is, or will never be, sent() is called.
  std::span<iovec> replies() noexcept;
  // They were handed to the socket: counts how long each request has taken.
  void handed_over(uint64_t now_ns) noexcept;
  void sent() noexcept;

  // The client has said quit, or what it says makes no sense any more.
  bool is_over() const noexcept { return is_over_; }

 private:
  static constexpr uint32_t kTextBytes = 16 * 1024;
  static constexpr uint32_t kTextRoom = 2 * 1024;  // any reply fits
  static constexpr uint32_t kCopyMax = 1024;       // longer replies to get are sent from the item
  static constexpr uint32_t kPieces = 34;
  static constexpr uint64_t kBatchBytes = 1 << 20;  // more is not begun before that is sent

  bool has_room() const noexcept;
  void work() noexcept;
  bool work_on_line() noexcept;
  void answer_key() noexcept;
  void answer_item(Item& item) noexcept;
  void execute() noexcept;
  void begin_storing() noexcept;
  void end_storing() noexcept;
  const char* store(Item& item) noexcept;
  const char* join(Item& old, Item& more) noexcept;
  void count_up_or_down() noexcept;
  void answer_stats() noexcept;
  void say(std::string_view text) noexcept;
  void add_text(std::string_view text) noexcept;
  uint64_t expiry_ns(int64_t seconds) const noexcept;

  // Requests that are answered by the next send. They have come at received_ns_.
  struct Answered {
    uint32_t gets = 0;
    uint32_t sets = 0;
    uint32_t others = 0;
  };

  const SessionEnvironment& environment_;
  Answered answered_;
  uint64_t received_ns_ = 0;
  bool is_starved_ = true;  // whatever has come was worked on, but for the beginning of a request
  bool is_over_ = false;
  bool is_sending_ = false;
  Command command_;            // the present one
  std::string_view keys_;      // of a get that is being answered, in the buffer
  Item* item_ = nullptr;       // whose value is being received
  uint64_t value_left_ = 0;    // of it, its line end included
  uint64_t skip_bytes_ = 0;    // of a value that is not stored
  uint32_t wanted_bytes_ = 1;  // in the buffer, before it makes sense to look again
  uint32_t begin_ = 0;         // what the buffer has
  uint32_t end_ = 0;
  uint32_t text_bytes_ = 0;
  uint32_t piece_count_ = 0;
  uint32_t pin_count_ = 0;
  uint64_t reply_bytes_ = 0;
  iovec input_[2];
  iovec pieces_[kPieces];
  Item* pinned_[kPieces];
  char buffer_[kBufferBytes];
  char text_[kTextBytes];
};

}  // namespace bedplate::kvd
