#include "apps/kvd/stats_datapath.h"

#include <ctime>
#include <iterator>

#include "platform/assert.h"
#include "platform/units.h"
#include "transport/sockets/stream_session_datapath.h"

namespace bedplate::kvd {
namespace {

struct Source {
  const Facts& facts;
  const Counters& counters;
  uint64_t now_ns;
};

struct Stat {
  std::string_view name;
  uint64_t (*value)(const Source& from);
  bool is_reset = false;  // `stats reset` resets it
};

constexpr Stat level(std::string_view name, uint64_t (*value)(const Source&)) {
  return {name, value};
}
template <Counter Counters::*kCounter>
constexpr Stat counted(std::string_view name) {
  return {name, [](const Source& from) { return (from.counters.*kCounter).read(); }, true};
}
template <Counter KeyedCacheCounters::*kCounter>
constexpr Stat cached(std::string_view name, bool is_reset) {
  return {name, [](const Source& from) { return (from.counters.cache.*kCounter).read(); },
          is_reset};
}
template <Counter StreamServerCounters::*kCounter>
constexpr Stat of_clients(std::string_view name, bool is_reset) {
  return {name, [](const Source& from) { return (from.counters.clients.*kCounter).read(); },
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
    level("version", nullptr),
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
       return from.counters.touch_hits.read() + from.counters.touch_misses.read();
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
    level("threads", [](const Source&) -> uint64_t { return 1; }),
    cached<&K::bytes>("bytes", false),
    cached<&K::items>("curr_items", false),
    counted<&C::stored>("total_items"),
    cached<&K::expired_unfetched>("expired_unfetched", true),
    cached<&K::evicted_unfetched>("evicted_unfetched", true),
    cached<&K::evictions>("evictions", true),
    cached<&K::reclaimed>("reclaimed", true),
};

// The length of the longest answer: all lines are written in one step.
constexpr size_t longest_bytes() {
  constexpr size_t kDigitsMax = 20;
  size_t bytes = std::string_view("END\r\n").size();
  for (const Stat& each : kStats) {
    bytes += std::string_view("STAT  \r\n").size() + each.name.size() + kDigitsMax;
  }
  return bytes;
}
static_assert(longest_bytes() <= StreamSession::kStepTextBytes);

}  // namespace

size_t Stats::count() noexcept {
  static_assert(std::size(kStats) <= kCountMax);
  return std::size(kStats);
}

std::string_view Stats::name(size_t index) noexcept {
  BP_DCHECK(index < count());
  return kStats[index].name;
}

bool Stats::is_version(size_t index) noexcept {
  BP_DCHECK(index < count());
  return kStats[index].value == nullptr;
}

uint64_t Stats::value(size_t index, uint64_t now_ns) const noexcept {
  BP_DCHECK(index < count() && !is_version(index));
  return kStats[index].value({facts_, counters_, now_ns}) - before_[index];
}

void Stats::reset() noexcept {
  for (size_t i = 0; i < count(); ++i) {
    if (kStats[i].is_reset) before_[i] = kStats[i].value({facts_, counters_, 0});
  }
}

}  // namespace bedplate::kvd
