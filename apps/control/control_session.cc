#include "apps/control/control_session.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/product.h"
#include "platform/text_words.h"
#include "transport/loop/event_loop.h"

namespace bedplate {
namespace {

constexpr std::string_view kFirstOfLine = "\n";

bool is_within(std::string_view part, std::span<const char> all) noexcept {
  return part.data() >= all.data() && part.data() + part.size() <= all.data() + all.size();
}

}  // namespace

void describe(CounterTable& table, ControlCounters& counters) {
  table
      .counter("requests", counters.requests, "requests",
               "Received requests, including lines that were too long or incomplete.")
      .at_a_glance("requests")
      .no_alert("refused counts those that were too long");
  table
      .counter("refused", counters.refused, "requests",
               "Requests that were refused or aborted, including notifications; all others were "
               "executed.")
      .alert_as_it_grows(
          "{refused} requests were refused so far: each answer has the cause and the cure; "
          "check which program sends them");
  table
      .counter("stuck", counters.stuck, "requests",
               "Requests refused because a shard did not respond in time.")
      .alert_as_it_grows(
          "{stuck} requests got no answer from a shard so far: `top` of this program shows which "
          "shard is busy, and with what");
  table
      .counter("not_allowed", counters.not_allowed, "connections",
               "Refused connections of users without permission.")
      .alert_as_it_grows(
          "{not_allowed} connections of users without permission were refused so far: add the "
          "users to its group, or find out who they are");
  table
      .counter("line_losses", counters.line_losses, "times",
               "Times that the serial line was hung up or could not be read or written.")
      .alert_as_it_grows(
          "the serial line was lost {line_losses} times so far: check the cable, and the other "
          "end");
  describe(table, counters.connections);
}

bool ControlSite::is_stuck(const EventLoop& loop) const noexcept {
  return std::any_of(sessions.begin(), sessions.end(),
                     [&loop](const ControlSession* each) { return each->late_loop() == &loop; });
}

std::string_view ControlSite::name_of(const EventLoop& loop) const noexcept {
  const auto named = std::find_if(shards.begin(), shards.end(),
                                  [&loop](const Shard& shard) { return shard.loop == &loop; });
  return named == shards.end() ? "(not in [[shard]])" : std::string_view(named->name);
}

bool ControlSession::is_valid() const noexcept {
  if (received_ > sizeof in_ || value_count_ > kControlParametersMax) return false;
  const bool is_output_known = output_.empty() || is_within(output_, out_) ||
                               is_within(output_, complaint_) || is_within(output_, kFirstOfLine);
  if (!is_output_known || (is_skipping_ && !is_line_) || !is_waiting_valid()) return false;
  if (goes_on_ && (output_.empty() || !has_begun_ || method_ == nullptr || !request_.has_id)) {
    return false;
  }
  if (is_last_ || is_waiting_ || !output_.empty()) return true;
  return received_ < sizeof in_ &&
         std::string_view(in_, received_).find('\n') == std::string_view::npos;
}

// The loop may give the call back at any moment.
bool ControlSession::is_waiting_valid() const noexcept {
  const bool is_asked = at_loop_.load(std::memory_order_acquire) != AtLoop::kNot;
  if (is_asked && loop_ == nullptr) return false;
  if (is_waiting_) return is_asked && output_.empty() && !goes_on_;
  return !is_asked || is_last_;
}

void ControlSession::open(int /*fd*/) noexcept {
  BP_ASSERT(!is_held());
  at_loop_.store(AtLoop::kNot, std::memory_order_relaxed);
  is_line_ = is_skipping_ = is_last_ = is_waiting_ = goes_on_ = has_begun_ = false;
  received_ = 0;
  output_ = {};
  BP_DCHECK_SLOW(is_valid());
}

void ControlSession::begin_line() noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(!is_line_ && received_ == 0 && output_.empty());
  is_line_ = true;
  output_ = kFirstOfLine;
}

std::span<char> ControlSession::room() noexcept {
  if (is_last_ || is_waiting_ || !output_.empty()) return {};
  return {in_ + received_, sizeof in_ - received_};
}

void ControlSession::received(size_t bytes) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(bytes <= room().size());
  received_ += bytes;
  go_on();
}

void ControlSession::sent(size_t bytes) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(bytes <= output_.size());
  output_.remove_prefix(bytes);
  if (!output_.empty()) return;
  if (goes_on_) {
    call();
  } else {
    go_on();
  }
}

void ControlSession::time_out() noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(is_in_request());
  refuse_beginning("the line did not end in 10 s");
}

// Refuses a line that is too long.
void ControlSession::refuse_beginning(std::string_view what) noexcept {
  BP_DCHECK(output_.empty() && !is_waiting_);
  site_->counters->requests.add(1);
  request_.id = "null";
  has_begun_ = false;
  is_last_ = !is_line_;
  is_skipping_ = is_line_;
  received_ = 0;
  complain(ControlFault::kNoRequest, what);
}

