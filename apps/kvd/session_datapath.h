// A client's session: memcached's commands and their answers, over StreamSession.
//
// request_datapath.h parses commands, items_datapath.h has their work on the cache. A value too
// large for the buffer is received straight into its item. If listeners have limits, a session
// waits for its turn before a command or a key of a get (session_limits_datapath.cc).
#pragma once

#include "apps/kvd/items_datapath.h"
#include "apps/kvd/request_datapath.h"
#include "transport/loop/request_limit_datapath.h"
#include "transport/sockets/stream_session_datapath.h"

namespace bedplate::kvd {

// The kinds of commands in `bedplate trace`, one for each histogram that counts them.
enum RequestKind : uint8_t { kKindGet, kKindSet, kKindOther };
inline constexpr const char* kRequestKinds = "get|set|other";

// The keys of a get are answered as they arrive, since its line may be longer than the buffer.
//
// Invariants, which is_valid() checks before and after each step: 1. A command is set while its
// keys or its value are being processed. 2. The bytes of complete keys, and of their line's end
// once it has come, lie within arrived(); without a get both are 0. 3. An item that receives its
// value is pinned, not linked, and has that value's length. 4. It does not wait for a turn that it
// has.
//
// Other assertions check: 5. Only the loop's thread works on the session. (is_own_thread, in each
// step) 6. An item that a reply lends is linked: nobody writes it. (answer_text)
class Session final : public StreamSession, private RateWaiter {
 public:
  static constexpr uint32_t kBufferBytes = 16 * 1024;  // longer lines but gets end the session
  static constexpr uint32_t kDirectBytes = 4 * 1024;   // longer values skip the buffer

  explicit Session(const Environment& environment) noexcept
      : StreamSession(input_, output_),
        environment_(environment),
        cache_(*environment.cache),
        items_(environment) {}

  // The let_go() of the limits of listeners, on `loop`. If a listener has a limit, that is what
  // StreamPeer::listener() returns for its clients, as a RequestLimit.
  static void turn_came(void* loop, RateWaiter& waiter) noexcept;

  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kLineMax = 2048;  // longer lines: ERROR, except a get's
  static constexpr uint32_t kCopyMax = 1024;  // longer replies to get are sent from the item

  StreamStep work(uint64_t now_ns) noexcept override;
  void released(void* item) noexcept override { cache_.release(*static_cast<CacheItem*>(item)); }
  void left() noexcept override;

  StreamStep work_on_line() noexcept;
  void answer(std::string_view text) noexcept {
    if (!request_.is_quiet()) say(text);
  }
  bool end_other_protocol() noexcept;
  bool begin_long_get() noexcept;
  bool find_keys() noexcept;
  bool drop_keys() noexcept;
  StreamStep answer_key() noexcept;
  void end_get() noexcept;
  void answer_more(std::string_view key) noexcept;
  void answer_text(CacheItem& item, std::string_view text) noexcept;
  void execute() noexcept;
  void answer_meta() noexcept;
  void receive_value() noexcept;
  void end_storing() noexcept;
  void answer_stored(const Items::Changed& changed) noexcept;
  void count() noexcept;
  void touch() noexcept;
  void remove() noexcept;
  void flush() noexcept;
  void say_version() noexcept;
  void answer_stats() noexcept;
  // These are in session_limits_datapath.cc. They are called only while a listener has a limit.
  bool may_answer(std::string_view key) noexcept;
  bool may_execute() noexcept;
  bool take_turn(RateLimit& rate) noexcept;
  void give_up_turn() noexcept;

  const Environment& environment_;
  KeyedCache& cache_;
  Items items_;
  Request request_;                                          // the current command
  enum class Keys : uint8_t { kNone, kAnswered, kDropped };  // kDropped: the rest of a bad line
  Keys keys_ = Keys::kNone;
  uint64_t keys_bytes_ = 0;         // bytes of complete keys, at the front of arrived()
  uint64_t keys_end_bytes_ = 0;     // bytes of the line's end after them; 0: it has not come
  CacheItem* item_ = nullptr;       // the item that receives its value
  RateLimit* waits_for_ = nullptr;  // it is in this queue
  bool has_turn_ = false;           // its turn has come, and the step that waited for it has not
  char input_[kBufferBytes];
  char output_[kBufferBytes];
};

}  // namespace bedplate::kvd
