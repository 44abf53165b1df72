// A client's session: memcached's commands, over StreamSession.
//
// request_datapath.h parses commands, items_datapath.h has their work on the cache,
// session_answers_datapath.h what is said to them. A value too large for the buffer is received
// straight into its item. If listeners have limits, a session waits for its turn before a command
// or a key of a get (session_limits_datapath.cc). If another shard owns the key, the command
// crosses (session_waves_datapath.cc).
#pragma once

#include <cstdint>
#include <string_view>

#include "apps/kvd/far_turn_datapath.h"
#include "apps/kvd/items_datapath.h"
#include "apps/kvd/session_answers_datapath.h"
#include "transport/loop/request_limit_datapath.h"

namespace bedplate::kvd {

// The keys of a get are answered as they arrive, since its line may be longer than the buffer.
//
// Invariants, which is_valid() checks before and after each step: 1. A command is set while its
// keys or its value are being processed. 2. The bytes of complete keys, and of their line's end
// once it has come, lie within arrived(); without a get both are 0. 3. An item that receives its
// value is pinned, not linked, and has that value's length. 4. It waits for one thing at a time,
// and not for a turn that it has. 5. Its wave is valid, and the session waits for it only if the
// wave will change, and for a turn at another shard only if it is awaited.
//
// Other assertions check: 6. Only the loop's thread works on the session. (is_own_thread, in each
// step) 7. A wave that is open goes off before the steps end. (step_with_wave)
class Session final : public SessionAnswers, private TurnWaiter {
 public:
  static constexpr uint32_t kBufferBytes = 16 * 1024;  // longer lines but gets end the session
  static constexpr uint32_t kDirectBytes = 4 * 1024;   // longer values skip the buffer

  explicit Session(const Environment& environment) noexcept;

  // The let_go() of the limits of listeners, on `loop`, for sessions of any shard. If a listener
  // has a limit, that is what StreamPeer::listener() returns for its clients, as a RequestLimit.
  static void turn_came(void* loop, RateWaiter& waiter) noexcept;

  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kLineMax = 2048;    // longer lines: ERROR, except a get's
  static constexpr uint32_t kOwn = UINT32_MAX;  // this shard
  static constexpr const char* kBadData = "CLIENT_ERROR bad data chunk\r\n";

  StreamStep work(uint64_t now_ns) noexcept override;
  void left() noexcept override;

  StreamStep step() noexcept {
    if (item_ == nullptr && keys_ == Keys::kNone) return work_on_line();
    if (keys_ == Keys::kDropped) return taken_if(drop_keys());
    if (keys_ == Keys::kAnswered && keys_bytes_ == 0) return taken_if(find_keys());
    if (item_ == nullptr) return answer_key();
    end_storing();
    return StreamStep::kTaken;
  }
  StreamStep work_on_line() noexcept;
  // Answers a fault of the current command.
  void refuse(std::string_view text) noexcept {
    has_open_wave() ? join_text(text, false) : answer(text);
  }
  bool end_other_protocol() noexcept;
  bool begin_long_get() noexcept;
  bool find_keys() noexcept;
  bool drop_keys() noexcept;
  StreamStep answer_key() noexcept;
  void end_get(bool joins) noexcept {
    take(keys_end_bytes_);
    keys_end_bytes_ = 0;
    keys_ = Keys::kNone;
    if (joins) return join_text("END\r\n", true);
    say("END\r\n");
    answered(environment_.counters->get_ns, kKindGet);
  }
  void execute_here() noexcept;
  bool is_bad_data() const noexcept;
  void receive_value() noexcept;
  void begin_receiving(const Items::Changed& made) noexcept;
  void end_storing() noexcept;

  // These are in session_limits_datapath.cc. They are called only while a listener has a limit.
  bool may_answer(std::string_view key) noexcept;
  bool may_execute() noexcept;
  bool take_turn(RequestLimit& limit, bool is_write) noexcept;
  bool leave_queue() noexcept;
  void give_up_turn() noexcept;

  // These are in session_waves_datapath.cc. kJoins: the command becomes an operation of the wave.
  // kWaits: it waits until the wave is idle.
  enum class Way : uint8_t { kHere, kJoins, kWaits };
  StreamStep step_with_wave() noexcept;
  StreamStep send_wave() noexcept;
  StreamStep wait_for_wave() noexcept;
  StreamStep wait_for_turn() noexcept;
  Way way_of(uint32_t owner) const noexcept;
  StreamStep answer_key_with_care(std::string_view key, uint64_t rest_bytes) noexcept;
  StreamStep execute_with_care(uint64_t line_bytes) noexcept;
  Operation& join(Work work, uint32_t owner) noexcept;
  void join_key(std::string_view key, uint32_t owner) noexcept;
  void join_command(uint32_t owner) noexcept;
  void join_alone(uint32_t owner) noexcept;
  void join_text(std::string_view text, bool ends_get) noexcept;
  StreamStep store_elsewhere() noexcept;
  void came_back() noexcept;
  void leave_shards() noexcept;

  enum class Keys : uint8_t { kNone, kAnswered, kDropped };  // kDropped: the rest of a bad line
  Keys keys_ = Keys::kNone;
  uint64_t keys_bytes_ = 0;         // bytes of complete keys, at the front of arrived()
  uint64_t keys_end_bytes_ = 0;     // bytes of the line's end after them; 0: it has not come
  CacheItem* item_ = nullptr;       // the item that receives its value
  uint32_t item_owner_ = kOwn;      // the shard of item_
  RateLimit* waits_for_ = nullptr;  // it is in this queue
  bool has_turn_ = false;           // its turn has come, and the step that waited for it has not
  bool waits_for_wave_ = false;
  bool waits_for_far_turn_ = false;
  bool is_settling_ = false;  // its client has left, and other shards still have something of it
  char input_[kBufferBytes];
  char output_[kBufferBytes];
};

}  // namespace bedplate::kvd
