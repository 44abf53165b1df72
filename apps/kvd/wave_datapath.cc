#include "apps/kvd/wave_datapath.h"

#include <algorithm>
#include <bit>

namespace bedplate::kvd {

Wave::Wave(Crossing& crossing, std::span<Part> parts) noexcept
    : crossing_(crossing), parts_(parts), turn_(crossing) {
  for (Part& each : parts_) each.wave = this;
}

bool Wave::is_valid() const noexcept {
  if (is_idle()) return out_count_ == 0 && lent_count_ == 0;
  if (count_ > kOperationsMax || next_ > count_ || lent_count_ > next_) return false;
  if (part_count_ == 0 || part_count_ > parts_.size() || out_count_ > part_count_) return false;
  const bool is_away = is_out() || state_ == State::kReturning;
  if (is_away != (out_count_ > 0)) return false;
  uint32_t listed = 0;
  for (const Part& each : parts_.first(part_count_)) listed |= each.operations;
  uint32_t crossing = 0;
  for (uint32_t i = 0; i < count_; ++i) crossing |= uint32_t{crossed(operations_[i])} << i;
  return listed == crossing;
}

// ---- Going --------------------------------------------------------------------------------------

void Wave::open() noexcept {
  BP_DCHECK(is_idle() && out_count_ == 0 && lent_count_ == 0);
  state_ = State::kOpen;
  count_ = next_ = part_count_ = 0;
}

// The part of this owner, perhaps a new one.
Wave::Part& Wave::part_of(uint32_t owner) noexcept {
  for (Part& each : parts_.first(part_count_)) {
    if (each.number == owner) return each;
  }
  BP_ASSERT(part_count_ < parts_.size() && owner < crossing_.shards.size());
  Part& part = parts_[part_count_++];
  part.owner = crossing_.shards[owner];
  part.number = owner;
  part.operations = part.pinned = 0;
  return part;
}

Operation& Wave::add(uint32_t owner) noexcept {
  if (is_idle()) open();
  BP_DCHECK(is_open() && count_ < kOperationsMax);
  BP_DCHECK(count_ > 0 || owner != crossing_.own);
  Operation& made = operations_[count_];
  made = {};
  made.owner = static_cast<uint16_t>(owner);
  if (owner != crossing_.own) part_of(owner).operations |= uint32_t{1} << count_;
  ++count_;
  return made;
}

Operation& Wave::add_for_all() noexcept {
  BP_DCHECK(is_idle());
  open();
  Operation& made = operations_[count_++];
  made = {};
  made.owner = kAllOthers;
  for (uint32_t i = 0; i < crossing_.shards.size(); ++i) {
    if (i != crossing_.own) part_of(i).operations = 1;
  }
  return made;
}

void Wave::ask(Part& part, void (*asked)(ShardQuestion& self) noexcept) noexcept {
  part.asked = asked;
  crossing_.asker->ask(*part.owner->loop, part, &Wave::took_back);
}

void Wave::send() noexcept {
  BP_DCHECK(is_open() && part_count_ > 0);
  state_ = State::kOut;
  constexpr uint32_t kLineBytes = kCacheLineBytes;
  copy_bytes_ = std::min(kCopyMax, kTextBytes / count_ / kLineBytes * kLineBytes);
  out_count_ = part_count_;
  Counters& counters = *crossing_.here().counters;
  counters.crossings.add(part_count_);
  for (Part& each : parts_.first(part_count_)) {
    counters.crossed.add(static_cast<uint64_t>(std::popcount(each.operations)));
    ask(each, &Wave::execute_part);
  }
}

// On the owner's shard.
void Wave::execute_part(ShardQuestion& self) noexcept {
  auto& part = static_cast<Part&>(self);
  const Environment& owner = *part.owner;
  owner.cache->set_time(owner.loop->now_ns());
  for (uint32_t left = part.operations; left != 0; left &= left - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(left));
    execute(owner, part.wave->operations_[index], part.wave->copy_of(index));
  }
  part.answer();
}

// ---- Coming back --------------------------------------------------------------------------------

void Wave::took_back(ShardQuestion& self) noexcept {
  Wave& wave = *static_cast<Part&>(self).wave;
  BP_ASSERT(wave.out_count_ > 0);
  if (--wave.out_count_ > 0) return;
  BP_DCHECK(wave.is_out() || wave.state_ == State::kReturning);
  wave.state_ = wave.is_out() ? State::kBack : State::kIdle;
  wave.changed_(wave.context_);
}

void Wave::answered(bool is_lent) noexcept {
  Operation& operation = next();
  BP_DCHECK(!is_lent || (operation.item != nullptr && crossed(operation)));
  ++next_;
  if (is_lent) {
    ++lent_count_;
  } else if (operation.item != nullptr && crossed(operation)) {
    let_go(operation);
  }
  if (next_ < count_) return;
  state_ = State::kHeld;
  return_pins();
}

void Wave::sent(Operation& operation) noexcept {
  BP_ASSERT(lent_count_ > 0);
  --lent_count_;
  let_go(operation);
  return_pins();
}

void Wave::drop_answers() noexcept {
  BP_DCHECK(is_back());
  for (; next_ < count_; ++next_) {
    Operation& each = operations_[next_];
    if (each.item == nullptr) continue;
    crossed(each) ? let_go(each) : crossing_.here().cache->release(*each.item);
  }
  state_ = State::kHeld;
  return_pins();
}

void Wave::give_back(CacheItem& item, uint32_t owner) noexcept {
  Operation& operation = add(owner);
  operation.work = Work::kDrop;
  operation.item = &item;
  let_go(operation);
  next_ = count_;
  state_ = State::kHeld;
  return_pins();
}

void Wave::let_go(Operation& operation) noexcept {
  part_of(operation.owner).pinned |= uint32_t{1} << index_of(operation);
}

// Asks the owners to unpin their items, once no text of them is needed any more.
void Wave::return_pins() noexcept {
  if (state_ != State::kHeld || lent_count_ > 0) return;
  const std::span<Part> parts = parts_.first(part_count_);
  out_count_ = static_cast<uint32_t>(
      std::count_if(parts.begin(), parts.end(), [](const Part& each) { return each.pinned != 0; }));
  state_ = out_count_ > 0 ? State::kReturning : State::kIdle;
  for (Part& each : parts) {
    if (each.pinned != 0) ask(each, &Wave::unpin_part);
  }
}

// On the owner's shard.
void Wave::unpin_part(ShardQuestion& self) noexcept {
  auto& part = static_cast<Part&>(self);
  for (uint32_t left = part.pinned; left != 0; left &= left - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(left));
    part.owner->cache->release(*part.wave->operations_[index].item);
  }
  part.answer();
}

}  // namespace bedplate::kvd
