// One connection of the control socket without its socket: lines that came go in, lines with the
// answers come out, one after the other, in their order.
//
// A method that goes on at a shard is waited for, for two seconds; then the shard is said to be
// stuck and the connection ends, since what it asked for may yet be done. Until it was done nothing
// more is asked of that shard: what is late keeps its place. On a line that is always there no
// connection ends: what cannot be read is answered and left out up to the next newline, an answer
// that is broken off ends with its line, and one that came back (an echo) is not answered.
//
// A session's memory is a line and a piece of an answer: a line that is longer is refused, an
// answer that is longer is made in pieces. Threads: that of the connections, but for what a loop
// calls. Nothing is allocated but by the parser (control_request.h), for as long as it reads.
//
// Invariants, which is_valid() looks at before and after each call that changes it: 1. What has
// come lies within its buffer, and what is to be sent within one of the two for answers. 2. While
// it waits for a loop there is nothing to be sent, and the call is with the loop or back. 3. A call
// that it does not wait for any more is that of the last line. 4. A method that goes on has said
// something, which is to be sent first, to one that asked to be answered. 5. Only on a standing
// line anything is skipped. 6. Where there is neither something to be sent nor to wait for, no line
// is complete, and there is room for the rest of it. And at_loop(): 7. A loop touches it while it
// has the call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alloc/heap_owner.h"
#include "apps/boot/connection_session.h"
#include "apps/boot/control_methods.h"
#include "apps/boot/counter_table.h"
#include "apps/control/control_request.h"
#include "transport/loop_call_datapath.h"

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

// What all connections answer with.
struct ControlSite {
  struct Shard {
    const EventLoop* loop;
    std::string name;
  };

  const ControlMethods* methods = nullptr;
  ControlCounters* counters = nullptr;
  HeapOwner owner = kRuntimeOwner;  // of what the parser takes
  // Has look() called soon. Threads: any.
  void (*wake)(void* context) noexcept = nullptr;
  void* wake_context = nullptr;
  std::vector<Shard> shards;
  std::vector<const ControlSession*> sessions;  // all of them

  // Whether a call is late that it was handed.
  bool is_stuck(const EventLoop& loop) const noexcept;
  // That of its shard.
  std::string_view name_of(const EventLoop& loop) const noexcept;
};

class ControlSession final : public ConnectionSession, private ControlCall {
 public:
  static constexpr uint64_t kPatienceNs = 2'000'000'000;

  // `site` outlives it.
  explicit ControlSession(const ControlSite& site) noexcept : site_(&site) {}

  void open(int fd) noexcept override;
  // It begins with an empty line: what the line had before may not have ended.
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
  // The loop that has not come to it, which it does not wait for any more; nullptr: there is none.
  const EventLoop* late_loop() const noexcept {
    return !is_waiting_ && is_held() ? loop_ : nullptr;
  }

  bool is_valid() const noexcept;

 private:
  enum class AtLoop : uint8_t { kNot, kThere, kBack };
  static constexpr size_t kOutBytes = 20 * 1024;
  // So much is left behind an answer for its end.
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
  const ControlMethod* method_ = nullptr;  // that is answered
  bool is_line_ = false;                   // one that is always there
  bool is_skipping_ = false;               // up to the end of a line
  bool is_last_ = false;                   // no line is read any more
  bool is_waiting_ = false;                // for a loop
  bool has_begun_ = false;                 // a piece of the answer has been made
  bool goes_on_ = false;                   // and the method is to make another one
  uint64_t deadline_ns_ = 0;
  std::atomic<AtLoop> at_loop_{AtLoop::kNot};
  LoopCall loop_call_ = {.function = &ControlSession::at_loop, .context = this};
  size_t received_ = 0;
  std::string_view output_;
  ControlRequest request_;
  char in_[ControlRequest::kBytesMax] = {};
  char out_[kOutBytes] = {};
  char complaint_[6 * 1024] = {};  // not out_: a loop that is late may still write there
};

}  // namespace bedplate
