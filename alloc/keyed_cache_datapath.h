// KeyedCache: items found by a key, in one range of planned memory that never grows.
//
// Items lie side by side in blocks of whole cache lines, and one gap moves through them:
//
//     | younger items | gap | older items ... |
//
// A new item is made at the gap's front. If the gap is too short, its end moves on: dead items
// there join the gap. A live item slides to the gap's front if it was read since the gap last
// passed it (CLOCK), or if much of the memory is dead; otherwise it is evicted. So items of all
// sizes share all of the memory, and there is no search for free memory. A pinned item stays where
// it is: the gap begins anew behind it. At the end of the memory the gap returns to the beginning.
//
// An item is a head followed by a body. The head is the owner's text before the body, and contains
// the key. So one copy, or one segment of a send, sends a stored object with its framing. Items
// expire; each change gives an item a new version.
//
// Invariants. 1. From kFirst on, the blocks and the gap fill the memory, one behind the other. 2. A
// linked item is in its bucket, and in no other; an unlinked item is in none. 3. live_lines_ counts
// the lines of items linked since the last flush. 4. A pinned item is not moved. Debug builds check
// 1 to 3 by is_valid() when the gap returns to the beginning of the memory and when the cache is
// flushed. link_to() checks 2 for one item, slide() checks 4.
//
// The cache does not interpret the bytes, and reads no clock: set_time() gives it the time.
// Threads: one at a time, for the cache and its items. No function allocates or can fail by an
// exception.
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
  uint64_t version = 0;     // each change gives it a new one
  uint64_t note = 0;        // the owner's
  uint64_t expires_ns = 0;  // on the clock of set_time(), or KeyedCache::kNever
  uint32_t lines = 0;       // the cache lines of the block
  uint32_t next = 0;        // the line of the next item in its bucket; 0 at the end
  uint32_t hash = 0;
  uint32_t body_bytes = 0;
  uint32_t pins = 0;  // how many readers and writers have it pinned
  uint16_t head_bytes = 0;
  uint8_t key_bytes = 0;
  bool is_linked : 1 = false;   // the index has it
  bool is_used : 1 = false;     // find() found it since the gap last passed
  bool is_fetched : 1 = false;  // set by the owner: it was read at least once

  char* head() noexcept { return reinterpret_cast<char*>(this + 1); }
  char* body() noexcept { return head() + head_bytes; }
  // Head and body.
  std::string_view text() noexcept { return {head(), uint64_t{head_bytes} + body_bytes}; }
};
static_assert(sizeof(CacheItem) == 48);

// All fields are required but the seed and the offset.
struct KeyedCacheOptions {
  std::span<std::byte> memory;    // zeroed, aligned to a cache line; 256 bytes to kMemoryMaxBytes
  std::span<std::byte> index;     // zeroed, aligned to 4; at least index_bytes(memory.size())
  uint64_t seed = 0;              // keeps clients from choosing keys that collide
  uint16_t key_offset_bytes = 0;  // of the key, in each head
  KeyedCacheCounters* counters = nullptr;
};

class KeyedCache {
 public:
  static constexpr uint64_t kNever = ~uint64_t{0};
  static constexpr uint64_t kMemoryMaxBytes = uint64_t{128} << 30;  // 2^31 lines of 64 bytes

  // The size of the index for `memory_bytes`: 4 bytes for each two lines, rounded up to a power of
  // two.
  static uint64_t index_bytes(uint64_t memory_bytes) noexcept;

  // Requires: called once, before all other functions. Ownership: memory, index and counters
  // outlive the cache.
  void create(const KeyedCacheOptions& options) noexcept;

  // Sets the time that decides which items have expired. Requires: it does not go back.
  void set_time(uint64_t now_ns) noexcept { now_ns_ = now_ns; }
  uint64_t now_ns() const noexcept { return now_ns_; }
  uint64_t memory_bytes() const noexcept { return uint64_t{end_} * kCacheLineBytes; }

  // The live item of this key, or nullptr. The item is valid until the next make(), or while it is
  // pinned.
  CacheItem* find(std::string_view key) noexcept { return find(key, hash_of(key)); }
  // The same, but it does not save the item from eviction: for readers that only look at it.
  CacheItem* peek(std::string_view key) noexcept;
  std::string_view key_of(CacheItem& item) const noexcept {
    return {item.head() + key_offset_bytes_, item.key_bytes};
  }

  struct NewItem {
    std::string_view head;  // copied; has the key at the cache's offset; 64 KiB less 1 at most
    uint8_t key_bytes = 0;  // of the key, at that offset in the head
    uint32_t body_bytes = 0;
    uint64_t note = 0;
    uint64_t expires_ns = kNever;
    // If the key's present item is not pinned and has as many lines, make() returns that item with
    // the new head. It stays linked, so the caller overwrites it in place and must link it again.
    bool may_reuse = false;
  };
  // Makes an item; the caller writes its body and then links it. The item is pinned until the
  // caller releases it. An item released without being linked is lost, unless it was reused. Evicts
  // items as needed. Returns nullptr if too much is pinned. Requires: the CacheItem, the head and
  // the body fit into half of the memory.
  CacheItem* make(const NewItem& wanted) noexcept;
  // Makes find() return `item` for its key, in place of the present item. An item that is linked
  // already counts as changed. In both cases the item gets a new version. Requires: the item is
  // pinned, or was found since the last make().
  void link(CacheItem& item) noexcept;
  // Removes `item` from the index. Requires: as link(), and it is linked.
  void unlink(CacheItem& item) noexcept;
  // Keeps an item's memory as it is, even if its key gets a new item or the item is unlinked. Each
  // pin() needs one release().
  void pin(CacheItem& item) noexcept {
    BP_DCHECK(is_block(item));
    ++item.pins;
  }
  void release(CacheItem& item) noexcept {
    BP_DCHECK(is_block(item));
    BP_ASSERT(item.pins > 0);
    --item.pins;
  }
  // Drops all items that are present when the time reaches `at_ns`. The next find(), make() or
  // flush() from then on does the work. A call before that time replaces this one.
  void flush(uint64_t at_ns) noexcept {
    flush_if_due();
    flush_at_ns_ = at_ns;
  }

  // Whether the invariants hold. Cost: a walk through the memory and the index.
  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kFirst = 1;  // line 0 has no item: 0 ends a bucket
  // One make() slides at most kSecondChances items, and only items with is_used. While more than an
  // eighth of the memory is dead, it slides at most kMoves live items, used or not.
  static constexpr uint32_t kSecondChances = 16;
  static constexpr uint32_t kMoves = 1024;

  uint32_t line_of(const CacheItem& item) const noexcept {
    return static_cast<uint32_t>((reinterpret_cast<const std::byte*>(&item) - memory_) /
                                 kCacheLineBytes);
  }
  // Whether `item` can be a block of this cache.
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
  uint32_t end_ = 0;  // in lines, as the gap
  uint32_t gap_begin_ = kFirst;
  uint32_t gap_end_ = kFirst;
  uint64_t live_lines_ = 0;
  uint64_t version_ = 0;          // the latest
  uint64_t flushed_version_ = 0;  // items up to this version are dropped
  uint64_t flush_at_ns_ = kNever;
  uint64_t now_ns_ = 0;
};

}  // namespace bedplate
