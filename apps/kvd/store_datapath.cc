#include "apps/kvd/store_datapath.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "platform/assert.h"

namespace bedplate::kvd {
namespace {

uint64_t mix(uint64_t a, uint64_t b) noexcept {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Writes the reply's text up to the value. Returns its bytes.
uint16_t write_head(char* text, const Store::NewItem& wanted) noexcept {
  char* to = text;
  const auto add = [&to](std::string_view part) {
    std::memcpy(to, part.data(), part.size());
    to += part.size();
  };
  add(kValueWord);
  add(wanted.key);
  *to++ = ' ';
  to = std::to_chars(to, to + 20, wanted.flags).ptr;
  *to++ = ' ';
  to = std::to_chars(to, to + 10, wanted.value_bytes).ptr;
  add(kLineEnd);
  return static_cast<uint16_t>(to - text);
}

uint32_t digits_of(uint64_t number) noexcept {
  uint32_t digits = 1;
  for (; number >= 10; number /= 10) ++digits;
  return digits;
}

uint32_t lines_of(const Store::NewItem& wanted) noexcept {
  const uint64_t bytes = sizeof(Item) + kValueWord.size() + wanted.key.size() + 1 +
                         digits_of(wanted.flags) + 1 + digits_of(wanted.value_bytes) +
                         wanted.value_bytes + 2 * kLineEnd.size();
  return static_cast<uint32_t>((bytes + kCacheLineBytes - 1) / kCacheLineBytes);
}

}  // namespace

uint64_t Store::index_bytes(uint64_t memory_bytes) noexcept {
  return std::bit_ceil(memory_bytes / (2 * kCacheLineBytes)) * sizeof(uint32_t);
}

void Store::create(std::span<std::byte> memory, std::span<std::byte> index, uint64_t seed,
                   Counters& counters) noexcept {
  BP_ASSERT(memory.size() >= 4 * kCacheLineBytes && memory.size() <= kMemoryMaxBytes);
  memory_ = memory.data();
  end_ = static_cast<uint32_t>(memory.size() / kCacheLineBytes);
  gap_end_ = end_;
  buckets_ = reinterpret_cast<uint32_t*>(index.data());
  bucket_mask_ = static_cast<uint32_t>(std::bit_floor(index.size() / sizeof(uint32_t)) - 1);
  seed_ = seed;
  counters_ = &counters;
}

uint32_t Store::hash_of(std::string_view key) const noexcept {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t state = seed_ ^ key.size();
  for (; key.size() > sizeof state; key.remove_prefix(sizeof state)) {
    uint64_t word;
    std::memcpy(&word, key.data(), sizeof word);
    state = mix(state ^ word, kOdd);
  }
  uint64_t last = 0;
  std::memcpy(&last, key.data(), key.size());
  return static_cast<uint32_t>(mix(mix(state ^ last, kOdd) ^ seed_, kOdd));
}

bool Store::lives(const Item& item) const noexcept {
  return item.is_linked && item.cas > flushed_cas_ && item.expires_ns > now_ns_;
}

void Store::count(int64_t items, int64_t lines) noexcept {
  live_lines_ += static_cast<uint64_t>(lines);
  counters_->items.add(static_cast<uint64_t>(items));
  counters_->bytes.set(live_lines_ * kCacheLineBytes);
}

void Store::flush_if_due() noexcept {
  if (now_ns_ < flush_at_ns_) return;
  flush_at_ns_ = kNever;
  flushed_cas_ = cas_;
  live_lines_ = 0;
  counters_->items.set(0);
  counters_->bytes.set(0);
}

Item* Store::find(std::string_view key, uint32_t hash) noexcept {
  flush_if_due();
  for (uint32_t line = buckets_[hash & bucket_mask_]; line != 0;) {
    Item& item = at(line);
    line = item.next;
    if (item.hash != hash || item.key() != key) continue;
    item.is_used = true;
    if (lives(item)) return &item;
    unlink(item);
    return nullptr;
  }
  return nullptr;
}

// What points at it, in its bucket.
uint32_t* Store::link_to(Item& item) noexcept {
  uint32_t* link = &buckets_[item.hash & bucket_mask_];
  while (&at(*link) != &item) link = &at(*link).next;
  return link;
}

void Store::unlink(Item& item) noexcept {
  *link_to(item) = item.next;
  item.is_linked = false;
  if (item.cas > flushed_cas_) count(-1, -int64_t{item.lines});
}

void Store::link(Item& item) noexcept {
  if (!item.is_linked) {
    if (Item* old = find(item.key(), item.hash); old != nullptr) unlink(*old);
    uint32_t& bucket = buckets_[item.hash & bucket_mask_];
    item.next = bucket;
    bucket =
        static_cast<uint32_t>((reinterpret_cast<std::byte*>(&item) - memory_) / kCacheLineBytes);
    item.is_linked = true;
    count(1, item.lines);
  }
  item.cas = ++cas_;
}

Item* Store::make(const NewItem& wanted) noexcept {
  const uint32_t lines = lines_of(wanted);
  const uint32_t hash = hash_of(wanted.key);
  Item* item = wanted.may_reuse ? find(wanted.key, hash) : nullptr;
  if (item == nullptr || item->pins > 0 || item->lines != lines) {
    flush_if_due();
    item = take_block(lines);
    if (item == nullptr) return nullptr;
    *item = {.lines = lines, .hash = hash};
  }
  item->flags = wanted.flags;
  item->expires_ns = wanted.expires_ns;
  item->value_bytes = wanted.value_bytes;
  item->key_bytes = static_cast<uint8_t>(wanted.key.size());
  item->head_bytes = write_head(item->text(), wanted);
  std::memcpy(item->value() + wanted.value_bytes, kLineEnd.data(), kLineEnd.size());
  pin(*item);
  return item;
}

// Makes what the gap still has a dead block, and has it begin at `next`.
void Store::close_gap(uint32_t next) noexcept {
  if (gap_begin_ < gap_end_) at(gap_begin_) = {.lines = gap_end_ - gap_begin_};
  gap_begin_ = gap_end_ = next;
}

// Moves the item behind the gap to its front.
void Store::slide(Item& item) noexcept {
  const uint32_t lines = item.lines;
  if (gap_begin_ < gap_end_) {
    *link_to(item) = gap_begin_;
    std::memmove(&at(gap_begin_), &item, uint64_t{lines} * kCacheLineBytes);
  }
  at(gap_begin_).is_used = false;
  gap_begin_ += lines;
  gap_end_ += lines;
}

bool Store::keeps(const Item& item, uint32_t* moves) const noexcept {
  const uint64_t dead_lines = end_ - kFirst - (gap_end_ - gap_begin_) - live_lines_;
  const uint32_t moves_max = dead_lines > end_ / 8 ? kMoves : item.is_used ? kSecondChances : 0;
  if (*moves >= moves_max) return false;
  ++*moves;
  return true;
}

// A block at the gap's front.
Item* Store::take_block(uint32_t lines) noexcept {
  BP_ASSERT(lines <= end_ / 2);
  uint32_t moves = 0;
  // Once around and all that was spared is not enough; three times, and what is pinned is too much.
  for (uint64_t passed = 0; gap_end_ - gap_begin_ < lines;) {
    if (gap_end_ == end_) {
      close_gap(kFirst);
      continue;
    }
    Item& item = at(gap_end_);
    passed += item.lines;
    if (passed > 3 * uint64_t{end_}) return nullptr;
    if (item.pins > 0) {
      close_gap(gap_end_ + item.lines);
    } else if (lives(item) && passed <= end_ && keeps(item, &moves)) {
      slide(item);
    } else {
      if (lives(item)) counters_->evictions.add(1);
      if (item.is_linked) unlink(item);
      gap_end_ += item.lines;
    }
  }
  Item& block = at(gap_begin_);
  gap_begin_ += lines;
  return &block;
}

}  // namespace bedplate::kvd
