#include "alloc/keyed_cache_datapath.h"

#include <algorithm>
#include <bit>

#include "platform/assert.h"

namespace bedplate {
namespace {

uint64_t mix(uint64_t a, uint64_t b) noexcept {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint32_t lines_of(const KeyedCache::NewItem& wanted) noexcept {
  const uint64_t bytes = sizeof(CacheItem) + wanted.head.size() + wanted.body_bytes;
  return static_cast<uint32_t>((bytes + kCacheLineBytes - 1) / kCacheLineBytes);
}

}  // namespace

uint64_t KeyedCache::index_bytes(uint64_t memory_bytes) noexcept {
  return std::bit_ceil(memory_bytes / (2 * kCacheLineBytes)) * sizeof(uint32_t);
}

void KeyedCache::create(const KeyedCacheOptions& options) noexcept {
  const std::span<std::byte> memory = options.memory;
  BP_ASSERT(memory_ == nullptr && options.counters != nullptr);
  BP_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % kCacheLineBytes == 0);
  BP_ASSERT(memory.size() >= 4 * kCacheLineBytes && memory.size() <= kMemoryMaxBytes);
  BP_ASSERT(options.index.size() >= index_bytes(memory.size()));
  memory_ = memory.data();
  end_ = static_cast<uint32_t>(memory.size() / kCacheLineBytes);
  gap_end_ = end_;
  buckets_ = reinterpret_cast<uint32_t*>(options.index.data());
  bucket_mask_ = static_cast<uint32_t>(std::bit_floor(options.index.size() / sizeof(uint32_t)) - 1);
  key_offset_bytes_ = options.key_offset_bytes;
  seed_ = options.seed;
  counters_ = options.counters;
}

bool KeyedCache::is_valid() const noexcept {
  if (gap_begin_ < kFirst || gap_begin_ > gap_end_ || gap_end_ > end_) return false;
  uint64_t linked = 0;
  uint64_t live_lines = 0;
  for (uint32_t line = kFirst; line < end_;) {
    if (line == gap_begin_ && gap_begin_ < gap_end_) {
      line = gap_end_;
      continue;
    }
    const CacheItem& item = at(line);
    if (item.lines == 0 || item.lines > end_ - line) return false;
    if (line < gap_begin_ && line + item.lines > gap_begin_) return false;
    if (item.is_linked) {
      ++linked;
      if (item.version > flushed_version_) live_lines += item.lines;
    }
    line += item.lines;
  }
  for (uint64_t bucket = 0; bucket <= bucket_mask_; ++bucket) {
    for (uint32_t line = buckets_[bucket]; line != 0; line = at(line).next, --linked) {
      if (line >= end_ || linked == 0) return false;
      if (!at(line).is_linked || (at(line).hash & bucket_mask_) != bucket) return false;
    }
  }
  return linked == 0 && live_lines == live_lines_;
}

uint32_t KeyedCache::hash_of(std::string_view key) const noexcept {
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

bool KeyedCache::lives(const CacheItem& item) const noexcept {
  return item.is_linked && item.version > flushed_version_ && item.expires_ns > now_ns_;
}

void KeyedCache::count(int64_t items, int64_t lines) noexcept {
  BP_DCHECK(lines >= 0 || live_lines_ >= static_cast<uint64_t>(-lines));
  live_lines_ += static_cast<uint64_t>(lines);
  counters_->items.add(static_cast<uint64_t>(items));
  counters_->bytes.set(live_lines_ * kCacheLineBytes);
  counters_->peak_bytes.raise(live_lines_ * kCacheLineBytes);
}

void KeyedCache::flush_if_due() noexcept {
  if (now_ns_ < flush_at_ns_) return;
  BP_KEEPS_VALID(*this);
  flush_at_ns_ = kNever;
  flushed_version_ = version_;
  live_lines_ = 0;
  counters_->items.set(0);
  counters_->bytes.set(0);
}

CacheItem* KeyedCache::find(std::string_view key, uint32_t hash) noexcept {
  flush_if_due();
  for (uint32_t line = buckets_[hash & bucket_mask_]; line != 0;) {
    CacheItem& item = at(line);
    // This is probably the item, and its body is read next: prefetch its second and third line
    // together with the first.
    __builtin_prefetch(reinterpret_cast<const std::byte*>(&item) + kCacheLineBytes);
    __builtin_prefetch(reinterpret_cast<const std::byte*>(&item) + 2 * kCacheLineBytes);
    line = item.next;
    if (item.hash != hash || key_of(item) != key) continue;
    item.is_used = true;
    if (lives(item)) return &item;
    unlink(item);
    return nullptr;
  }
  return nullptr;
}

CacheItem* KeyedCache::peek(std::string_view key) noexcept {
  flush_if_due();
  const uint32_t hash = hash_of(key);
  for (uint32_t line = buckets_[hash & bucket_mask_]; line != 0; line = at(line).next) {
    CacheItem& item = at(line);
    if (item.hash == hash && key_of(item) == key) return lives(item) ? &item : nullptr;
  }
  return nullptr;
}

// The pointer to `item` in its bucket's chain.
uint32_t* KeyedCache::link_to(CacheItem& item) noexcept {
  BP_DCHECK(item.is_linked);
  uint32_t* link = &buckets_[item.hash & bucket_mask_];
  while (&at(*link) != &item) link = &at(*link).next;
  return link;
}

void KeyedCache::unlink(CacheItem& item) noexcept {
  BP_ASSERT(item.is_linked);
  *link_to(item) = item.next;
  item.is_linked = false;
  if (item.version > flushed_version_) count(-1, -int64_t{item.lines});
}

void KeyedCache::link(CacheItem& item) noexcept {
  BP_DCHECK(is_block(item));
  if (!item.is_linked) {
    if (CacheItem* old = find(key_of(item), item.hash); old != nullptr) unlink(*old);
    uint32_t& bucket = buckets_[item.hash & bucket_mask_];
    item.next = bucket;
    bucket = line_of(item);
    item.is_linked = true;
    count(1, item.lines);
  } else if (item.version <= flushed_version_) {
    count(1, item.lines);  // it was flushed while pinned, and is current again
  }
  item.version = ++version_;
}

CacheItem* KeyedCache::make(const NewItem& wanted) noexcept {
  BP_DCHECK(wanted.head.size() <= UINT16_MAX &&
            key_offset_bytes_ + uint64_t{wanted.key_bytes} <= wanted.head.size());
  const uint32_t lines = lines_of(wanted);
  const std::string_view key = wanted.head.substr(key_offset_bytes_, wanted.key_bytes);
  const uint32_t hash = hash_of(key);
  CacheItem* item = wanted.may_reuse ? find(key, hash) : nullptr;
  if (item == nullptr || item->pins > 0 || item->lines != lines) {
    flush_if_due();
    item = take_block(lines);
    if (item == nullptr) return nullptr;
    *item = {.lines = lines, .hash = hash};
  }
  item->is_fetched = false;
  item->note = wanted.note;
  item->expires_ns = wanted.expires_ns;
  item->body_bytes = wanted.body_bytes;
  item->key_bytes = wanted.key_bytes;
  item->head_bytes = static_cast<uint16_t>(wanted.head.size());
  std::memcpy(item->head(), wanted.head.data(), wanted.head.size());
  pin(*item);
  return item;
}

// Makes the rest of the gap a dead block, and begins the gap anew at `next`.
void KeyedCache::close_gap(uint32_t next) noexcept {
  BP_DCHECK(next == kFirst || next >= gap_end_);
  if (gap_begin_ < gap_end_) at(gap_begin_) = {.lines = gap_end_ - gap_begin_};
  gap_begin_ = gap_end_ = next;
}

// Moves the item behind the gap to the front of the gap.
void KeyedCache::slide(CacheItem& item) noexcept {
  BP_DCHECK(item.pins == 0 && line_of(item) == gap_end_);
  const uint32_t lines = item.lines;
  if (gap_begin_ < gap_end_) {
    *link_to(item) = gap_begin_;
    std::memmove(&at(gap_begin_), &item, uint64_t{lines} * kCacheLineBytes);
  }
  at(gap_begin_).is_used = false;
  gap_begin_ += lines;
  gap_end_ += lines;
}

bool KeyedCache::keeps(const CacheItem& item, uint32_t* moves) const noexcept {
  const uint64_t dead_lines = end_ - kFirst - (gap_end_ - gap_begin_) - live_lines_;
  const uint32_t moves_max = dead_lines > end_ / 8 ? kMoves : item.is_used ? kSecondChances : 0;
  if (*moves >= moves_max) return false;
  ++*moves;
  return true;
}

// Counts an item removed for space, as evicted or as expired.
void KeyedCache::count_end(const CacheItem& item) noexcept {
  if (lives(item)) {
    counters_->evictions.add(1);
    counters_->evicted_unfetched.add(item.is_fetched ? 0 : 1);
    counters_->peak_bytes.raise(uint64_t{end_} * kCacheLineBytes);
  } else if (item.is_linked && item.version > flushed_version_) {
    counters_->reclaimed.add(1);
    counters_->expired_unfetched.add(item.is_fetched ? 0 : 1);
  }
}

// Takes a block of `lines` at the gap's front. Returns nullptr if too much is pinned.
CacheItem* KeyedCache::take_block(uint32_t lines) noexcept {
  BP_ASSERT(lines <= end_ / 2);
  uint32_t moves = 0;
  // In the second round no item is spared; after three rounds too much is pinned.
  for (uint64_t passed = 0; gap_end_ - gap_begin_ < lines;) {
    if (gap_end_ == end_) {
      close_gap(kFirst);
      BP_DCHECK_SLOW(is_valid());
      continue;
    }
    CacheItem& item = at(gap_end_);
    BP_DCHECK(is_block(item));
    passed += item.lines;
    if (passed > 3 * uint64_t{end_}) return nullptr;
    if (item.pins > 0) {
      close_gap(gap_end_ + item.lines);
    } else if (lives(item) && passed <= end_ && keeps(item, &moves)) {
      slide(item);
    } else {
      count_end(item);
      if (item.is_linked) unlink(item);
      gap_end_ += item.lines;
    }
  }
  CacheItem& block = at(gap_begin_);
  gap_begin_ += lines;
  return &block;
}

}  // namespace bedplate
