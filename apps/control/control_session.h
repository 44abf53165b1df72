// A connection of the control socket without its socket: request lines go in, answer lines come
// out, in order.
//
// The session waits two seconds for a method that continues on a shard. Then it calls the shard
// stuck and ends the connection, since the call may still run. Until that call returns, further
// requests for that shard are refused, and the session keeps its slot. A serial line is never
// closed: if its session ends, another session serves it. On a line, the session answers an
// unreadable request and skips to the next newline, ends an aborted answer with a newline, and
// does not answer an echoed answer.
//
// A session's memory is one line, one part of an answer and one error: a longer line is refused, a
// longer answer is written in parts. Threads: the thread of the connections, except for at_loop().
// Only the parser (control_request.h) and the methods may allocate.
//
// Invariants, which is_valid() checks before and after each call that changes it: 1. The received
// bytes lie within their buffer, and the output lies within one of the answers' buffers or the
// line's constant beginning. 2. While it waits for a loop the output is empty, and the call is with
// the loop or back. 3. A call that it has given up belongs to the last line. 4. A method that
// continues has written a part, which is sent first, and its client expects an answer. 5. Only a
// serial line skips bytes. 6. With no output and nothing to wait for, the buffer holds no complete
// line and has space for the rest of one. at_loop() keeps one more: 7. A loop touches the session
// only while it has the call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alloc/heap_owner.h"
#include "apps/connections/connection_session.h"
#include "apps/control/control_request.h"
#include "apps/services/control_methods.h"
#include "platform/counter_table.h"
#include "transport/loop/loop_call_datapath.h"

namespace bedplate {

struct ControlCounters {
  Counter requests;
  Counter refused;
  Counter stuck;
  Counter not_allowed;
  Counter line_losses;
  ServedCounters connections;
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
  // Wakes the connections' thread to call look(). Threads: any.
  void (*wake)(void* context) noexcept = nullptr;
  void* wake_context = nullptr;
  std::vector<Shard> shards;
  std::vector<const ControlSession*> sessions;  // all sessions

  // Whether a session has given up a call that `loop` still holds.
  bool is_stuck(const EventLoop& loop) const noexcept;
  // The name of the loop's shard; "(not in [[shard]])" if it has none.
  std::string_view name_of(const EventLoop& loop) const noexcept;
};

class ControlSession final : public ConnectionSession, private ControlCall {
 public:
  // The longest wait for a shard.
  static constexpr uint64_t kPatienceNs = 2'000'000'000;

  // `site` outlives this.
  explicit ControlSession(const ControlSite& site) noexcept : site_(&site) {}

  void open(int fd) noexcept override;
  // Begins with an empty line: the last text on the line may be incomplete.
  void begin_line() noexcept override;
  std::span<char> room() noexcept override;
  void received(size_t bytes) noexcept override;
  std::string_view output() const noexcept override { return output_; }
  void sent(size_t bytes) noexcept override;
  bool is_over() const noexcept override { return is_last_ && !is_waiting(); }
  bool is_in_request() const noexcept override {
    return received_ > 0 && output_.empty() && !is_waiting();
  }
  void time_out() noexcept override;
  bool is_waiting() const noexcept override { return is_waiting_; }
  void look(uint64_t now_ns) noexcept override;
  bool is_held() const noexcept override {
    return at_loop_.load(std::memory_order_acquire) == AtLoop::kThere;
  }
  // The loop that still has a call given up by the session; nullptr: none.
  const EventLoop* late_loop() const noexcept {
    return !is_waiting_ && is_held() ? loop_ : nullptr;
  }

  bool is_valid() const noexcept;

 private:
  enum class AtLoop : uint8_t { kNot, kThere, kBack };
  static constexpr size_t kOutBytes = 20 * 1024;
  // Space kept after an answer for its end.
  static constexpr size_t kEndBytes = 16;

  bool is_waiting_valid() const noexcept;
  void go_on() noexcept;
  void answer(std::string_view line) noexcept;
  bool take_parameters() noexcept;
  bool take_parameter(const ControlParameter& known,
                      const ControlRequest::Parameter& given) noexcept;
  void call() noexcept;
  void called() noexcept;
  static void at_loop(void* session) noexcept;
  void give_up() noexcept;
  void refuse_for_stuck() noexcept;
  bool must_break_off() const noexcept { return has_begun_ && !is_line_; }
  void break_off() noexcept;
  void refuse_beginning(std::string_view what) noexcept;
  void begin_result() noexcept;
  void end_result() noexcept;
  void complain(ControlFault fault, std::string_view what, std::string_view subject = {}) noexcept;
  void say_error(ControlFault fault, const Error* error, std::string_view what,
                 std::string_view subject) noexcept;

  const ControlSite* site_;
  const ControlMethod* method_ = nullptr;  // the method whose answer is being written
  bool is_line_ = false;                   // a serial line, which stays open
  bool is_skipping_ = false;               // up to the end of a line
  bool is_last_ = false;                   // no more lines are read
  bool is_waiting_ = false;                // for a loop
  bool has_begun_ = false;                 // a part of the answer is written
  bool goes_on_ = false;                   // the method has to write another part
  uint64_t deadline_ns_ = 0;
  std::atomic<AtLoop> at_loop_{AtLoop::kNot};
  LoopCall loop_call_ = {.function = &ControlSession::at_loop, .context = this};
  size_t received_ = 0;
  std::string_view output_;
  ControlRequest request_;
  char in_[ControlRequest::kBytesMax] = {};
  char out_[kOutBytes] = {};
  char complaint_[6 * 1024] = {};  // not in out_: a stuck loop may still write there
};

}  // namespace bedplate
