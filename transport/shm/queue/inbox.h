// A member's inbox: the queues into which others write to it, one class for each kind of group. All
// have the same functions (InboundQueues), and only Inbox::with() asks for the kind.
#pragma once

#include <cstdint>

#include "platform/assert.h"
#include "transport/shm/queue/fifo_receiver_datapath.h"
#include "transport/shm/queue/inbound_boxes.h"
#include "transport/shm/queue/inbound_lanes.h"
#include "transport/shm/queue/inbound_queues.h"

namespace bedplate {

// One FIFO that all others write, and boxes for frequent senders.
class LazyInbox {
 public:
  void create(const InboxParts& parts) {
    dispatch_ = &parts.dispatch;
    fifo_.create(parts.group, parts.view, parts.counters.abandoned);
    boxes_.create(parts.group, parts.dispatch, parts.endpoints, parts.counters);
  }

  uint32_t poll(uint32_t budget) noexcept {
    const uint32_t count = boxes_.poll(budget);
    return count + fifo_.poll(budget, [&](const SlotHeader& header, const MessageSlot& slot) {
      ShmEndpoint* from = dispatch_->sender_of(header.sender);
      // The message stays in the FIFO until there is memory for its sender's endpoint.
      if (from == nullptr) return !dispatch_->lacks_memory();
      dispatch_->handle(*from, header, slot.payload, nullptr);
      boxes_.count_message(*from);
      return true;
    });
  }
  void welcome(uint32_t) noexcept {}
  void drain(uint32_t member) noexcept { boxes_.drain(member); }
  void mark_drain() noexcept { fifo_.mark_drain(); }
  bool is_drained() const noexcept { return fifo_.is_drained(); }
  void forget_writer(uint32_t member) noexcept { fifo_.forget_writer(member); }
  InboundBoxes* boxes() noexcept { return &boxes_; }
  uint32_t box_count() const noexcept { return boxes_.count(); }

 private:
  ShmDispatch* dispatch_ = nullptr;
  FifoReceiver fifo_;
  InboundBoxes boxes_;
};

// The one box, from the one peer.
//
// Invariant: the box that is read is the peer's. (is_valid)
class ExchangeInbox {
 public:
  void create(const InboxParts& parts) noexcept {
    group_ = &parts.group;
    dispatch_ = &parts.dispatch;
  }

  uint32_t poll(uint32_t budget) noexcept { return has_peer_ ? box_.poll(*dispatch_, budget) : 0; }
  void welcome(uint32_t member) noexcept {
    box_ = BoxReceiver(group_->segment().inbound_box(group_->self()), 0, member, 0);
    has_peer_ = true;
    BP_DCHECK_SLOW(is_valid());
  }
  void drain(uint32_t) noexcept {
    BP_DCHECK_SLOW(is_valid());
    if (has_peer_) box_.drain(*dispatch_);
    has_peer_ = false;
  }
  void mark_drain() noexcept {}
  bool is_drained() const noexcept { return true; }
  void forget_writer(uint32_t) noexcept {}
  InboundBoxes* boxes() noexcept { return nullptr; }
  uint32_t box_count() const noexcept { return has_peer_ ? 1 : 0; }

  bool is_valid() const noexcept { return !has_peer_ || group_->is_peer(box_.sender()); }

 private:
  const GroupView* group_ = nullptr;
  ShmDispatch* dispatch_ = nullptr;
  BoxReceiver box_;
  bool has_peer_ = false;
};

static_assert(InboundQueues<LazyInbox> && InboundQueues<InboundLanes> &&
              InboundQueues<ExchangeInbox>);

// Threads: the polling one.
class Inbox {
 private:
  // The only function that asks for the kind.
  template <typename Self, typename Body>
  [[gnu::always_inline]] static decltype(auto) with(Self& self, Body&& body) {
    switch (self.kind_) {
      case GroupKind::kMesh: return body(self.lanes_);
      case GroupKind::kExchange: return body(self.exchange_);
      case GroupKind::kLazy: break;
    }
    return body(self.lazy_);
  }

 public:
  // Allocates. It uses only `group` of the parts yet.
  void create(const InboxParts& parts) {
    kind_ = parts.group.shape().kind;
    with(*this, [&](auto& queues) { queues.create(parts); });
  }
  // Returns nullptr if groups of this kind have no boxes to give.
  InboundBoxes* boxes() noexcept {
    return with(*this, [](auto& queues) noexcept { return queues.boxes(); });
  }

  uint32_t poll(uint32_t budget) noexcept {
    return with(*this, [&](auto& queues) noexcept { return queues.poll(budget); });
  }
  void welcome(uint32_t member) noexcept {
    with(*this, [&](auto& queues) noexcept { queues.welcome(member); });
  }
  void drain(uint32_t member) noexcept {
    with(*this, [&](auto& queues) noexcept { queues.drain(member); });
  }
  void mark_drain() noexcept {
    with(*this, [](auto& queues) noexcept { queues.mark_drain(); });
  }
  bool is_drained() const noexcept {
    return with(*this, [](const auto& queues) noexcept { return queues.is_drained(); });
  }
  void forget_writer(uint32_t member) noexcept {
    with(*this, [&](auto& queues) noexcept { queues.forget_writer(member); });
  }
  uint32_t box_count() const noexcept {
    return with(*this, [](const auto& queues) noexcept { return queues.box_count(); });
  }

 private:
  GroupKind kind_ = GroupKind::kLazy;
  LazyInbox lazy_;
  InboundLanes lanes_;
  ExchangeInbox exchange_;
};

}  // namespace bedplate
