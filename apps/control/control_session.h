// The session of a connection of the control socket, or of the serial line: request lines go in,
// answer lines come out, in order.
//
// The session waits two seconds for a method that continues on a shard. Then it calls the shard
// stuck and ends, since the call may still run. Until that call returns, further requests for that
// shard are refused, and the session, which waits for it, has no other peer. A serial line is never
// closed: if its session ends, another session serves it. On a line, the session answers an
// unreadable request and skips to the next newline, ends an aborted answer with a newline, and
// does not answer an echoed answer.
//
//     a step: the next line -> call() -> the answer, or its first part
//                              the method goes on at a loop: the session waits
//     the shard's loop: at_loop() -> the rest of the method -> back() on the session's own loop
//     back(), or two seconds later expired(): the session goes on with the answer, or gives up
//
// A session's memory is one line, one part of an answer and one error: a longer line is refused, a
// longer answer is written in parts. Threads: that of the sessions' loop, except for at_loop().
// Only the parser (control_request.h) and the methods may allocate.
//
// Invariants, which is_valid() checks before each step: 1. The output of a step lies within one of
// the answers' buffers. 2. While it waits for a loop, the call is there, and the timer is armed.
// 3. Only a call that is at a loop is late. 4. A method that continues has written a part, which
// is sent first, and its client expects an answer. 5. Only a serial line skips bytes. at_loop()
// keeps one more: 6. A loop touches the session only while it has the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alloc/heap_owner.h"
#include "apps/control/control_request.h"
#include "apps/services/control_methods.h"
#include "platform/counter_table.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/loop_call_datapath.h"
#include "transport/sockets/stream_server_counters.h"
#include "transport/sockets/stream_session_datapath.h"

namespace bedplate {

struct ControlCounters {
  Counter requests;
  Counter refused;
  Counter stuck;
  Counter not_allowed;
  Counter line_losses;
  StreamServerCounters clients;
};
void describe(CounterTable& table, ControlCounters& counters);

class ControlSession;

// State that all control connections share.
struct ControlSite {
  struct Shard {
    const EventLoop* loop;
    std::string name;
  };

  const ControlMethods* methods = nullptr;
  ControlCounters* counters = nullptr;
  HeapOwner owner = kRuntimeOwner;  // owns the parser's memory
  EventLoop* own_loop = nullptr;    // that of the sessions
  std::vector<Shard> shards;
  std::vector<const ControlSession*> sessions;  // all of them; they add themselves

  // Whether a session has given up a call that `loop` still holds.
  bool is_stuck(const EventLoop& loop) const noexcept;
  // The name of the loop's shard; "(not in [[shard]])" if it has none.
  std::string_view name_of(const EventLoop& loop) const noexcept;
};

class ControlSession final : public StreamSession, private ControlCall {
 public:
  enum class Kind : uint8_t { kConnection, kLine };

  // The longest wait for a shard.
  static constexpr uint64_t kPatienceNs = 2'000'000'000;

  // Before the seal: it allocates the timer's slot. `site` outlives this.
  explicit ControlSession(ControlSite& site, Kind kind = Kind::kConnection);

  void late() noexcept override;

  // Whether it serves a serial line, which stays open.
  bool is_line() const noexcept { return kind_ == Kind::kLine; }
  // The loop that still has a call given up by the session; nullptr: none.
  const EventLoop* late_loop() const noexcept { return is_late_ ? loop_ : nullptr; }

  bool is_valid() const noexcept;

 private:
  static constexpr size_t kOutBytes = 20 * 1024;
  // Space kept after an answer for its end.
  static constexpr size_t kEndBytes = 16;

  StreamStep work(uint64_t now_ns) noexcept override;
  void released(void* /*loan*/) noexcept override { is_sending_ = false; }
  void left() noexcept override;

  bool answer_next() noexcept;
  void answer(std::string_view line) noexcept;
  bool take_parameters() noexcept;
  bool take_parameter(const ControlParameter& known,
                      const ControlRequest::Parameter& given) noexcept;
  void call() noexcept;
  void called() noexcept;
  static void at_loop(void* session) noexcept;
  void back() noexcept;
  void expired() noexcept;
  void end_asking() noexcept;
  void give_up() noexcept;
  void refuse_for_stuck() noexcept;
  bool must_break_off() const noexcept { return has_begun_ && !is_line(); }
  void break_off() noexcept;
  void refuse_beginning(std::string_view what) noexcept;
  void begin_result() noexcept;
  void end_result() noexcept;
  void complain(ControlFault fault, std::string_view what, std::string_view subject = {}) noexcept;
  void say_error(ControlFault fault, const Error* error, std::string_view what,
                 std::string_view subject) noexcept;
  void send_output() noexcept;

  ControlSite* site_;
  const Kind kind_;
  const ControlMethod* method_ = nullptr;  // the method whose answer is being written
  bool is_skipping_ = false;               // up to the end of a line
  bool is_sending_ = false;                // the last output
  bool is_asked_ = false;                  // it waits for a loop
  bool is_there_ = false;                  // a loop has the call
  bool is_late_ = false;                   // a loop has the call that this has given up
  bool has_begun_ = false;                 // a part of the answer is written
  bool goes_on_ = false;                   // the method has to write another part
  LoopCall loop_call_ = {.function = &ControlSession::at_loop, .context = this};
  LoopCall back_call_ = {
      .function = [](void* self) noexcept { static_cast<ControlSession*>(self)->back(); },
      .context = this};
  Timer timer_ = {
      .expired = [](void* self) noexcept { static_cast<ControlSession*>(self)->expired(); },
      .context = this};
  std::string_view output_;  // of this step
  ControlRequest request_;
  char in_[ControlRequest::kBytesMax];
  char out_[kOutBytes];
  char complaint_[6 * 1024];  // not in out_: a stuck loop may still write there
};

}  // namespace bedplate
