#include "tests/strain/step_group.h"

#include <cinttypes>
#include <cstdarg>

#include <sys/socket.h>
#include <unistd.h>

#include "platform/clock.h"

namespace bedplate::strain {
namespace {

constexpr uint32_t kEntryCount = 8;
constexpr uint64_t kSettleNs = 20 * kNsPerMs;  // for the receiver to fall asleep, if it can
constexpr uint64_t kStartNs = 30 * kNsPerSecond;

GroupShape shape_for(StepQueue queue) {
  GroupShape shape;
  switch (queue) {
    case StepQueue::kFifo: shape.box_count = 0; break;
    case StepQueue::kBox: shape.box_count = 16; break;
    case StepQueue::kLane: shape.kind = GroupKind::kMesh; break;
    case StepQueue::kExchange: shape.kind = GroupKind::kExchange; break;
  }
  shape.member_count = queue == StepQueue::kExchange ? 2 : kStepOwnMax + 2;
  shape.entry_count = kEntryCount;
  shape.eager_count = 8;
  shape.box_count_max = 8;
  shape.send_threshold = 1;
  return shape;
}

uint32_t own_count(StepQueue queue) { return queue == StepQueue::kExchange ? 1 : kStepOwnMax; }

}  // namespace

const char* to_text(StepFault fault) noexcept {
  constexpr const char* kTexts[] = {"stalled",    "stuck",     "lost", "spoilt",   "refused",
                                    "never ends", "not freed", "died", "sleepless"};
  return kTexts[static_cast<uint32_t>(fault)];
}

StepGroup::StepGroup(StepQueue queue, uint64_t hang_ns, uint64_t seed)
    : queue_(queue),
      hang_ns_(hang_ns),
      group_(shape_for(queue), seed, own_count(queue)),
      receiver_(group_),
      others_(group_, own_count(queue) - 1) {}

StepGroup::~StepGroup() { sender_.end(); }

void StepGroup::note(StepOutcome* outcome, StepFault fault, const char* format, ...) {
  if (outcome->has(fault)) return;
  outcome->faults |= 1u << static_cast<uint32_t>(fault);
  char(&text)[160] = outcome->texts[static_cast<size_t>(fault)];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
}

// The number of messages from each other sender that together exceed two laps of a FIFO.
uint32_t StepGroup::lap_messages() const noexcept {
  return others_.count() == 0 ? 0 : (2 * kEntryCount + 4) / others_.count();
}

// ---- The sender ----

void StepGroup::provide_sender() {
  if (sender_.is_there()) return;
  for (bool& is_warm : is_warm_) is_warm = false;
  StepControl& step = control();
  step.connection.store(0);
  const pid_t pid = group_.start_peer("stepper");
  const uint64_t took = others_.wait_until(
      [&] { return step.connection.load(std::memory_order_acquire) != 0; }, kStartNs);
  if (took == UINT64_MAX) fail("no sender came to join");
  member_ = group_.member_of(pid);
  sender_.trace(pid);
  receiver_.set_sleepy(false);
  receiver_.expect_new_sender();
  if (queue_ != StepQueue::kExchange) step.memory = receiver_.expose_to(member_);
  attempt_ = 0;
  ended_ = 0;
  adds_ = receiver_.word(0);
}

// Ends the sender if it still runs, and withdraws the memory exposed to it.
void StepGroup::retire_sender() {
  if (member_ == 0) return;
  sender_.end();
  if (queue_ != StepQueue::kExchange) receiver_.withdraw();
  member_ = 0;
}

bool StepGroup::give_order(const Order& order) {
  StepControl& step = control();
  step.deed = order.deed;
  step.is_marked = order.is_marked ? 1 : 0;
  step.attempt = ++attempt_;
  step.order.fetch_add(1, std::memory_order_release);
  return true;
}

bool StepGroup::wait_for_answer() {
  StepControl& step = control();
  return others_.wait_until(
             [&] {
               return step.answered.load(std::memory_order_acquire) == step.order.load() ||
                      sender_.has_ended();
             },
             hang_ns_) != UINT64_MAX &&
         sender_.is_there();
}

// Performs the deed without stopping the sender. Retries after kAgain for at most hang_ns_.
bool StepGroup::perform(Deed deed) {
  const uint64_t until = monotonic_ns() + hang_ns_;
  do {
    give_order({deed, false});
    if (!wait_for_answer()) return false;
    const SendStatus status = control().status;
    if (status == SendStatus::kAgain) continue;
    if (status != SendStatus::kDone && status != SendStatus::kPending) return false;
    if (status == SendStatus::kPending) ++ended_;
    if (deed == Deed::kAdd) ++adds_;
    return true;
  } while (monotonic_ns() < until);
  return false;
}

// Performs the deed before the measured calls: the first call of a kind resolves symbols and
// creates endpoints. Then sends until the sender has a box, if the case needs one.
bool StepGroup::warm_up(const StepCase& which) {
  bool& is_warm = is_warm_[static_cast<uint32_t>(which.deed)];
  if (is_warm) return true;
  for (int i = 0; i < 2; ++i) {
    if (!perform(which.deed)) return false;
    others_.wait_until([&] { return control().ended.load() == ended_; }, hang_ns_);
  }
  const uint64_t until = monotonic_ns() + hang_ns_;
  while (queue_ == StepQueue::kBox && control().has_box.load() == 0) {
    if (monotonic_ns() > until || !perform(Deed::kShort)) return false;
    others_.wait_until([&] { return control().has_box.load() != 0; }, kNsPerMs);
  }
  if (is_message(which.deed) && perform(which.deed)) {
    others_.wait_until([&] { return receiver_.last_attempt() == attempt_; }, hang_ns_);
  }
  is_warm = true;
  return true;
}

// ---- One boundary ----

// Stops the sender before instruction `boundary` of the call.
bool StepGroup::enter(const StepCase& which, uint32_t boundary, StepOutcome* outcome) {
  provide_sender();
  receiver_.set_sleepy(false);
  if (!warm_up(which)) {
    note(outcome, StepFault::kStuck, "it cannot even begin: status %s",
         bedplate::to_text(control().status));
    is_good_ = false;
    return false;
  }
  give_order({which.deed, true});
  if (sender_.wait_for_trap(kStartNs) != Stop::kTrapped) {
    note(outcome, StepFault::kDied, "before the call");
    return false;
  }
  receiver_.set_sleepy(which.is_sleepy);
  if (which.is_sleepy &&
      others_.wait_until([&] { return receiver_.is_asleep(); }, hang_ns_) == UINT64_MAX) {
    note(outcome, StepFault::kSleepless, "in %" PRIu64 " ms", hang_ns_ / kNsPerMs);
  }
  for (uint32_t i = 0; i < boundary && !outcome->is_beyond; ++i) {
    const Stop stop = sender_.step();
    if (stop == Stop::kTrapped) outcome->is_beyond = true;
    if (stop == Stop::kEnded) {
      note(outcome, StepFault::kDied, "in the call");
      return false;
    }
  }
  return true;
}

void StepGroup::let_others_send(uint32_t messages, StepFault fault, StepOutcome* outcome) {
  if (others_.count() == 0) return;
  const uint64_t begin = monotonic_ns();
  const bool were_accepted = others_.send(messages, hang_ns_);
  const uint64_t took =
      others_.wait_until([&] { return others_.have_arrived(receiver_); }, hang_ns_);
  if (!were_accepted || took == UINT64_MAX) {
    note(outcome, fault, "messages of others %s",
         were_accepted ? "did not come" : "were not accepted");
    if (fault == StepFault::kStuck) is_good_ = false;
  }
  outcome->delivery_ns = std::max(outcome->delivery_ns, monotonic_ns() - begin);
  if (const char* text = receiver_.take_fault(); text[0] != '\0') {
    note(outcome, StepFault::kSpoilt, "%s", text);
  }
}

StepOutcome StepGroup::try_boundary(const StepCase& which, uint32_t boundary) {
  StepOutcome outcome;
  if (enter(which, boundary, &outcome)) {
    if (which.is_sleepy) {
      outcome.slept =
          others_.wait_until([&] { return receiver_.is_asleep(); }, kSettleNs) != UINT64_MAX;
    }
    let_others_send(lap_messages(), StepFault::kStalled, &outcome);
    switch (which.fate) {
      case Fate::kGoesOn: go_on(which, &outcome); break;
      case Fate::kKilled: kill(&outcome); break;
      case Fate::kHungUp: hang_up(which, &outcome); break;
    }
  }
  if (outcome.has(StepFault::kDied)) {
    retire_sender();
    is_good_ = false;
  }
  return outcome;
}

uint32_t StepGroup::measure(const StepCase& which) {
  StepOutcome outcome;
  if (!enter(which, 0, &outcome)) return 0;
  uint32_t count = 0;
  while (sender_.step() == Stop::kStepped) ++count;
  sender_.go_on();
  wait_for_answer();
  check_answer(which, false, &outcome);
  return outcome.faults == 0 ? count : 0;
}

// Lets the stopped sender finish its call. Before that, the others fill the queue with unread
// messages, so that the sender's late stores land beside these. If the receiver sleeps, the others
// send nothing: the sender itself must wake the receiver.
bool StepGroup::finish_call(const StepCase& which, StepOutcome* outcome) {
  if (!outcome->is_beyond) {
    if (!which.is_sleepy) {
      receiver_.hold();
      others_.fill_queue(kEntryCount);
    }
    sender_.go_on();
    const Stop stop = sender_.wait_for_trap(hang_ns_);
    receiver_.let_go();
    if (stop != Stop::kTrapped) {
      note(outcome, StepFault::kDied, "when it went on");
      return false;
    }
  }
  sender_.go_on();
  if (wait_for_answer()) return true;
  note(outcome, StepFault::kDied, "after it went on");
  return false;
}

void StepGroup::go_on(const StepCase& which, StepOutcome* outcome) {
  if (!finish_call(which, outcome)) return;
  check_answer(which, false, outcome);
  let_others_send(1, StepFault::kStuck, outcome);
  if (is_good_) check_follower(outcome);
}

// Checks the call's status against its effect.
void StepGroup::check_answer(const StepCase& which, bool is_dead, StepOutcome* outcome) {
  const SendStatus status = control().status;
  const bool was_sent = status == SendStatus::kDone || status == SendStatus::kPending;
  if (!was_sent && status != SendStatus::kAgain && !(is_dead && status == SendStatus::kGone)) {
    return note(outcome, StepFault::kRefused, "the call says %s", bedplate::to_text(status));
  }
  if (status == SendStatus::kPending) ++ended_;
  if (was_sent && which.deed == Deed::kAdd) ++adds_;
  if (was_sent && is_message(which.deed)) check_message(is_dead, outcome);
  if (status == SendStatus::kAgain && receiver_.last_attempt() == attempt_) {
    note(outcome, StepFault::kSpoilt, "it says again, and its message came");
  }
  if (others_.wait_until([&] { return control().ended.load() == ended_ || sender_.has_ended(); },
                         hang_ns_) == UINT64_MAX) {
    note(outcome, StepFault::kNeverEnds, "what it began");
    ended_ = control().ended.load();
  } else if (!is_dead && control().not_done.load() != 0) {
    note(outcome, StepFault::kNeverEnds, "with kDone");
    control().not_done.store(0);
  }
  if (!is_dead && receiver_.word(0) != adds_) {
    note(outcome, StepFault::kSpoilt, "%" PRIu64 " additions were done of %" PRIu64,
         receiver_.word(0), adds_);
    adds_ = receiver_.word(0);
  }
}

// A sender that was declared dead learns it when it polls, not in its call: its message may be
// lost.
void StepGroup::check_message(bool is_dead, StepOutcome* outcome) {
  const auto has_come = [this] { return receiver_.last_attempt() == attempt_; };
  if (is_dead) {
    receiver_.let_look();
    outcome->is_unsaid = !has_come();
  } else if (others_.wait_until(has_come, hang_ns_) == UINT64_MAX) {
    note(outcome, StepFault::kLost, "it says %s, and its message never came",
         bedplate::to_text(control().status));
  }
}

// Checks that the next send returns kGone. Requires: the sender was declared dead, and has polled
// since.
void StepGroup::check_told(StepOutcome* outcome) {
  give_order({Deed::kShort, false});
  if (!wait_for_answer()) return note(outcome, StepFault::kDied, "after it was dead by name");
  if (const SendStatus status = control().status; status != SendStatus::kGone) {
    note(outcome, StepFault::kRefused, "dead to all others, its next send says %s",
         bedplate::to_text(status));
  }
}

// Checks that the sender's next message arrives, after this one.
void StepGroup::check_follower(StepOutcome* outcome) {
  const bool was_sent = perform(Deed::kShort);
  const uint64_t attempt = attempt_;
  if (!was_sent || others_.wait_until([&] { return receiver_.last_attempt() == attempt; },
                                      hang_ns_) == UINT64_MAX) {
    note(outcome, StepFault::kLost, "what it sent next %s",
         was_sent ? "did not come" : "was not accepted");
    is_good_ = false;
  }
  if (const char* text = receiver_.take_fault(); text[0] != '\0') {
    note(outcome, StepFault::kSpoilt, "%s", text);
  }
}

void StepGroup::kill(StepOutcome* outcome) {
  const uint32_t member = member_;
  retire_sender();
  let_others_send(lap_messages(), StepFault::kStuck, outcome);
  if (others_.wait_until([&] { return group_.members().state(member) == MemberState::kFree; },
                         hang_ns_) == UINT64_MAX) {
    note(outcome, StepFault::kNotFreed, "member %u is %s", member,
         bedplate::to_text(group_.members().state(member)));
    is_good_ = false;
  }
}

// Closes the connection of the stopped sender. All others then see the sender as dead; the sender
// itself does not know.
void StepGroup::hang_up(const StepCase& which, StepOutcome* outcome) {
  const int connection = sender_.descriptor(control().connection.load());
  if (connection < 0 || shutdown(connection, SHUT_RDWR) != 0) fail("it cannot be hung up");
  close(connection);
  const uint32_t member = member_;
  if (others_.wait_until([&] { return group_.members().state(member) == MemberState::kDead; },
                         kStartNs) == UINT64_MAX) {
    fail("a connection was closed, and nobody is dead");
  }
  let_others_send(lap_messages(), StepFault::kStuck, outcome);
  if (!finish_call(which, outcome)) return;
  check_answer(which, true, outcome);
  check_told(outcome);
  let_others_send(lap_messages(), StepFault::kStuck, outcome);
  kill(outcome);
}

}  // namespace bedplate::strain
