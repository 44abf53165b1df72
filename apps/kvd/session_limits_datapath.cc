// The wait of a session for the limit of its listener (transport/loop/request_limit_datapath.h).
//
//     a step, before a command or a key of a get:
//       its turn has come, or try_pass() lets it go:   charge() the bytes of the value; go on
//       else:                                          take nothing; the session waits
//     turn_came():   resume(): the same step runs again, and has the turn
//     left():        out of the queue
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
  if (!take_turn(limit->reads())) return false;
  limit->reads().charge(value_bytes_of(cache_, key));
  return true;
}

// The same for the current command, which is no get.
bool Session::may_execute() noexcept {
  RequestLimit* const limit = limit_of(peer());
  if (limit == nullptr) return true;
  const Form& form = *request_.form;
  RateLimit& rate = form.is_change() ? limit->writes() : limit->reads();
  if (!take_turn(rate)) return false;
  if (form.has_value()) rate.charge(request_.value_bytes);
  if (form.meta == meta_get && request_.meta.has('v')) {
    rate.charge(value_bytes_of(cache_, request_.key));
  }
  return true;
}

bool Session::take_turn(RateLimit& rate) noexcept {
  BP_DCHECK(waits_for_ == nullptr);
  if (std::exchange(has_turn_, false) || rate.try_pass(*this, 0)) return true;
  waits_for_ = &rate;
  return false;
}

void Session::turn_came(void* loop, RateWaiter& waiter) noexcept {
  auto& session = static_cast<Session&>(waiter);
  BP_DCHECK(session.waits_for_ != nullptr);
  session.waits_for_ = nullptr;
  session.has_turn_ = true;
  session.resume(static_cast<const EventLoop*>(loop)->now_ns());
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

// The bytes were not known when the request went: another shard has the value.
void SessionAnswers::charge_read(uint64_t bytes) noexcept {
  if (BP_LIKELY(!environment_.is_limited)) return;
  RequestLimit* const limit = limit_of(peer());
  if (limit != nullptr) limit->reads().charge(bytes);
}

}  // namespace bedplate::kvd
