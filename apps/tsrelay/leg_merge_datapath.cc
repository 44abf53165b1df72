#include "apps/tsrelay/leg_merge_datapath.h"

#include <algorithm>
#include <bit>

#include "platform/assert.h"

namespace bedplate::relay {
namespace {

constexpr uint64_t kSequences = 65536;

}  // namespace

uint64_t LegMerge::slot_count(uint32_t window_packets) noexcept {
  return std::bit_ceil(uint64_t{window_packets}) * 2;
}

void LegMerge::create(const MergeOptions& options, std::span<Slot> slots) noexcept {
  BP_ASSERT(options_.sink == nullptr && options.sink != nullptr);
  BP_ASSERT(options.window_packets >= 1 && options.window_packets <= kWindowMax);
  BP_ASSERT(slots.size() == slot_count(options.window_packets));
  options_ = options;
  slots_ = slots;
}

bool LegMerge::is_valid() const noexcept {
  uint32_t held = 0;
  uint64_t due_ns = kNever;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (!slot.is_held) continue;
    ++held;
    if ((slot.number & (slots_.size() - 1)) != i) return false;
    if (slot.number <= next_ || slot.number >= next_ + options_.window_packets) return false;
    due_ns = std::min(due_ns, slot.since_ns + options_.window_ns);
  }
  for (const Leg& leg : legs_) {
    if (leg.has_begun && (leg.received == 0 || leg.first > leg.highest)) return false;
  }
  return held == held_count_ && deadline_ns_ == due_ns;
}

LegReport LegMerge::leg_report(uint32_t leg) const noexcept {
  BP_ASSERT(leg < kLegsMax);
  const Leg& its = legs_[leg];
  uint64_t lost = its.lost_before;
  if (its.has_begun) {
    const uint64_t expected = its.highest - its.first + 1;
    lost += expected - std::min(expected, its.received);
  }
  return {lost, its.reordered};
}

void LegMerge::begin(uint16_t sequence) noexcept {
  has_begun_ = true;
  // Higher than all before, so that no slot's old number equals a new number.
  next_ = (next_ / kSequences + 2) * kSequences + sequence;
  for (uint32_t i = 0; i < kLegsMax; ++i) {
    legs_[i].lost_before = leg_report(i).lost;
    legs_[i].has_begun = false;
  }
}

void LegMerge::count(uint32_t leg, uint64_t number) noexcept {
  if (leg >= kLegsMax) return;
  Leg& its = legs_[leg];
  if (!its.has_begun) {
    its.has_begun = true;
    its.first = its.highest = number;
    its.received = 0;
  }
  ++its.received;
  if (number < its.highest) ++its.reordered;
  its.first = std::min(its.first, number);
  its.highest = std::max(its.highest, number);
}

void LegMerge::end_probation(Leg& leg) noexcept {
  if (!leg.is_on_probation) return;
  leg.is_on_probation = false;
  options_.sink->drop(leg.probation.item, MergeDrop::kOutside);
}

MergeVerdict LegMerge::drop(uint32_t item, MergeDrop cause) noexcept {
  options_.sink->drop(item, cause);
  constexpr MergeVerdict kVerdicts[] = {MergeVerdict::kDuplicate, MergeVerdict::kLate,
                                        MergeVerdict::kOutside};
  return kVerdicts[static_cast<size_t>(cause)];
}

// Holds the packet until its successor confirms its number. A successor restarts the numbering.
MergeVerdict LegMerge::put_on_probation(const MergePacket& packet) noexcept {
  if (packet.leg >= kLegsMax) return drop(packet.item, MergeDrop::kOutside);
  Leg& leg = legs_[packet.leg];
  const auto wanted = static_cast<uint16_t>(leg.probation.sequence + 1);
  if (!leg.is_on_probation || packet.sequence != wanted) {
    end_probation(leg);
    leg.is_on_probation = true;
    leg.probation = packet;
    return MergeVerdict::kOutside;
  }
  leg.is_on_probation = false;
  const MergePacket first = leg.probation;
  const auto old_next = static_cast<uint16_t>(next_);
  restart();
  old_next_ = old_next;
  old_until_ns_ = packet.now_ns + kOldNs;
  insert(first);
  return insert(packet);
}

