// kvd's items, and what its commands do to them: store, join, count.
//
// An item of the cache holds its own reply: its head is "VALUE key flags bytes\r\n", its body the
// value and a line end. So a get is one copy, or one iovec of a send that pins the item. The item's
// note has the rest that kvd remembers of it, so an item costs no byte more than the cache's.
//
// No function knows a session or the words of a protocol. Threads: the shard's. Nothing is
// allocated.
//
// Invariants: 1. An item is complete and pinned when it is linked. (is_ready, before each link) 2.
// Only an item without other readers is changed in place. (count) 3. Each command on an item counts
// as a hit or a miss of its kind, here alone.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "alloc/keyed_cache_datapath.h"
#include "apps/kvd/kv_counters.h"
#include "apps/kvd/stats_datapath.h"
#include "platform/assert.h"
#include "transport/loop/event_loop.h"

namespace bedplate::kvd {

inline constexpr uint32_t kKeyBytesMax = 250;
inline constexpr uint32_t kDigitsMax = 20;
inline constexpr std::string_view kLineEnd = "\r\n";
inline constexpr std::string_view kValueWord = "VALUE ";  // begins an item's head; the key follows

struct Crossing;

// State that all sessions of a shard share; it outlives them.
struct Environment {
  EventLoop* loop = nullptr;  // tells the time
  KeyedCache* cache = nullptr;
  Counters* counters = nullptr;
  const Facts* facts = nullptr;
  Stats* stats = nullptr;
  Crossing* crossing = nullptr;  // to the other shards; nullptr: this shard owns all keys
  // Whether sessions have more to do than to execute a command at once: a listener has a limit, or
  // another shard may own the key. One flag, so that a command looks once.
  bool needs_care = false;
  bool is_limited = false;             // a listener has a limit: each session asks its own
  const Counter* limits_on = nullptr;  // the same if it is not 0, with several shards

  bool is_own_thread() const noexcept { return loop == nullptr || loop->is_own_thread(); }
  bool has_limits() const noexcept {
    return limits_on != nullptr ? limits_on->read() != 0 : is_limited;
  }
  void set_limited(bool is_on) noexcept {
    is_limited = is_on;
    needs_care = is_on || crossing != nullptr;
  }
};

inline std::string_view value_of(CacheItem& item) noexcept {
  BP_DCHECK(item.body_bytes >= kLineEnd.size() && item.head_bytes > kValueWord.size());
  return {item.body(), item.body_bytes - kLineEnd.size()};
}

// An item's note, in its bits.
struct ItemNote {
  uint32_t flags = 0;         // the client's
  uint32_t used_at : 30 = 0;  // the last read or change, in units of Items::kUseUnitNs
  uint32_t is_stale : 1 = 0;  // its value is out of date, and served until somebody stores another
  uint32_t is_won : 1 = 0;    // a client was told to store another value
};
static_assert(sizeof(ItemNote) == sizeof(CacheItem::note));

inline ItemNote note_of(const CacheItem& item) noexcept {
  return std::bit_cast<ItemNote>(item.note);
}
inline void set_note(CacheItem& item, const ItemNote& note) noexcept {
  item.note = std::bit_cast<uint64_t>(note);
}

// When a value is stored; kNone: the command stores none.
enum class Storing : uint8_t { kNone, kSet, kAdd, kReplace, kAppend, kPrepend, kCas };

enum class Outcome : uint8_t {
  kDone,
  kNotStored,  // the condition of an add, replace, append or prepend does not hold
  kExists,     // it has another version
  kNotFound,
  kNotNumber,
  kTooLarge,
  kNoMemory,
};

class Items {
 public:
  // 0.27 s: the count of them wraps after nine years.
  static constexpr uint64_t kUseUnitNs = uint64_t{1} << 28;

  explicit Items(const Environment& environment) noexcept : environment_(environment) {}

  // The cache's time at which an item expires, by memcached's rules for a client's number.
  uint64_t expires_ns(int64_t seconds) const noexcept;

  // Notes that a client reads or changes the item.
  void use(CacheItem& item) const noexcept {
    item.is_fetched = true;
    ItemNote note = note_of(item);
    note.used_at = now() & kUsesMask;
    set_note(item, note);
  }
  // The time since use() or make(), to within a unit.
  uint64_t idle_ns(const CacheItem& item) const noexcept {
    return ((now() - note_of(item).used_at) & kUsesMask) * kUseUnitNs;
  }

