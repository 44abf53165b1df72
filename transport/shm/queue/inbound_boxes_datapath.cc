#include <algorithm>

#include "transport/shm/queue/inbound_boxes.h"

namespace bedplate {
namespace {

// A box is idle if this member has received kIdleThresholds * send_threshold messages since the
// last message through that box. A pair gets a box after send_threshold messages.
constexpr uint64_t kIdleThresholds = 64;

}  // namespace

void InboundBoxes::create(const GroupView& group, ShmDispatch& dispatch,
                          const EndpointTable& endpoints, ShmCounters& counters) {
  BP_ASSERT(group_ == nullptr);
  group_ = &group;
  dispatch_ = &dispatch;
  endpoints_ = &endpoints;
  counters_ = &counters;
  boxes_.resize(group.shape().box_count_max);
}

void InboundBoxes::grant(ShmEndpoint& to) noexcept {
  BP_DCHECK_SLOW(is_valid());
  IncomingPeer& incoming = to.incoming();
  incoming.heard_count = 0;          // a failed grant is tried again after send_threshold messages
  if (incoming.has_our_box) return;  // the sender has not begun to use it yet
  const uint32_t limit = group_->shape().box_count_max;
  const uint32_t box = count_ < limit ? take_free_box(to.peer()) : OutgoingPath::kNoBox;
  if (box == OutgoingPath::kNoBox) return ask_for_idle_box();
  group_->segment().box(box).clear();
  if (!to.path().is_open() || !to.path().post_control(ShmControl::kBoxGranted, &box, sizeof box)) {
    return set_free(box);
  }
  boxes_[count_++] =
      BoxReceiver(group_->segment().box(box), box, to.peer(), dispatch_->received_count());
  incoming.has_our_box = true;
  counters_->boxes_granted.add(1);
  BP_DCHECK_SLOW(is_valid());
}

uint32_t InboundBoxes::take_free_box(uint32_t sender) noexcept {
  const uint32_t count = group_->shape().box_count;
  const uint32_t self = group_->self();
  for (uint32_t i = 0; i < count; ++i) {
    // Each receiver starts at another box, so that they do not all try the same.
    const uint32_t box =
        static_cast<uint32_t>((uint64_t{self} * count / group_->member_count() + i) % count);
    uint64_t nobody = 0;
    if (group_->segment().box_owner(box).compare_exchange_strong(
            nobody, pack_box_owner(self, sender), std::memory_order_acq_rel)) {
      return box;
    }
  }
  return OutgoingPath::kNoBox;
}

void InboundBoxes::ask_for_idle_box() noexcept {
  BoxReceiver* idle = nullptr;
  for (uint32_t i = 0; i < count_; ++i) {
    BoxReceiver& box = boxes_[i];
    if (box.is_wanted_back()) return;  // ask for one at a time
    if (idle == nullptr || box.last_used() < idle->last_used()) idle = &box;
  }
  const uint64_t idle_after = kIdleThresholds * group_->shape().send_threshold;
  if (idle == nullptr || dispatch_->received_count() - idle->last_used() < idle_after) return;
  idle->acknowledge();  // shows the sender that the box is empty
  ShmEndpoint* sender = dispatch_->sender_of(idle->sender());
  if (sender == nullptr) return;
  const uint32_t box = idle->index();
  if (sender->path().is_open() &&
      sender->path().post_control(ShmControl::kBoxWanted, &box, sizeof box)) {
    idle->set_wanted_back();
  }
}

const char* InboundBoxes::hear(ShmEndpoint& from, ShmControl what, uint32_t box,
                               bool came_by_box) noexcept {
  BP_DCHECK(box < group_->shape().box_count);
  switch (what) {
    case ShmControl::kBoxGranted: return accept(from, box);
    case ShmControl::kBoxWanted: give_back(from, box); return nullptr;
    case ShmControl::kBoxClosed:
      // This message must come through the FIFO: close() must not remove a box during its poll().
      return came_by_box ? "the end of a box inside a box" : close(from, box);
    default: return "a control message of an unknown kind";
  }
}

// ---- The sender's side ----

const char* InboundBoxes::accept(ShmEndpoint& from, uint32_t box) noexcept {
  OutgoingPath& path = from.path();
  if (!path.is_open()) return nullptr;  // it has died since
  if (path.box_index() != OutgoingPath::kNoBox ||
      group_->segment().box_owner(box).load(std::memory_order_acquire) !=
          pack_box_owner(from.peer(), group_->self())) {
    return "a box that it cannot give";
  }
  path.use_box(box);
  return nullptr;
}

void InboundBoxes::give_back(ShmEndpoint& from, uint32_t box) noexcept {
  OutgoingPath& path = from.path();
  if (!path.is_open() || path.box_index() != box) return;
  path.return_box();
}

// ---- The receiver's side, again ----

const char* InboundBoxes::close(ShmEndpoint& from, uint32_t box) noexcept {
  for (uint32_t i = 0; i < count_; ++i) {
    if (boxes_[i].index() != box || boxes_[i].sender() != from.peer()) continue;
    counters_->boxes_returned.add(1);
    drop(i);
    set_free(box);
    return nullptr;
  }
  if (!from.path().is_open()) return nullptr;  // it has died: drain() has dropped the box
  return "a box that it never had";
}

void InboundBoxes::drain(uint32_t member) noexcept {
  for (uint32_t i = 0; i < count_; ++i) {
    if (boxes_[i].sender() != member) continue;
    boxes_[i].drain(*dispatch_);
    // If the dead member may still write to the box, the pair keeps the box until the member's
    // number is free.
    if (group_->segment().writes_no_more(member)) set_free(boxes_[i].index());
    drop(i--);
  }
}

void InboundBoxes::drop(uint32_t index) noexcept {
  BP_ASSERT(index < count_);
  endpoints_->at(boxes_[index].sender())->incoming().has_our_box = false;
  boxes_[index] = boxes_[--count_];
  BP_DCHECK_SLOW(is_valid());
}

bool InboundBoxes::is_valid() const noexcept {
  if (count_ > group_->shape().box_count_max) return false;
  return std::all_of(boxes_.begin(), boxes_.begin() + count_, [&](const BoxReceiver& box) {
    return box.index() < group_->shape().box_count && endpoints_->at(box.sender()) != nullptr;
  });
}

}  // namespace bedplate
