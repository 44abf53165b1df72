#include "apps/kvd/stats_datapath.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <span>

#include "platform/assert.h"
#include "platform/cache_line.h"
#include "platform/units.h"
#include "transport/sockets/stream_session_datapath.h"

namespace bedplate::kvd {
namespace {

struct Source {
  const Facts& facts;
  std::span<const Counters* const> counters;  // of each shard
  uint64_t now_ns;

  // The sum of `value(counters)` over all shards.
  template <typename Value>
  uint64_t sum(Value&& value) const {
    uint64_t all = 0;
    for (const Counters* const each : counters) all += value(*each);
    return all;
  }
};

struct Stat {
  std::string_view name;
  uint64_t (*value)(const Source& from);
  bool is_reset = false;       // `stats reset` resets it
  std::string_view text = {};  // instead of a value
};

constexpr Stat level(std::string_view name, uint64_t (*value)(const Source&)) {
  return {name, value};
}
constexpr Stat constant(std::string_view name, std::string_view text) {
  return {name, nullptr, false, text};
}
template <Counter Counters::*kCounter>
constexpr Stat counted(std::string_view name) {
  return {name,
          [](const Source& from) {
            return from.sum([](const Counters& each) { return (each.*kCounter).read(); });
          },
          true};
}
template <Counter KeyedCacheCounters::*kCounter>
constexpr Stat cached(std::string_view name, bool is_reset) {
  return {name,
          [](const Source& from) {
            return from.sum([](const Counters& each) { return (each.cache.*kCounter).read(); });
          },
          is_reset};
}
template <auto kCounter>
constexpr Stat of_clients(std::string_view name, bool is_reset) {
  return {name,
          [](const Source& from) {
            return from.sum([](const Counters& each) { return (each.clients.*kCounter).read(); });
          },
          is_reset};
}

using C = Counters;
using S = StreamServerCounters;
using K = KeyedCacheCounters;

constexpr Stat kStats[] = {
    level("pid", [](const Source& from) { return from.facts.pid; }),
    level("uptime",
          [](const Source& from) { return (from.now_ns - from.facts.started_ns) / kNsPerSecond; }),
    level("time", [](const Source&) { return static_cast<uint64_t>(std::time(nullptr)); }),
    constant("version", kServerVersion),
    level("pointer_size", [](const Source&) -> uint64_t { return 8 * sizeof(void*); }),
    level("max_connections", [](const Source& from) { return from.facts.connections_max; }),
    of_clients<&S::connections_open>("curr_connections", false),
    of_clients<&S::connections_total>("total_connections", true),
    of_clients<&S::connections_refused>("rejected_connections", true),
    counted<&C::gets>("cmd_get"),
    counted<&C::sets>("cmd_set"),
    counted<&C::flushes>("cmd_flush"),
    {"cmd_touch",
     [](const Source& from) {
       return from.sum(
           [](const Counters& each) { return each.touch_hits.read() + each.touch_misses.read(); });
     },
     true},
    counted<&C::hits>("get_hits"),
    counted<&C::misses>("get_misses"),
    counted<&C::delete_misses>("delete_misses"),
    counted<&C::delete_hits>("delete_hits"),
    counted<&C::incr_misses>("incr_misses"),
    counted<&C::incr_hits>("incr_hits"),
    counted<&C::decr_misses>("decr_misses"),
    counted<&C::decr_hits>("decr_hits"),
    counted<&C::cas_misses>("cas_misses"),
    counted<&C::cas_hits>("cas_hits"),
    counted<&C::cas_badval>("cas_badval"),
    counted<&C::touch_hits>("touch_hits"),
    counted<&C::touch_misses>("touch_misses"),
    counted<&C::too_large>("store_too_large"),
    counted<&C::no_memory>("store_no_memory"),
    of_clients<&S::received_bytes>("bytes_read", true),
    of_clients<&S::sent_bytes>("bytes_written", true),
    level("limit_maxbytes", [](const Source& from) { return from.facts.memory_bytes; }),
    level("threads", [](const Source& from) -> uint64_t { return from.facts.shard_count; }),
    cached<&K::bytes>("bytes", false),
    cached<&K::items>("curr_items", false),
    counted<&C::stored>("total_items"),
    cached<&K::expired_unfetched>("expired_unfetched", true),
    cached<&K::evicted_unfetched>("evicted_unfetched", true),
    cached<&K::evictions>("evictions", true),
    cached<&K::reclaimed>("reclaimed", true),
};

constexpr Stat kSettings[] = {
    level("maxbytes", [](const Source& from) { return from.facts.memory_bytes; }),
    level("maxconns", [](const Source& from) { return from.facts.connections_max; }),
    constant("evictions", "on"),
    constant("cas_enabled", "yes"),
    constant("maxconns_fast", "yes"),
    constant("binding_protocol", "ascii"),
    constant("lru_crawler", "no"),
    level("num_threads", [](const Source& from) -> uint64_t { return from.facts.shard_count; }),
    level("item_size_max", [](const Source& from) { return from.facts.value_bytes_max; }),
    level("client_flags_size", [](const Source&) -> uint64_t { return sizeof(uint32_t); }),
};

constexpr Stat kItems[] = {
    cached<&K::items>("items:1:number", false),
    cached<&K::evictions>("items:1:evicted", true),
    counted<&C::no_memory>("items:1:outofmemory"),
    cached<&K::reclaimed>("items:1:reclaimed", true),
    cached<&K::expired_unfetched>("items:1:expired_unfetched", true),
    cached<&K::evicted_unfetched>("items:1:evicted_unfetched", true),
};

constexpr uint64_t kPageBytes = kMiB;
uint64_t chunks(const Source& from) { return from.facts.memory_bytes / kCacheLineBytes; }
uint64_t used_chunks(const Source& from) {
  return from.sum([](const Counters& each) { return each.cache.bytes.read(); }) / kCacheLineBytes;
}

constexpr Stat kSlabs[] = {
    level("1:chunk_size", [](const Source&) -> uint64_t { return kCacheLineBytes; }),
    level("1:chunks_per_page",
          [](const Source&) -> uint64_t { return kPageBytes / kCacheLineBytes; }),
    level("1:total_pages", [](const Source& from) { return from.facts.memory_bytes / kPageBytes; }),
    level("1:total_chunks", chunks),
    level("1:used_chunks", used_chunks),
    level("1:free_chunks", [](const Source& from) { return chunks(from) - used_chunks(from); }),
    level("1:free_chunks_end", [](const Source&) -> uint64_t { return 0; }),
    cached<&K::bytes>("1:mem_requested", false),
    counted<&C::hits>("1:get_hits"),
    counted<&C::sets>("1:cmd_set"),
    counted<&C::delete_hits>("1:delete_hits"),
    counted<&C::incr_hits>("1:incr_hits"),
    counted<&C::decr_hits>("1:decr_hits"),
    counted<&C::cas_hits>("1:cas_hits"),
    counted<&C::cas_badval>("1:cas_badval"),
    counted<&C::touch_hits>("1:touch_hits"),
    level("active_slabs", [](const Source&) -> uint64_t { return 1; }),
    level("total_malloced", [](const Source& from) { return from.facts.memory_bytes; }),
};

constexpr std::span<const Stat> kSectionStats[] = {kStats, kSettings, kItems, kSlabs};

// The length of the longest answer: all lines of a section are written in one step.
constexpr size_t longest_bytes() {
  constexpr size_t kDigitsMax = 20;
  size_t longest = 0;
  for (const std::span<const Stat> section : kSectionStats) {
    size_t bytes = std::string_view("END\r\n").size();
    for (const Stat& each : section) {
      bytes += std::string_view("STAT  \r\n").size() + each.name.size() +
               std::max(each.text.size(), kDigitsMax);
    }
    longest = std::max(longest, bytes);
  }
  return longest;
}
static_assert(longest_bytes() <= StreamSession::kStepTextBytes);

std::span<const Stat> stats_of(Stats::Section section) {
  return kSectionStats[static_cast<size_t>(section)];
}

}  // namespace

size_t Stats::count(Section section) noexcept {
  static_assert(std::size(kSectionStats) == kSections && std::size(kStats) <= kCountMax &&
                std::size(kSlabs) <= kCountMax);
  return stats_of(section).size();
}

Stats::Line Stats::line(Section section, size_t index, uint64_t now_ns) const noexcept {
  BP_DCHECK(index < count(section));
  const Stat& stat = stats_of(section)[index];
  if (stat.value == nullptr) return {stat.name, stat.text};
  const uint64_t before = before_[static_cast<size_t>(section)][index].read();
  const uint64_t value = stat.value({facts_, counters_, now_ns});
  return {stat.name, {}, value - std::min(value, before)};
}

void Stats::reset() noexcept {
  for (size_t section = 0; section < kSections; ++section) {
    const std::span<const Stat> stats = kSectionStats[section];
    for (size_t i = 0; i < stats.size(); ++i) {
      if (stats[i].is_reset) before_[section][i].set(stats[i].value({facts_, counters_, 0}));
    }
  }
}

}  // namespace bedplate::kvd
