#include "pinned_pool/join/membership.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <ctime>
#include <new>

#include "platform/random_bytes.h"
#include "platform/units.h"

namespace bedplate {

Result<PoolId> make_pool_id() noexcept {
  PoolId id;
  BP_TRY(draw_bytes(std::as_writable_bytes(std::span(&id.random, 1))));
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  id.born_ns =
      static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
  return id;
}

const char* to_text(MemberState state) noexcept {
  switch (state) {
    case MemberState::kFree: return "free";
    case MemberState::kJoining: return "joining";
    case MemberState::kAlive: return "alive";
    case MemberState::kDead: return "dead";
    case MemberState::kQuiet: return "quiet";
  }
  return "unknown";
}

MemberName::MemberName(std::string_view name) noexcept {
  std::memcpy(text, name.data(), std::min(name.size(), sizeof text - 1));
}

SegmentRights SegmentRights::all() noexcept {
  SegmentRights rights;
  for (uint32_t i = 0; i < kSegmentCountMax; ++i) rights.add(i, true);
  return rights;
}

MembersTable* MembersTable::create(std::span<std::byte> memory, uint32_t member_count,
                                   const PoolId& pool_id) noexcept {
  BP_ASSERT(member_count >= 1 && member_count <= kMemberCountMax);
  BP_ASSERT(memory.size() >= bytes_for(member_count));
  BP_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % kCacheLineBytes == 0);
  auto* table = new (memory.data()) MembersTable;
  table->version_ = kVersion;
  table->member_count_ = member_count;
  table->pool_id_ = pool_id;
  table->epoch_.store(0, std::memory_order_relaxed);
  for (uint32_t i = 0; i < member_count; ++i) new (&table->entry(i)) MemberEntry{};
  table->magic_.store(kMagic, std::memory_order_release);
  BP_DCHECK_SLOW(table->is_valid());
  return table;
}

Result<const MembersTable*> MembersTable::open(std::span<const std::byte> memory,
                                               const PoolId& pool_id) noexcept {
  Error error =
      error_while("opening the members table of the pool")
          .set_cure("run the program and the pool's owner from the same release of Bedplate");
  if (memory.size() < kMembersHeaderBytes ||
      reinterpret_cast<uintptr_t>(memory.data()) % kCacheLineBytes != 0) {
    return error.set_answer("%zu bytes at %p are not a table", memory.size(),
                            static_cast<const void*>(memory.data()));
  }
  const auto* table = reinterpret_cast<const MembersTable*>(memory.data());
  const uint64_t magic = table->magic_.load(std::memory_order_acquire);
  if (magic != kMagic) {
    return error.set_answer("it begins with %016" PRIx64 ", not with %016" PRIx64, magic, kMagic);
  }
  if (table->version_ != kVersion) {
    return error.set_answer("it has version %u, this program supports %u", table->version_,
                            kVersion);
  }
  const uint32_t count = table->member_count_;
  if (count == 0 || count > kMemberCountMax || bytes_for(count) > memory.size()) {
    return error.set_answer("it has %u members, in %zu bytes", count, memory.size());
  }
  if (table->pool_id_ != pool_id) return error.set_answer("it belongs to another pool");
  return table;
}

MemberName MembersTable::name(uint32_t member) const noexcept {
  MemberName name;
  for (size_t i = 0; i < std::size(entry(member).name); ++i) {
    const uint64_t part = entry(member).name[i].load(std::memory_order_relaxed);
    std::memcpy(name.text + i * sizeof part, &part, sizeof part);
  }
  name.text[sizeof name.text - 1] = '\0';
  return name;
}

bool MembersTable::is_valid(const MemberEntry& entry) const noexcept {
  const uint64_t word = entry.word.load(std::memory_order_relaxed);
  const uint64_t changed_epoch = entry.changed_epoch.load(std::memory_order_relaxed);
  const auto state = static_cast<MemberState>(word & 0xff);
  const uint64_t generation = word >> 8;
  if (state > MemberState::kQuiet || changed_epoch > epoch() || generation > changed_epoch) {
    return false;
  }
  if (generation == 0 && (state != MemberState::kFree || changed_epoch != 0)) return false;
  for (uint32_t k = 0; k < SegmentRights::kWordCount; ++k) {
    const uint64_t readable = entry.readable[k].load(std::memory_order_relaxed);
    const uint64_t writable = entry.writable[k].load(std::memory_order_relaxed);
    if ((writable & ~readable) != 0) return false;
  }
  return true;
}

bool MembersTable::is_valid() const noexcept {
  if (magic_.load(std::memory_order_relaxed) != kMagic || version_ != kVersion) return false;
  if (member_count_ == 0 || member_count_ > kMemberCountMax) return false;
  uint64_t last_changed_epoch = 0;
  uint32_t last_count = 0;  // entries that changed in the present epoch
  uint64_t generations = 0;
  for (uint32_t i = 0; i < member_count_; ++i) {
    if (!is_valid(entry(i))) return false;
    last_changed_epoch = std::max(last_changed_epoch, changed_epoch(i));
    if (changed_epoch(i) == epoch()) ++last_count;
    generations += generation(i);
  }
  return last_changed_epoch == epoch() && generations <= epoch() &&
         (epoch() == 0 || last_count == 1);
}

// Stores the entry first and the epoch last, each with release: pairs with word() and epoch().
void MembersTable::publish(MemberEntry& entry, const MemberWord& word) noexcept {
  const uint64_t next_epoch = epoch_.load(std::memory_order_relaxed) + 1;
  entry.changed_epoch.store(next_epoch, std::memory_order_relaxed);
  entry.word.store(word.generation << 8 | static_cast<uint8_t>(word.state),
                   std::memory_order_release);
  epoch_.store(next_epoch, std::memory_order_release);
}

void MembersTable::begin_join(uint32_t member, uint32_t pid, const MemberName& name,
                              const SegmentRights& rights) noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(!owner_life_.is_held_by_another());
  const MemberWord before = word(member);
  BP_ASSERT(before.state == MemberState::kFree);
  MemberEntry& changed = entry(member);
  changed.pid.store(pid, std::memory_order_relaxed);
  for (size_t i = 0; i < std::size(changed.name); ++i) {
    uint64_t part = 0;
    std::memcpy(&part, name.text + i * sizeof part, sizeof part);
    changed.name[i].store(part, std::memory_order_relaxed);
  }
  for (uint32_t i = 0; i < SegmentRights::kWordCount; ++i) {
    changed.readable[i].store(rights.readable[i], std::memory_order_relaxed);
    changed.writable[i].store(rights.writable[i], std::memory_order_relaxed);
  }
  publish(changed, {before.generation + 1, MemberState::kJoining});
}

void MembersTable::set_state(uint32_t member, MemberState state) noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(!owner_life_.is_held_by_another());
  BP_ASSERT(state != MemberState::kJoining);  // begin_join
  publish(entry(member), {generation(member), state});
}

Result<void> MembersTable::hold_owner_life() noexcept { return owner_life_.hold(); }

void MembersTable::release_owner_life() noexcept { owner_life_.release(); }

}  // namespace bedplate
