// KeyedCache: items found by a key, in one stretch of planned memory that is never outgrown.
//
// Items lie side by side in blocks of whole cache lines, and one gap moves through them:
//
//     | younger items | gap | older items ... |
//
// A new item is made at the gap's front. If the gap is too short, its end moves on: dead items
// there join the gap, live ones are evicted, or slide to the gap's front when they were asked for
// since the gap last came by (CLOCK) or when enough of what lies ahead is dead. So items of all
// sizes share all of the memory, and no free place is ever searched for. A pinned item stays where
// it is: the gap begins anew behind it.
//
// An item is a head and a body, in a row: the head is what its owner wants to have in front of the
// body, the key somewhere in it. So a stored object goes out with its framing by one copy, or as
// one piece of a send. Items expire; each change gives an item a new version.
//
// Invariants. 1. From kFirst on, the blocks and the gap fill the memory, one behind the other. 2.
// An item that is linked is in its bucket, and in no other; one that is not linked is in none. 3.
// live_lines_ are those of the linked items since the last flush. 4. A pinned item is not moved.
// is_valid() checks 1 to 3, each time that the gap begins anew and when the cache is flushed;
// link_to() checks 2 for an item, slide() checks 4.
//
// It deliberately knows nothing of what the bytes mean, and never asks for the time: it is told.
// Threads: one at a time, for the cache and its items; noexcept; nothing is allocated.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "alloc/keyed_cache_counters.h"
#include "platform/assert.h"
#include "platform/cache_line.h"

namespace bedplate {

// The head of a block; the bytes of the item follow it.
struct CacheItem {
  uint64_t version = 0;     // a new one with each change
  uint64_t note = 0;        // the owner's
  uint64_t expires_ns = 0;  // of the clock that set_time() tells; KeyedCache::kNever
  uint32_t lines = 0;       // of the block
  uint32_t next = 0;        // in its bucket
  uint32_t hash = 0;
  uint32_t body_bytes = 0;
  uint32_t pins = 0;  // how many read or write it
  uint16_t head_bytes = 0;
  uint8_t key_bytes = 0;
  bool is_linked : 1 = false;   // the index knows it
  bool is_used : 1 = false;     // it was asked for since the gap came by
  bool is_fetched : 1 = false;  // the owner's: that somebody read it, ever

  char* head() noexcept { return reinterpret_cast<char*>(this + 1); }
  char* body() noexcept { return head() + head_bytes; }
  // Head and body.
  std::string_view text() noexcept { return {head(), uint64_t{head_bytes} + body_bytes}; }
};
static_assert(sizeof(CacheItem) == 48);

// All are required but the seed and the offset.
struct KeyedCacheOptions {
  std::span<std::byte> memory;    // zeroed, aligned to a cache line; 256 bytes to kMemoryMaxBytes
  std::span<std::byte> index;     // zeroed; index_bytes(memory.size())
  uint64_t seed = 0;              // keeps others from choosing keys that meet in one bucket
  uint16_t key_offset_bytes = 0;  // of the key, in each head
  KeyedCacheCounters* counters = nullptr;
};

class KeyedCache {
 public:
  static constexpr uint64_t kNever = ~uint64_t{0};
  static constexpr uint64_t kMemoryMaxBytes = uint64_t{128} << 30;  // lines are counted by 32 bits

  // The size of an index for so much memory: a bucket for each two lines.
  static uint64_t index_bytes(uint64_t memory_bytes) noexcept;

  // Requires: called once, before all else. Ownership: memory, index and counters outlive this.
  void create(const KeyedCacheOptions& options) noexcept;

  // The time that items' expiry is compared with from now on. Requires: it does not go back.
  void set_time(uint64_t now_ns) noexcept { now_ns_ = now_ns; }
  uint64_t now_ns() const noexcept { return now_ns_; }
  uint64_t memory_bytes() const noexcept { return uint64_t{end_} * kCacheLineBytes; }

  // The item of this key, or nullptr. It is good until the next make(), or while it is pinned.
  CacheItem* find(std::string_view key) noexcept { return find(key, hash_of(key)); }
  std::string_view key_of(CacheItem& item) const noexcept {
    return {item.head() + key_offset_bytes_, item.key_bytes};
  }