MergeVerdict LegMerge::insert(const MergePacket& packet) noexcept {
  BP_DCHECK(packet.leg <= kRecovered);
  if (!has_begun_) begin(packet.sequence);
  const int64_t distance = sequence_distance(static_cast<uint16_t>(next_), packet.sequence);
  const auto slot_count = static_cast<int64_t>(slots_.size());
  if (distance >= slot_count || distance < -slot_count) {
    const int32_t old = sequence_distance(old_next_, packet.sequence);
    if (packet.now_ns < old_until_ns_ && old < slot_count && old >= -slot_count) {
      return drop(packet.item, MergeDrop::kLate);
    }
    return put_on_probation(packet);
  }
  const uint64_t number = next_ + static_cast<uint64_t>(distance);
  Slot& slot = slot_of(number);
  const bool is_known = slot.number == number;
  // The same number with another timestamp is not the same packet.
  if (is_known && slot.timestamp != packet.timestamp) return put_on_probation(packet);
  if (packet.leg < kLegsMax) end_probation(legs_[packet.leg]);
  count(packet.leg, number);
  if (is_known) return drop(packet.item, MergeDrop::kDuplicate);
  if (distance < 0) return drop(packet.item, MergeDrop::kLate);
  accept(packet, number);
  return MergeVerdict::kTaken;
}

void LegMerge::accept(const MergePacket& packet, uint64_t number) noexcept {
  BP_DCHECK(number >= next_);
  // The window moves: missing packets that fall out of it are given up.
  while (number >= next_ + options_.window_packets) {
    miss_next();
    if (slot_of(next_).is_held) deliver_ready();
  }
  Slot& slot = slot_of(number);
  BP_ASSERT(!slot.is_held && "another one would be lost, and its buffer with it");
  uint64_t since_ns = packet.now_ns;
  if (number < highest_) {
    uint64_t behind = number + 1;
    while (!slot_of(behind).is_held) ++behind;
    since_ns = std::min(since_ns, slot_of(behind).since_ns);
  }
  highest_ = std::max(highest_, number);
  slot = {number, since_ns, packet.item, packet.timestamp, true};
  ++held_count_;
  span_peak_ = std::max(span_peak_, number - next_ + 1);
  deliver_ready();
  BP_DCHECK_SLOW(is_valid());
}

void LegMerge::miss_next() noexcept {
  BP_DCHECK(!slot_of(next_).is_held);
  ++next_;
  ++missing_count_;
  ++lost_count_;
}

// Gives up all missing packets before the first packet held. Requires: a packet is held.
void LegMerge::give_up() noexcept {
  BP_ASSERT(held_count_ > 0);
  while (!slot_of(next_).is_held) miss_next();
  deliver_ready();
}

void LegMerge::deliver_ready() noexcept {
  for (Slot* slot = &slot_of(next_); slot->is_held; slot = &slot_of(next_)) {
    BP_DCHECK(slot->number == next_ && held_count_ > 0);
    slot->is_held = false;
    --held_count_;
    ++next_;
    const uint32_t missing = missing_count_;
    missing_count_ = 0;
    options_.sink->deliver(slot->item, missing);
  }
  deadline_ns_ = kNever;
  if (held_count_ == 0) return;
  uint64_t number = next_;
  while (!slot_of(number).is_held) ++number;
  deadline_ns_ = slot_of(number).since_ns + options_.window_ns;
}

void LegMerge::expire(uint64_t now_ns) noexcept {
  while (now_ns >= deadline_ns_) give_up();
  BP_DCHECK_SLOW(is_valid());
}

void LegMerge::flush() noexcept {
  while (held_count_ > 0) give_up();
}

void LegMerge::restart() noexcept {
  for (Leg& leg : legs_) end_probation(leg);
  if (!has_begun_) return;
  flush();
  has_begun_ = false;
  missing_count_ = 0;
  BP_DCHECK_SLOW(is_valid());
  options_.sink->restarted();
}

}  // namespace bedplate::relay
