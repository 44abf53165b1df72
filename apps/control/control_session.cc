#include "apps/control/control_session.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "platform/assert.h"
#include "platform/log.h"
#include "platform/product.h"
#include "platform/text_words.h"
#include "transport/loop/event_loop.h"

namespace bedplate {
namespace {

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
  describe(table, counters.clients);
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

ControlSession::ControlSession(ControlSite& site, Kind kind)
    : StreamSession(in_, std::span(out_).first<2 * kStepTextBytes>()), site_(&site), kind_(kind) {
  // The base class never writes to that: all answers are lent, none is said.
  site.own_loop->own_timers().reserve_more(1);
  site.sessions.push_back(this);
}

bool ControlSession::is_valid() const noexcept {
  if (!StreamSession::is_valid() || value_count_ > kControlParametersMax) return false;
  if (!output_.empty() && !is_within(output_, out_) && !is_within(output_, complaint_)) {
    return false;
  }
  if (is_asked_ &&
      (loop_ == nullptr || (!has_left() && is_there_ && is_waiting() && !timer_.is_armed()))) {
    return false;
  }
  if ((is_late_ && !is_there_) || (is_skipping_ && !is_line())) return false;
  return !goes_on_ || (has_begun_ && method_ != nullptr && request_.has_id);
}

StreamStep ControlSession::work(uint64_t /*now_ns*/) noexcept {
  BP_DCHECK_SLOW(is_valid());
  if (is_sending_) return StreamStep::kStarved;
  if (is_asked_) {
    end_asking();
  } else if (goes_on_) {
    call();
  } else if (!answer_next()) {
    return StreamStep::kStarved;
  }
  send_output();
  return is_asked_ ? StreamStep::kWaits : StreamStep::kTaken;
}

void ControlSession::send_output() noexcept {
  if (output_.empty()) return;
  is_sending_ = true;
  lend(std::exchange(output_, {}), this);
}

void ControlSession::late() noexcept {
  refuse_beginning("the line did not end in 10 s");
  send_output();
}

// Waits for a call that is still at a loop.
void ControlSession::left() noexcept {
  goes_on_ = has_begun_ = is_skipping_ = false;
  if (is_there_ && !is_waiting()) wait();
}

// Refuses a line that is too long, or does not end.
void ControlSession::refuse_beginning(std::string_view what) noexcept {
  BP_DCHECK(output_.empty() && !is_asked_);
  site_->counters->requests.add(1);
  request_.id = "null";
  has_begun_ = false;
  take(arrived().size());
  is_line() ? (void)(is_skipping_ = true) : end();
  complain(ControlFault::kNoRequest, what);
}

// Answers the next line. Returns false if it is not complete.
bool ControlSession::answer_next() noexcept {
  const std::string_view all = arrived();
  const size_t end = all.find('\n');
  if (end == all.npos) {
    if (is_skipping_) take(all.size());
    if (!is_input_full()) return false;
    refuse_beginning("a line must be shorter than 8192 bytes");
    return true;
  }
  if (!is_skipping_) answer(all.substr(0, end));
  is_skipping_ = false;
  take(end + 1);
  return true;
}

void ControlSession::answer(std::string_view line) noexcept {
  BP_DCHECK(!goes_on_ && !is_there_);
  if (line.find_first_not_of(" \t\r") == line.npos) return;
  site_->counters->requests.add(1);
  {
    const HeapOwnerScope scope(site_->owner);
    read_control_request(line, &request_);
  }
  has_begun_ = false;
  if (is_line() && request_.is_answer) {
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
  BP_DCHECK(output_.empty() && !is_sending_);
  BP_ASSERT(!is_there_ && !is_asked_);
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
  is_asked_ = is_there_ = true;
  EventLoop& own = *site_->own_loop;
  own.own_timers().arm(timer_, own.look_at_clock() + kPatienceNs);
  const bool is_new = loop_->submit(loop_call_);
  BP_ASSERT(is_new);  // submitted once for each is_there_
}

// Threads: the loop's. After the last line it does not touch the session.
void ControlSession::at_loop(void* session) noexcept {
  auto& self = *static_cast<ControlSession*>(session);
  BP_DCHECK(self.loop_->is_own_thread());
  self.next_(self.next_context_, self);
  self.site_->own_loop->submit(self.back_call_);
}

// The call has returned.
void ControlSession::back() noexcept {
  BP_ASSERT(is_there_);
  is_there_ = is_late_ = false;
  site_->own_loop->own_timers().cancel(timer_);
  if (has_left()) is_asked_ = false;
  if (is_waiting()) resume(site_->own_loop->now_ns());
}

// It has not returned in time.
void ControlSession::expired() noexcept {
  BP_DCHECK(is_asked_ && is_there_);
  if (!has_left()) return resume(site_->own_loop->now_ns());
  is_late_ = true;  // its client does not hear of it
  site_->counters->stuck.add(1);
  site_->counters->refused.add(1);
}

void ControlSession::end_asking() noexcept {
  is_asked_ = false;
  is_there_ ? give_up() : called();
}

// Ends the connection: the call may still run, and the client must send nothing else before it
// ends.
void ControlSession::give_up() noexcept {
  site_->counters->stuck.add(1);
  is_late_ = true;
  end();
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
  end();
  site_->counters->refused.add(1);
}

// Called when the method has returned, with a part of the answer or all of it.
void ControlSession::called() noexcept {
  BP_DCHECK(!is_asked_ && output_.empty() && method_ != nullptr);
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
                        fault == ControlFault::kNoRequest || fault == ControlFault::kStuck;
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