// Answers complete lines, until there is output to send or a call to wait for.
void ControlSession::go_on() noexcept {
  while (!is_last_ && !is_waiting_ && output_.empty() && received_ > 0) {
    const std::string_view all(in_, received_);
    const size_t end = all.find('\n');
    if (end == all.npos) {
      if (is_skipping_) received_ = 0;
      if (received_ < sizeof in_) return;
      refuse_beginning("a line must be shorter than 8192 bytes");
      return;
    }
    if (!is_skipping_) answer(all.substr(0, end));
    is_skipping_ = false;
    received_ -= end + 1;
    std::memmove(in_, in_ + end + 1, received_);
  }
}

void ControlSession::answer(std::string_view line) noexcept {
  BP_DCHECK(!goes_on_ && !is_held());
  if (line.find_first_not_of(" \t\r") == line.npos) return;
  site_->counters->requests.add(1);
  {
    const HeapOwnerScope scope(site_->owner);
    read_control_request(line, &request_);
  }
  has_begun_ = false;
  if (is_line_ && request_.is_answer) {
    site_->counters->refused.add(1);
    return;
  }
  if (request_.fault != ControlFault::kNone) {
    complain(request_.fault, request_.complaint);
    return;
  }
  method_ = site_->methods->find(request_.method);
  if (method_ == nullptr) {
    complain(ControlFault::kNoMethod,
             "there is no such method; \"methods\" lists them: ", request_.method);
    return;
  }
  if (!take_parameters()) return;
  BP_LOG_DEBUG("control: request for %s", method_->name.c_str());
  page_ = 0;
  call();
}

bool ControlSession::take_parameters() noexcept {
  BP_ASSERT(request_.parameter_count <= std::size(values_));
  value_count_ = 0;
  for (size_t i = 0; i < request_.parameter_count; ++i) {
    const ControlRequest::Parameter& given = request_.parameters[i];
    const auto known =
        std::find_if(method_->parameters.begin(), method_->parameters.end(),
                     [&given](const ControlParameter& each) { return each.name == given.name; });
    if (known == method_->parameters.end()) {
      complain(ControlFault::kNoParameter, "the method has no parameter ", given.name);
      return false;
    }
    if (!take_parameter(*known, given)) return false;
  }
  for (const ControlParameter& known : method_->parameters) {
    if (!known.is_required || has(known.name)) continue;
    complain(ControlFault::kNoParameter, "the method requires the parameter ", known.name);
    return false;
  }
  return true;
}

// Also takes a text for a number or a boolean: a shell passes only texts.
bool ControlSession::take_parameter(const ControlParameter& known,
                                    const ControlRequest::Parameter& given) noexcept {
  Value& value = values_[value_count_];
  value = {.name = known.name, .type = known.type, .text = given.text, .number = given.number};
  bool is_good = given.type == known.type;
  if (given.type == ControlType::kText && known.type == ControlType::kNumber) {
    is_good = parse_number(given.text, &value.number);
  } else if (given.type == ControlType::kText && known.type == ControlType::kBoolean) {
    value.number = given.text == "true" ? 1 : 0;
    is_good = given.text == "true" || given.text == "false";
  }
  if (is_good) {
    ++value_count_;
    return true;
  }
  char what[128];
  TextWriter writer(what);
  writer.text("this parameter must be a ").text(to_text(known.type)).text(": ");
  complain(ControlFault::kNoParameter, {what, writer.bytes()}, known.name);
  return false;
}

// Calls the method for the next part of its answer.
void ControlSession::call() noexcept {
  // No loop uses the output and the request now.
  BP_DCHECK(output_.empty() && !is_waiting_);
  BP_ASSERT(at_loop_.load(std::memory_order_relaxed) == AtLoop::kNot);
  goes_on_ = has_more_ = is_refused_ = false;
  loop_ = nullptr;
  begin_result();
  const HeapOwnerScope scope(method_->asker);
  method_->function(method_->context, *this);
  if (loop_ == nullptr) {
    called();
    return;
  }
  BP_DCHECK(next_ != nullptr);
  if (site_->is_stuck(*loop_)) return refuse_for_stuck();
  is_waiting_ = true;
  deadline_ns_ = monotonic_ns() + kPatienceNs;
  at_loop_.store(AtLoop::kThere, std::memory_order_release);
  const bool is_new = loop_->submit(loop_call_);
  BP_ASSERT(is_new);  // submitted once for each kThere
}

// Threads: the loop's. After the store it does not touch the session.
void ControlSession::at_loop(void* session) noexcept {
  auto& self = *static_cast<ControlSession*>(session);
  BP_DCHECK(self.is_held() && self.loop_->is_own_thread());
  const auto wake = self.site_->wake;
  void* const context = self.site_->wake_context;
  self.next_(self.next_context_, self);
  self.at_loop_.store(AtLoop::kBack, std::memory_order_release);
  wake(context);
}

