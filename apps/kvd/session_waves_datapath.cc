// Commands of a session for keys of other shards (wave_datapath.h).
//
//     a step takes a command as ever, and looks whose its key is:
//       this shard's, no wave is open    it is executed and answered at once, as on one shard
//       a wave is open                   the command joins it; one for a key of this shard is
//                                        executed at once, too, and answered in its turn
//       another shard's                  opens a wave; or the session waits until the last one is
//                                        idle, as its items may still be on their way to the client
//     no command is left, or the wave is full:   send(); the session waits
//     came_back():   the wave is back: each of the next steps answers one operation, in order
//
// Commands for one key are of one owner, and keep their order there. Commands for two keys may be
// executed in another order than the client sent them: nobody can tell, since it has no answer yet.
//
// A command goes alone if its answer says what others may change, or if it takes the session's own
// memory: flush_all, stats, a meta command, a value that is received in place. So do those that end
// the session. The wave before it is answered first: the command is read again then.
//
// A long value for another shard: a wave brings an item from there (kMake), the socket receives
// into it, another wave stores it (kFinish). If the client leaves meanwhile, the item goes back.
#include <utility>

#include "apps/kvd/session_datapath.h"
#include "platform/assert.h"

namespace bedplate::kvd {
namespace {

Work work_of(Verb verb) noexcept {
  switch (verb) {
    case Verb::kStore: return Work::kStore;
    case Verb::kCount: return Work::kCount;
    case Verb::kTouch: return Work::kTouch;
    case Verb::kDelete: return Work::kDelete;
    default: break;
  }
  BP_DCHECK(false);  // it has no key, or goes alone
  return Work::kSay;
}

// Whether a command, which is no get, does not join others.
bool goes_alone(const Request& request) noexcept {
  const Verb verb = request.form->verb;
  if (verb == Verb::kStore) {
    return request.reply == Reply::kMeta || request.value_bytes > Session::kDirectBytes;
  }
  return verb != Verb::kCount && verb != Verb::kTouch && verb != Verb::kDelete;
}

}  // namespace

// ---- Waiting ------------------------------------------------------------------------------------

// A step of a session with a wave.
StreamStep Session::step_with_wave() noexcept {
  if (wave_->is_back()) {
    Operation& operation = wave_->next();
    if (operation.work == Work::kMake) {
      item_owner_ = operation.owner;
      begin_receiving({operation.outcome, std::exchange(operation.item, nullptr)});
      if (item_ == nullptr) item_owner_ = kOwn;
      wave_->answered(false);
    } else {
      wave_->answered(answer_operation(operation));
    }
    if (!wave_->is_back()) keep_arrived(false);
    return StreamStep::kTaken;
  }
  if (item_ != nullptr && item_owner_ != kOwn) return store_elsewhere();
  const StreamStep outcome = step();
  if (!wave_->is_open()) return outcome;
  BP_DCHECK(outcome != StreamStep::kWaits);
  return outcome == StreamStep::kStarved || wave_->is_full() ? send_wave() : outcome;
}

StreamStep Session::send_wave() noexcept {
  wave_->send();
  return wait_for_wave();
}

StreamStep Session::wait_for_wave() noexcept {
  waits_for_wave_ = true;
  return StreamStep::kWaits;
}

// The command may not go yet, and waits in the queue of a limit, or for the shard that has it. A
// wave does not wait for that: the command queues again when the wave is answered.
StreamStep Session::wait_for_turn() noexcept {
  if (!has_open_wave()) return StreamStep::kWaits;
  (void)leave_queue();
  return send_wave();
}

// Something has come back from another shard: the wave, which is back or idle again, the turn that
// the session waits for, or a note of its bytes.
void Session::came_back() noexcept {
  if (has_left()) {
    if (wave_->is_back()) wave_->drop_answers();
    if (!is_settling_ || wave_->is_out() || !wave_->turn().is_idle()) return;
    is_settling_ = false;
  } else {
    const bool has_wave = waits_for_wave_ && (wave_->is_back() || wave_->is_idle());
    const bool has_turn = waits_for_far_turn_ && !wave_->turn().is_awaited();
    if (!has_wave && !has_turn) return;
    waits_for_wave_ = waits_for_far_turn_ = false;
    has_turn_ = has_turn_ || has_turn;
  }
  resume(environment_.loop->now_ns());
}

// The client has left. The session can have another one once no wave is out, as its owners may read
// the input, and nothing is on its way to the limit of the listener.
void Session::leave_shards() noexcept {
  const bool waited = waits_for_wave_ || waits_for_far_turn_;
  waits_for_wave_ = waits_for_far_turn_ = false;
  if (wave_->is_back()) wave_->drop_answers();
  wave_->turn().give_up();
  is_settling_ = wave_->is_out() || !wave_->turn().is_idle();
  if (is_settling_ && !waited) wait();
  if (!is_settling_ && waited) resume(cache_.now_ns());
}

// ---- Going --------------------------------------------------------------------------------------

// The way of a command for a key of shard number `owner`.
Session::Way Session::way_of(uint32_t owner) const noexcept {
  if (wave_ == nullptr) return Way::kHere;
  if (wave_->is_open()) return Way::kJoins;
  if (owner == environment_.crossing->own) return Way::kHere;
  return wave_->is_idle() ? Way::kJoins : Way::kWaits;
}

// The end of answer_key(), if the key may have to wait or to cross. `rest_bytes`: of the keys
// behind it.
StreamStep Session::answer_key_with_care(std::string_view key, uint64_t rest_bytes) noexcept {
  if (!key.empty()) {
    const uint32_t owner = wave_ == nullptr ? kOwn : environment_.crossing->owner_of(key);
    const Way way = way_of(owner);
    if (way == Way::kWaits) return wait_for_wave();
    if (environment_.has_limits() && !may_answer(key)) return wait_for_turn();
    way == Way::kHere ? answer_here(key) : join_key(key, owner);
  }
  take(keys_bytes_ - rest_bytes);
  keys_bytes_ = rest_bytes;
  if (keys_bytes_ == 0 && keys_end_bytes_ > 0) end_get(has_open_wave());
  return StreamStep::kTaken;
}

// Takes the line of the current command, which is no get, and its value, if that is there; executes
// it, or lets it cross, unless it has to wait.
StreamStep Session::execute_with_care(uint64_t line_bytes) noexcept {
  uint32_t owner = kOwn;
  Way way = Way::kHere;
  const bool is_alone = goes_alone(request_);
  if (wave_ != nullptr) {
    const Verb verb = request_.form->verb;
    const bool has_key = !is_alone || verb == Verb::kStore || verb == Verb::kMeta;
    owner = has_key ? environment_.crossing->owner_of(request_.key) : environment_.crossing->own;
    if (is_alone && wave_->is_open()) return send_wave();
    way = way_of(owner);
    if (verb == Verb::kFlush) way = wave_->is_idle() ? Way::kJoins : Way::kWaits;
    if (way == Way::kWaits) return wait_for_wave();
  }
  if (environment_.has_limits() && !may_execute()) return wait_for_turn();
  take(line_bytes);
  if (way == Way::kHere) {
    execute_here();
    return StreamStep::kTaken;
  }
  if (request_.form->has_value() && is_bad_data()) {
    take(request_.value_bytes + kLineEnd.size());
    refuse(kBadData);
    return StreamStep::kTaken;
  }
  if (!is_alone) {
    join_command(owner);
    return StreamStep::kTaken;
  }
  join_alone(owner);
  return send_wave();
}

// ---- Joining ------------------------------------------------------------------------------------

// A new operation of the wave, with what most commands have.
Operation& Session::join(Work work, uint32_t owner) noexcept {
  keep_arrived(true);
  Operation& operation = wave_->add(owner);
  operation.work = work;
  operation.is_quiet = request_.is_quiet();
  operation.key = request_.key;
  operation.number = request_.number;
  operation.expiry_s = request_.expiry_s;
  return operation;
}

void Session::join_key(std::string_view key, uint32_t owner) noexcept {
  Operation& operation = join(Work::kGet, owner);
  operation.get = request_.form->get;
  operation.key = key;
  if (!wave_->crossed(operation)) execute(environment_, operation, {});
}

// A command with a key, without or with a short value, whose line is taken.
void Session::join_command(uint32_t owner) noexcept {
  Operation& operation = join(work_of(request_.form->verb), owner);
  operation.is_incr = request_.is_incr();
  if (operation.work == Work::kStore) {
    operation.value = arrived().substr(0, request_.value_bytes);
    operation.value_bytes = request_.value_bytes;
    operation.flags = request_.flags;
    operation.terms = request_.terms;
    take(request_.value_bytes + kLineEnd.size());
  }
  if (!wave_->crossed(operation)) execute(environment_, operation, {});
}

// A command that crosses in a wave of its own. Its line is taken.
void Session::join_alone(uint32_t owner) noexcept {
  const Form& form = *request_.form;
  if (form.verb == Verb::kFlush) {
    environment_.counters->flushes.add(1);
    items_.flush(request_.expiry_s);
    Operation& operation = wave_->add_for_all();
    operation.work = Work::kFlush;
    operation.is_quiet = request_.is_quiet();
    operation.expiry_s = request_.expiry_s;
    return;
  }
  Operation& operation = join(form.has_value() ? Work::kStore : Work::kMeta, owner);
  operation.meta = form.meta;
  if (request_.reply == Reply::kMeta || form.meta != nullptr) operation.request = &request_.meta;
  if (!form.has_value()) return;
  operation.value_bytes = request_.value_bytes;
  operation.flags = request_.flags;
  operation.terms = request_.terms;
  if (request_.value_bytes > kDirectBytes) {
    operation.work = Work::kMake;
    return;
  }
  operation.value = arrived().substr(0, request_.value_bytes);
  take(request_.value_bytes + kLineEnd.size());
}

// An answer that waits for its turn behind the operations of the wave. `text`: static.
void Session::join_text(std::string_view text, bool ends_get) noexcept {
  if (request_.is_quiet() && !ends_get) return;
  Operation& operation = wave_->add(environment_.crossing->own);
  operation.text = text;
  operation.ends_get = ends_get;
}

// The value of an item of another shard has come.
StreamStep Session::store_elsewhere() noexcept {
  CacheItem& item = *std::exchange(item_, nullptr);
  const uint32_t owner = std::exchange(item_owner_, kOwn);
  if (!item.text().ends_with(kLineEnd)) {
    wave_->give_back(item, owner);
    answer(kBadData);
    answered(environment_.counters->set_ns, kKindSet);
    return StreamStep::kTaken;
  }
  Operation& operation = wave_->add(owner);
  operation.work = Work::kFinish;
  operation.is_quiet = request_.is_quiet();
  operation.item = &item;
  operation.value_bytes = request_.value_bytes;
  operation.terms = request_.terms;
  if (request_.reply == Reply::kMeta) operation.request = &request_.meta;
  return send_wave();
}

}  // namespace bedplate::kvd
