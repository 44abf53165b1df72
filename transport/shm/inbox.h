// What a member is written to through: one kind of queues for each kind of group. Each has the same
// functions (InboundQueues), and Inbox::with() is the one place that asks which it is.
//
// Once round is all that a dead member can have left. One that only said that it leaves may still
// be writing.
//
// Tested by tests/transport/shm/shm_provider_test.cc.
#pragma once

#include <concepts>
#include <cstdint>

#include "platform/assert.h"
#include "transport/shm/fifo_receiver_datapath.h"
#include "transport/shm/inbound_boxes.h"
#include "transport/shm/lane_receiver_datapath.h"
#include "transport/shm/membership_view.h"
#include "transport/shm/shm_dispatch.h"

namespace bedplate {

// All that an inbox stands on; all of it outlives that.
struct InboxParts {
  const ShmPlace& place;
  const MembershipView& view;
  const EndpointTable& endpoints;
  ShmDispatch& dispatch;
  ShmCounters& counters;
};

// Threads: the one that polls.
template <typename Queues>
concept InboundQueues = requires(Queues queues, const InboxParts& parts, uint32_t budget,
                                 uint32_t member) {
  queues.create(parts);  // allocates
  // Delivers what is there. Returns how many messages.
  { queues.poll(budget) }
  noexcept->std::same_as<uint32_t>;
  // Somebody new is in a place.
  { queues.welcome(member) }
  noexcept;
  // Delivers what a dead one has left beside the FIFO, before or after all of what is there.
  { queues.drain(member) }
  noexcept;
  // Remembers how far it is to be read for those who are dead by now; whether it was.
  { queues.mark_drain() }
  noexcept;
  { queues.is_drained() }
  noexcept->std::same_as<bool>;
  // No store of a member can come any more.
  { queues.forget_writer(member) }
  noexcept;
  { queues.box_count() }
  noexcept->std::same_as<uint32_t>;
};

// One FIFO that all write, and boxes for those that write often.
class LazyInbox {
 public:
  void create(const InboxParts& parts) {
    dispatch_ = &parts.dispatch;
    fifo_.create(parts.place, parts.view, parts.counters.abandoned);
    boxes_.create(parts.place, parts.dispatch, parts.endpoints, parts.counters);
  }
  InboundBoxes& boxes() noexcept { return boxes_; }