void ControlSession::look(uint64_t now_ns) noexcept {
  if (!is_waiting_) return;
  BP_KEEPS_VALID(*this);
  if (!is_held()) {
    is_waiting_ = false;
    at_loop_.store(AtLoop::kNot, std::memory_order_relaxed);
    called();
    go_on();
  } else if (now_ns >= deadline_ns_) {
    is_waiting_ = false;
    give_up();
  }
}

// Ends the connection: the call may still run, and the client must send nothing else before it
// ends.
void ControlSession::give_up() noexcept {
  site_->counters->stuck.add(1);
  is_last_ = true;
  if (must_break_off()) return break_off();
  char text[256];
  TextWriter writer(text);
  writer.text("the shard ").text(site_->name_of(*loop_));
  writer.text(" has not handled it in 2 s, and may still do so: see `");
  writer.text(product().name).text(" top`");
  complain(ControlFault::kStuck, {text, writer.bytes()});
}

// Otherwise each call that waits for a stuck shard would hold a session until the shard reaches it.
void ControlSession::refuse_for_stuck() noexcept {
  site_->counters->stuck.add(1);
  if (must_break_off()) return break_off();
  char text[256];
  TextWriter writer(text);
  writer.text("the shard ").text(site_->name_of(*loop_));
  writer.text(" is stuck: it has not handled an earlier call, so this one was not sent: see `");
  writer.text(product().name).text(" top`");
  complain(ControlFault::kRefused, {text, writer.bytes()});
}

// Aborts an answer that is partly sent.
void ControlSession::break_off() noexcept {
  is_last_ = true;
  site_->counters->refused.add(1);
}

// Called when the method has returned, with a part of the answer or all of it.
void ControlSession::called() noexcept {
  BP_DCHECK(!is_waiting_ && output_.empty() && method_ != nullptr);
  const bool is_full = result_.is_full() || result_.bytes() > sizeof out_ - kEndBytes;
  const bool is_good = !is_refused_ && !is_full;
  goes_on_ = is_good && has_more_ && request_.has_id;
  if (is_good) {
    if (request_.has_id) end_result();
  } else if (must_break_off()) {
    break_off();
  } else if (is_refused_) {
    say_error(ControlFault::kRefused, &error_, {}, {});
  } else {
    complain(ControlFault::kInternal, "the answer is too long: this is a defect of the method");
  }
}

void ControlSession::begin_result() noexcept {
  if (has_begun_) {
    result_.go_on({out_, sizeof out_ - kEndBytes});
    return;
  }
  result_ = JsonText({out_, sizeof out_ - kEndBytes});
  result_.begin_object().key("jsonrpc").text("2.0").key("id").raw(request_.id).key("result");
}

void ControlSession::end_result() noexcept {
  size_t bytes = result_.bytes();
  BP_DCHECK(bytes > 0 || !goes_on_);  // otherwise no call would fetch the rest
  has_begun_ = true;
  if (!goes_on_) {
    out_[bytes++] = '}';
    out_[bytes++] = '\n';
  }
  output_ = {out_, bytes};
}

void ControlSession::complain(ControlFault fault, std::string_view what,
                              std::string_view subject) noexcept {
  say_error(fault, nullptr, what, subject);
}

// The message has space for a method's text; a subject sent by a client is truncated.
void ControlSession::say_error(ControlFault fault, const Error* error, std::string_view what,
                               std::string_view subject) noexcept {
  constexpr size_t kSubjectMax = 64;
  BP_DCHECK(output_.empty() && fault != ControlFault::kNone);
  site_->counters->refused.add(1);
  const bool must_say = request_.has_id || fault == ControlFault::kNoJson ||
                        fault == ControlFault::kNoRequest || is_last_;
  if (!must_say) return;
  char message[sizeof(Error) + 8];
  TextWriter writer(message);
  if (error == nullptr) {
    writer.text(what).text(subject.substr(0, kSubjectMax));
  } else {
    format_error(*error, message, sizeof message);
  }
  const std::string_view text =
      error == nullptr ? std::string_view(message, writer.bytes()) : std::string_view(message);
  const size_t at = has_begun_ ? 1 : 0;  // 1: a newline first ends the line of the aborted answer
  complaint_[0] = '\n';
  JsonText said(std::span<char>(complaint_).subspan(at));
  said.begin_object().key("jsonrpc").text("2.0").key("id").raw(request_.id).key("error");
  said.begin_object().key("code").raw("-").more(std::to_string(-static_cast<int>(fault)));
  said.key("message").text(text).end_object().end_object().more("\n");
  BP_ASSERT(!said.is_full());
  output_ = {complaint_, at + said.bytes()};
}

}  // namespace bedplate
