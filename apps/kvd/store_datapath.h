// The store of kvd: items in one stretch of memory, an index to find them by, and eviction.
//
// Items lie side by side in blocks of whole cache lines, and one gap moves through them:
//
//     | younger items | gap | older items ... |
//
// A new item is made at the gap's front. Where the gap is too short, its end moves on: what is
// dead there joins the gap, what lives is evicted, or slides to the gap's front when it was asked
// for since the gap last came by (CLOCK) or when enough of what lies ahead is dead. So items of all
// sizes share all of the memory, and no free place is ever searched for. What is pinned stays where
// it is: the gap begins anew behind it.
//
// An item holds its own reply, "VALUE key flags bytes\r\nvalue\r\n": a get is one copy, or one
// piece of a send. Threads: one.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "apps/kvd/kv_counters.h"

namespace bedplate::kvd {

inline constexpr uint32_t kKeyBytesMax = 250;
inline constexpr std::string_view kValueWord = "VALUE ";
inline constexpr std::string_view kLineEnd = "\r\n";

// The head of a block; the text of the reply follows it.
struct Item {
  uint64_t cas = 0;         // a new one with each change
  uint64_t flags = 0;       // the client's
  uint64_t expires_ns = 0;  // monotonic; Store::kNever
  uint32_t lines = 0;       // of the block
  uint32_t next = 0;        // in its bucket
  uint32_t hash = 0;
  uint32_t value_bytes = 0;
  uint32_t pins = 0;        // how many read or write it
  uint16_t head_bytes = 0;  // of the text before the value
  uint8_t key_bytes = 0;
  bool is_linked : 1 = false;  // the index knows it
  bool is_used : 1 = false;    // it was asked for since the gap came by

  char* text() noexcept { return reinterpret_cast<char*>(this + 1); }
  char* value() noexcept { return text() + head_bytes; }
  std::string_view key() noexcept { return {text() + kValueWord.size(), key_bytes}; }
  std::string_view reply() noexcept { return {text(), head_bytes + value_bytes + kLineEnd.size()}; }
};
static_assert(sizeof(Item) == 48);

class Store {
 public:
  static constexpr uint64_t kNever = ~uint64_t{0};
  static constexpr uint64_t kMemoryMaxBytes = uint64_t{128} << 30;  // lines are counted by 32 bits

  // What an index for so much memory takes: a bucket for each two lines.
  static uint64_t index_bytes(uint64_t memory_bytes) noexcept;

  // `memory` and `index` are zeroed and outlive this; `seed` keeps others from choosing keys that
  // meet in one bucket.
  void create(std::span<std::byte> memory, std::span<std::byte> index, uint64_t seed,
              Counters& counters) noexcept;

  void set_time(uint64_t now_ns) noexcept { now_ns_ = now_ns; }
  uint64_t now_ns() const noexcept { return now_ns_; }
  uint64_t memory_bytes() const noexcept { return uint64_t{end_} * kCacheLineBytes; }

  // The item of this key, or nullptr. It is good until the next make(), or while it is pinned.
  Item* find(std::string_view key) noexcept { return find(key, hash_of(key)); }

  struct NewItem {
    std::string_view key;
    uint64_t flags = 0;
    uint64_t expires_ns = kNever;
    uint32_t value_bytes = 0;
    bool may_reuse = false;  // the block of the present item: its value is overwritten at once
  };
  // An item whose value the caller writes and links; pinned until it is released. Evicts what must
  // go. Returns nullptr when too much is pinned. Requires: it fits in half of the memory.
  Item* make(const NewItem& wanted) noexcept;
  // Puts it in the place of the item with its key, or says that it has changed.
  void link(Item& item) noexcept;
  void unlink(Item& item) noexcept;
  // Pinned, an item stays as it is, also when its key is given a new one.
  void pin(Item& item) noexcept { ++item.pins; }
  void release(Item& item) noexcept { --item.pins; }
  // All that is there at `at_ns` is gone from then on.
  void flush(uint64_t at_ns) noexcept { flush_at_ns_ = at_ns; }

 private:
  static constexpr uint32_t kFirst = 1;  // 0: the end of a bucket
  // What one make() may move: things in use, and others while an eighth of the memory is dead.
  static constexpr uint32_t kSecondChances = 16;
  static constexpr uint32_t kMoves = 1024;

  Item& at(uint32_t line) const noexcept {
    return *reinterpret_cast<Item*>(memory_ + uint64_t{line} * kCacheLineBytes);
  }
  uint32_t hash_of(std::string_view key) const noexcept;
  Item* find(std::string_view key, uint32_t hash) noexcept;
  uint32_t* link_to(Item& item) noexcept;
  bool lives(const Item& item) const noexcept;
  Item* take_block(uint32_t lines) noexcept;
  bool keeps(const Item& item, uint32_t* moves) const noexcept;
  void slide(Item& item) noexcept;
  void close_gap(uint32_t next) noexcept;
  void flush_if_due() noexcept;
  void count(int64_t items, int64_t lines) noexcept;

  std::byte* memory_ = nullptr;
  uint32_t* buckets_ = nullptr;
  uint32_t bucket_mask_ = 0;
  uint64_t seed_ = 0;
  Counters* counters_ = nullptr;
  uint32_t end_ = 0;  // lines
  uint32_t gap_begin_ = kFirst;
  uint32_t gap_end_ = kFirst;
  uint64_t live_lines_ = 0;
  uint64_t cas_ = 0;          // the latest
  uint64_t flushed_cas_ = 0;  // items up to this one are gone
  uint64_t flush_at_ns_ = kNever;
  uint64_t now_ns_ = 0;
};

}  // namespace bedplate::kvd
