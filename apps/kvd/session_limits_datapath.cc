// The wait of a session for the limit of its listener (transport/loop/request_limit_datapath.h).
//
//     a step, before a command or a key of a get:
//       its turn has come, or try_pass() lets it go:   charge() the bytes of the value; go on
//       else:                                          take nothing; the session waits
//     turn_came():   resume(): the same step runs again, and has the turn
//     left():        out of the queue
//
// The limits are on the first shard of kvd. Sessions of its other shards ask it for each turn
// (far_turn_datapath.h), and otherwise do the same; a command that crosses does so alone then.
//
// A session waits in one queue at a time, with its first request that may not go: its requests keep
// their order, and clients of a listener take turns. The bytes of a value are known when the
// request goes. They are charged then, perhaps on credit, and the requests behind it wait until
// they are paid: so a value that has changed during the wait counts as it is sent. The bytes of
// a value of another shard are charged when it has come from there.
//
// A command that may change items counts as a write, any other, and each key of a get, as a read. A
// refused line counts as nothing.
#include "apps/kvd/session_datapath.h"

#include <utility>

namespace bedplate::kvd {
namespace {

// The bytes of the present value of `key`; 0: there is none.
uint64_t value_bytes_of(KeyedCache& cache, std::string_view key) noexcept {
  CacheItem* const item = cache.peek(key);
  return item == nullptr ? 0 : value_of(*item).size();
}

// nullptr: its listener has none.
RequestLimit* limit_of(const StreamPeer* peer) noexcept {
  return peer == nullptr ? nullptr : static_cast<RequestLimit*>(peer->listener());
}

}  // namespace

// Whether a key of a get may be answered now; if not, the session waits. A value of another shard
// is not found here, and is charged later.
bool Session::may_answer(std::string_view key) noexcept {
  RequestLimit* const limit = limit_of(peer());
  if (limit == nullptr) return true;
  if (!take_turn(*limit, false)) return false;
  charge(*limit, false, value_bytes_of(cache_, key));
  return true;
}

// The same for the current command, which is no get.
bool Session::may_execute() noexcept {
  RequestLimit* const limit = limit_of(peer());
  if (limit == nullptr) return true;
  const Form& form = *request_.form;
  const bool is_write = form.is_change();
  if (!take_turn(*limit, is_write)) return false;
  if (form.has_value()) charge(*limit, is_write, request_.value_bytes);
  if (form.meta == meta_get && request_.meta.has('v')) {
    charge(*limit, is_write, value_bytes_of(cache_, request_.key));
  }
  return true;
}

bool Session::take_turn(RequestLimit& limit, bool is_write) noexcept {
  BP_DCHECK(waits_for_ == nullptr && !waits_for_far_turn_);
  if (std::exchange(has_turn_, false)) return true;
  if (is_far(limit)) {
    if (!limit.is_on()) return true;
    if (has_open_wave()) return false;  // it goes first
    wave_->turn().ask(limit, is_write);
    waits_for_far_turn_ = true;
    return false;
  }
  RateLimit& rate = is_write ? limit.writes() : limit.reads();
  if (rate.try_pass(*this, 0)) return true;
  waits_for_ = &rate;
  return false;
}

void Session::turn_came(void* loop, RateWaiter& waiter) noexcept {
  auto& its = static_cast<TurnWaiter&>(waiter);
  its.came(its, static_cast<const EventLoop*>(loop)->now_ns());
}

// Its place in the queue is another's. Returns false if it has none.
bool Session::leave_queue() noexcept {
  RateLimit* const rate = std::exchange(waits_for_, nullptr);
  if (rate == nullptr) return false;
  (void)rate->remove([this](const RateWaiter& each) { return &each == this; });
  return true;
}

// The client has left.
void Session::give_up_turn() noexcept {
  has_turn_ = false;
  if (leave_queue()) resume(cache_.now_ns());
}

bool SessionAnswers::is_far(const RequestLimit& limit) const noexcept {
  return wave_ != nullptr && &limit.loop() != environment_.loop;
}

void SessionAnswers::charge(RequestLimit& limit, bool is_write, uint64_t bytes) noexcept {
  if (bytes == 0) return;
  if (is_far(limit)) {
    if (limit.is_on()) wave_->turn().owe(limit, is_write, bytes);
    return;
  }
  (is_write ? limit.writes() : limit.reads()).charge(bytes);
}

// The bytes were not known when the request went: another shard has the value.
void SessionAnswers::charge_read(uint64_t bytes) noexcept {
  if (BP_LIKELY(!environment_.has_limits())) return;
  RequestLimit* const limit = limit_of(peer());
  if (limit != nullptr) charge(*limit, false, bytes);
}

}  // namespace bedplate::kvd
