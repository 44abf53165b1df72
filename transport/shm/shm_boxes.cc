// Which senders have a fast box. Receivers decide: they know who sends to them often, and they
// alone poll.
//
// A receiver takes a free box by compare-and-swap, and tells the sender through the sender's own
// inbound queue. A box goes back when its sender says so, in a message that comes after everything
// in the box; a receiver that needs the room asks the sender of one that has been idle.
#include <new>

#include "transport/shm/shm_provider.h"

namespace bedplate {
namespace {

// So many messages from others without one through a box, and it counts as idle: this many times
// the threshold that a pair must reach to get one.
constexpr uint64_t kIdleThresholds = 64;

SlotHeader control(ShmControl what, uint32_t sender) noexcept {
  return {SlotKind::kControl, static_cast<uint32_t>(what), sizeof(uint32_t), sender};
}

}  // namespace

void ShmProvider::grant_box(ShmEndpoint& to) noexcept {
  to.heard_ = 0;             // if it does not succeed now, it is tried again after as many messages
  if (to.gave_box_) return;  // it has not come to use it yet
  const uint32_t limit = segment_.shape().box_count_max;
  const uint32_t box = inbound_box_count_ < limit ? take_free_box(to.peer_) : ShmEndpoint::kNoBox;
  if (box == ShmEndpoint::kNoBox) return ask_for_idle_box();
  segment_.box(box).clear();
  const SpinGuard guard(to.lock_, is_threaded_);
  if (!to.is_open_ || !to.post(control(ShmControl::kBoxGranted, self_),
                               reinterpret_cast<const std::byte*>(&box), sizeof box)) {
    segment_.box_owner(box).store(0, std::memory_order_release);
    return;
  }
  inbound_boxes_[inbound_box_count_++] = {FastBoxConsumer(segment_.box(box)), box, to.peer_,
                                          received_};
  to.gave_box_ = true;
  counters_->boxes_granted.add(1);
}

uint32_t ShmProvider::take_free_box(uint32_t sender) noexcept {
  const uint32_t count = segment_.shape().box_count;
  for (uint32_t i = 0; i < count; ++i) {
    // Each receiver begins elsewhere, so that they do not all try the same.
    const uint32_t box = static_cast<uint32_t>(
        (uint64_t{self_} * count / segment_.shape().member_count + i) % count);
    uint64_t nobody = 0;
    if (segment_.box_owner(box).compare_exchange_strong(nobody, pack_box_owner(self_, sender),
                                                        std::memory_order_acq_rel)) {
      return box;
    }
  }
  return ShmEndpoint::kNoBox;
}

void ShmProvider::ask_for_idle_box() noexcept {
  InboundBox* idle = nullptr;
  for (uint32_t i = 0; i < inbound_box_count_; ++i) {
    InboundBox& box = inbound_boxes_[i];
    if (box.is_wanted_back) return;  // one at a time
    if (idle == nullptr || box.last_used < idle->last_used) idle = &box;
  }
  const uint64_t idle_after = kIdleThresholds * segment_.shape().send_threshold;
  if (idle == nullptr || received_ - idle->last_used < idle_after) return;
  idle->consumer.acknowledge();  // its sender can see that it is empty
  ShmEndpoint* sender = sender_of(idle->sender);
  if (sender == nullptr) return;
  const SpinGuard guard(sender->lock_, is_threaded_);
  idle->is_wanted_back =
      sender->is_open_ &&
      sender->post(control(ShmControl::kBoxWanted, self_),
                   reinterpret_cast<const std::byte*>(&idle->index), sizeof idle->index);
}

// ---- The sender's side ----

void ShmProvider::accept_box(ShmEndpoint& from, uint32_t box) noexcept {
  {
    const SpinGuard guard(from.lock_, is_threaded_);
    if (!from.is_open_) return;  // it has died since
    if (from.box_index_ == ShmEndpoint::kNoBox &&
        segment_.box_owner(box).load(std::memory_order_acquire) ==
            pack_box_owner(from.peer_, self_)) {
      return from.use_box(box);
    }
  }
  cut_off(from, "a box that it cannot give");
}

void ShmEndpoint::use_box(uint32_t box) noexcept {
  if (!box_) box_.reset(new (std::nothrow) FastBoxProducer());
  box_index_ = box;
  if (box_) {
    *box_ = FastBoxProducer(provider_.segment_.box(box));
    settle_queue();
  } else {
    return_box();  // there is no memory for its books; it is offered again after some messages
  }
}

void ShmEndpoint::return_box() noexcept {
  must_return_box_ = true;
  provider_.returning_count_.fetch_add(1, std::memory_order_relaxed);
  settle_queue();
}

void ShmProvider::give_box_back(ShmEndpoint& from, uint32_t box) noexcept {
  const SpinGuard guard(from.lock_, is_threaded_);
  if (!from.is_open_ || from.box_index_ != box || from.must_return_box_) return;
  from.return_box();
}

// Boxes are wanted back from senders that send nothing: poll does it for them.
void ShmProvider::return_boxes() noexcept {
  for (uint32_t peer = 0; peer < segment_.shape().member_count; ++peer) {
    ShmEndpoint* endpoint = endpoints_->at(peer);
    if (endpoint == nullptr) continue;
    const SpinGuard guard(endpoint->lock_, is_threaded_);
    if (endpoint->must_return_box_) endpoint->settle_queue();
  }
}

// ---- The receiver's side, again ----

void ShmProvider::close_box(ShmEndpoint& from, uint32_t box) noexcept {
  for (uint32_t i = 0; i < inbound_box_count_; ++i) {
    if (inbound_boxes_[i].index != box || inbound_boxes_[i].sender != from.peer_) continue;
    counters_->boxes_returned.add(1);
    drop_inbound_box(i);
    return segment_.box_owner(box).store(0, std::memory_order_release);
  }
  if (!from.is_open_) return;  // it has died: drain() has dropped the box
  cut_off(from, "a box that it never had");
}

void ShmProvider::drop_inbound_box(uint32_t place) noexcept {
  endpoints_->at(inbound_boxes_[place].sender)->gave_box_ = false;
  inbound_boxes_[place] = inbound_boxes_[--inbound_box_count_];
}

}  // namespace bedplate