  // The item that a get reads; nullptr: there is none.
  CacheItem* get(std::string_view key) noexcept {
    CacheItem* const item = environment_.cache->find(key);
    environment_.counters->count_get(item != nullptr);
    if (item != nullptr) use(*item);
    return item;
  }
  // The same for a get that sets its expiry, too. `expiry_s`: as the client sent it.
  CacheItem* get_and_touch(std::string_view key, int64_t expiry_s) noexcept;
  // Sets the expiry of an item. Returns kDone or kNotFound, as remove() does.
  Outcome touch(std::string_view key, int64_t expiry_s) noexcept {
    return set_expiry(environment_.cache->find(key), expiry_s);
  }
  Outcome remove(std::string_view key) noexcept;
  // Drops all items, now or, with an expiry over 0, at that time. It counts nothing.
  void flush(int64_t expiry_s) noexcept;

  struct NewItem {
    uint32_t flags = 0;
    uint64_t expires_ns = KeyedCache::kNever;
    uint64_t value_bytes = 0;
    bool may_reuse = false;  // as that of KeyedCache
  };
  // Makes an item that lacks only its value, pinned; nullptr: no memory for it.
  CacheItem* make(std::string_view key, const NewItem& wanted) noexcept;

  // `item`: the cache's item of that key now, until the next make(); nullptr: not kDone.
  struct Changed {
    Outcome outcome;
    CacheItem* item = nullptr;
  };
  struct StoreTerms {
    Storing storing = Storing::kSet;
    uint64_t version = 0;        // kCas: stores over this version only
    bool joins_version = false;  // a join joins this version only
    bool may_be_stale = false;   // kCas: also stores over a later version, but marked as stale
    bool makes_missing = false;  // a join stores its value if there is no item
  };
  // Stores `item`, which is pinned and complete, or joins it to the present one.
  Changed store(CacheItem& item, const StoreTerms& terms) noexcept;

  // Whether a client may store so long a value.
  bool fits(uint64_t value_bytes) const noexcept {
    return value_bytes <= environment_.facts->value_bytes_max;
  }
  // Makes the item that a client's value comes into, as make() does; no item: it is refused, for
  // this reason, which is counted. A refused set removes the old value: the client wanted to
  // replace it.
  Changed make_for(std::string_view key, const NewItem& wanted, Storing storing) noexcept;
  // Stores an item of make_for() whose value has come, and gives it up.
  Changed store_received(CacheItem& item, const StoreTerms& terms) noexcept {
    environment_.counters->sets.add(1);
    const Changed changed = store(item, terms);
    environment_.cache->release(item);
    return changed;
  }
  // Both, for a value that is there.
  Changed store_value(std::string_view key, std::string_view value, const NewItem& wanted,
                      const StoreTerms& terms) noexcept;

  // Stores a short value without a condition; nullptr: no memory for it, which is counted.
  CacheItem* put(std::string_view key, std::string_view value, uint32_t flags,
                 uint64_t expires_ns) noexcept;

  struct CountTerms {
    bool is_incr = true;
    uint64_t delta = 1;
    std::optional<uint64_t> version = {};  // counts this version only
  };
  struct Counted {
    Changed changed;
    uint64_t number = 0;
  };
  // Adds to the number that the item has as its value, or subtracts from it, down to 0.
  Counted count(std::string_view key, const CountTerms& terms) noexcept;

  // Counts the refusal of a value.
  Outcome refused(Outcome outcome) noexcept;

 private:
  static constexpr uint32_t kUsesMask = (uint32_t{1} << 30) - 1;

  uint32_t now() const noexcept {
    return static_cast<uint32_t>(environment_.cache->now_ns() / kUseUnitNs);
  }
  static bool is_ready(CacheItem& item) noexcept;
  Outcome set_expiry(CacheItem* item, int64_t expiry_s) noexcept;
  Outcome compare(const CacheItem* old, CacheItem& item, const StoreTerms& terms) noexcept;
  Changed link(CacheItem& item) noexcept;
  Changed join(CacheItem& old, CacheItem& more, bool is_append) noexcept;

  const Environment& environment_;
};

}  // namespace bedplate::kvd