  struct NewItem {
    std::string_view head;  // copied; has the key at the cache's offset; 64 KiB less 1 at most
    uint8_t key_bytes = 0;  // from that offset on, within the head
    uint32_t body_bytes = 0;
    uint64_t note = 0;
    uint64_t expires_ns = kNever;
    bool may_reuse = false;  // the block of the present item: its body is overwritten at once
  };
  // An item whose body the caller writes, and then links; pinned until it is released. One that is
  // released without being linked is gone. Evicts what must go.
  // Returns nullptr when too much is pinned. Requires: with its CacheItem it fits in half of the
  // memory.
  CacheItem* make(const NewItem& wanted) noexcept;
  // Puts `item` in the place of the item with its key. If it is linked already, it has changed.
  // Either way it gets a new version. Requires: it is pinned, or was found since the last make().
  void link(CacheItem& item) noexcept;
  // The key of `item` is not found any more. Requires: as link(), and it is linked.
  void unlink(CacheItem& item) noexcept;
  // Pinned, an item stays as it is, also when its key is given a new one, or it is unlinked. Each
  // pin() is undone by one release().
  void pin(CacheItem& item) noexcept {
    BP_DCHECK(is_block(item));
    ++item.pins;
  }
  void release(CacheItem& item) noexcept {
    BP_DCHECK(is_block(item));
    BP_ASSERT(item.pins > 0);
    --item.pins;
  }
  // Drops all items that are there when the time reaches `at_ns`. A later call replaces an earlier
  // one whose time has not come.
  void flush(uint64_t at_ns) noexcept { flush_at_ns_ = at_ns; }

  // Whether the invariants hold. Cost: a walk through the memory and the index.
  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kFirst = 1;  // 0: the end of a bucket
  // The most items that one make() moves: of items in use, and of others while more than an eighth
  // of the memory is dead.
  static constexpr uint32_t kSecondChances = 16;
  static constexpr uint32_t kMoves = 1024;

  uint32_t line_of(const CacheItem& item) const noexcept {
    return static_cast<uint32_t>((reinterpret_cast<const std::byte*>(&item) - memory_) /
                                 kCacheLineBytes);
  }
  // Whether it can be a block of this cache.
  bool is_block(const CacheItem& item) const noexcept {
    const uint32_t line = line_of(item);
    return line >= kFirst && line < end_ && &at(line) == &item && item.lines > 0 &&
           item.lines <= end_ - line;
  }
  CacheItem& at(uint32_t line) const noexcept {
    BP_DCHECK(line >= kFirst && line < end_);
    return *reinterpret_cast<CacheItem*>(memory_ + uint64_t{line} * kCacheLineBytes);
  }
  uint32_t hash_of(std::string_view key) const noexcept;
  CacheItem* find(std::string_view key, uint32_t hash) noexcept;
  uint32_t* link_to(CacheItem& item) noexcept;
  bool lives(const CacheItem& item) const noexcept;
  CacheItem* take_block(uint32_t lines) noexcept;
  bool keeps(const CacheItem& item, uint32_t* moves) const noexcept;
  void slide(CacheItem& item) noexcept;
  void close_gap(uint32_t next) noexcept;
  void count_end(const CacheItem& item) noexcept;
  void flush_if_due() noexcept;
  void count(int64_t items, int64_t lines) noexcept;

  std::byte* memory_ = nullptr;
  uint32_t* buckets_ = nullptr;
  uint32_t bucket_mask_ = 0;
  uint16_t key_offset_bytes_ = 0;
  uint64_t seed_ = 0;
  KeyedCacheCounters* counters_ = nullptr;
  uint32_t end_ = 0;  // lines
  uint32_t gap_begin_ = kFirst;
  uint32_t gap_end_ = kFirst;
  uint64_t live_lines_ = 0;
  uint64_t version_ = 0;          // the latest
  uint64_t flushed_version_ = 0;  // items up to this one are gone
  uint64_t flush_at_ns_ = kNever;
  uint64_t now_ns_ = 0;
};

}  // namespace bedplate