  uint32_t poll(uint32_t budget) noexcept {
    const uint32_t count = boxes_.poll(budget);
    return count + fifo_.poll(budget, [&](const SlotHeader& header, const MessageSlot& slot) {
      ShmEndpoint* from = dispatch_->sender_of(header.sender);
      // It stays there until there is memory for its sender.
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
  uint32_t box_count() const noexcept { return boxes_.count(); }

 private:
  ShmDispatch* dispatch_ = nullptr;
  FifoReceiver fifo_;
  InboundBoxes boxes_;
};

// A lane from each other member.
class MeshInbox {
 public:
  void create(const InboxParts& parts) noexcept {
    place_ = &parts.place;
    view_ = &parts.view;
    endpoints_ = &parts.endpoints;
    dispatch_ = &parts.dispatch;
  }

  uint32_t poll(uint32_t budget) noexcept {
    uint32_t count = 0;
    // The dead were read to the end when they died (drain); their lanes may be made as new any
    // time.
    for (uint32_t sender = 0; sender < place_->member_count(); ++sender) {
      if (view_->known_state(sender) == MemberState::kAlive && sender != place_->self()) {
        count += poll_lane(sender, budget);
      }
    }
    return count;
  }
  void welcome(uint32_t) noexcept {}
  void drain(uint32_t member) noexcept { poll_lane(member, place_->shape().entry_count); }
  void mark_drain() noexcept {}
  bool is_drained() const noexcept { return true; }
  void forget_writer(uint32_t) noexcept {}
  uint32_t box_count() const noexcept { return 0; }

 private:
  uint32_t poll_lane(uint32_t sender, uint32_t budget) noexcept {
    const LaneReceiver lane(place_->segment().lane(place_->self(), sender),
                            place_->eager_region_of(sender));
    const ShmEndpoint* known = endpoints_->at(sender);
    const bool is_known =
        known != nullptr && known->generation() == place_->members().generation(sender);
    if (!lane.has_more_than(is_known ? known->incoming().lane_tail : 0)) return 0;
    ShmEndpoint* from = dispatch_->sender_of(sender);
    return from != nullptr ? lane.poll(*dispatch_, *from, budget) : 0;
  }

  const ShmPlace* place_ = nullptr;
  const MembershipView* view_ = nullptr;
  const EndpointTable* endpoints_ = nullptr;
  ShmDispatch* dispatch_ = nullptr;
};

// The one box of the one peer.
class ExchangeInbox {
 public:
  void create(const InboxParts& parts) noexcept {
    place_ = &parts.place;
    dispatch_ = &parts.dispatch;
  }

  uint32_t poll(uint32_t budget) noexcept { return has_peer_ ? box_.poll(*dispatch_, budget) : 0; }
  void welcome(uint32_t member) noexcept {
    box_ = BoxReceiver(place_->segment().inbound_box(place_->self()), 0, member, 0);
    has_peer_ = true;
  }
  void drain(uint32_t) noexcept {
    if (has_peer_) box_.drain(*dispatch_);
    has_peer_ = false;
  }
  void mark_drain() noexcept {}
  bool is_drained() const noexcept { return true; }
  void forget_writer(uint32_t) noexcept {}
  uint32_t box_count() const noexcept { return has_peer_ ? 1 : 0; }

 private:
  const ShmPlace* place_ = nullptr;
  ShmDispatch* dispatch_ = nullptr;
  BoxReceiver box_;
  bool has_peer_ = false;
};

static_assert(InboundQueues<LazyInbox> && InboundQueues<MeshInbox> && InboundQueues<ExchangeInbox>);

// Threads: the one that polls.
class Inbox {
 private:
  // The one place that asks which kind it is.
  template <typename Body>
  [[gnu::always_inline]] decltype(auto) with(Body&& body) {
    switch (kind_) {
      case GroupKind::kMesh: return body(mesh_);
      case GroupKind::kExchange: return body(exchange_);
      case GroupKind::kLazy: break;
    }
    return body(lazy_);
  }

 public:
  // Allocates.
  void create(const InboxParts& parts) {
    kind_ = parts.place.shape().kind;
    with([&](auto& inbox) { inbox.create(parts); });
  }
  // nullptr: no boxes are given in groups of this kind.
  BoxKeeper* boxes(GroupKind kind) noexcept {
    return kind == GroupKind::kLazy ? &lazy_.boxes() : nullptr;
  }

  uint32_t poll(uint32_t budget) noexcept {
    return with([&](auto& inbox) noexcept { return inbox.poll(budget); });
  }
  void welcome(uint32_t member) noexcept {
    with([&](auto& inbox) noexcept { inbox.welcome(member); });
  }
  void drain(uint32_t member) noexcept {
    with([&](auto& inbox) noexcept { inbox.drain(member); });
  }
  void mark_drain() noexcept {
    with([](auto& inbox) noexcept { inbox.mark_drain(); });
  }
  bool is_drained() noexcept {
    return with([](auto& inbox) noexcept { return inbox.is_drained(); });
  }
  void forget_writer(uint32_t member) noexcept {
    with([&](auto& inbox) noexcept { inbox.forget_writer(member); });
  }
  uint32_t box_count() const noexcept { return lazy_.box_count() + exchange_.box_count(); }

 private:
  GroupKind kind_ = GroupKind::kLazy;
  LazyInbox lazy_;
  MeshInbox mesh_;
  ExchangeInbox exchange_;
};

}  // namespace bedplate
