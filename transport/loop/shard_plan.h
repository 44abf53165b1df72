// The plan of a shard: how many timers, sockets and watches each service may have there at once. A
// service is known by the heap owner that it runs as.
//
// The loop and the sockets refuse only more than the sum of all services, by comparisons that they
// make anyway. Debug builds also compare each service with its own part of the plan, and warn. They
// stop nothing then: a callback without an owner runs as the owner of the callback before it, so a
// warning may name the wrong service. The text about an excess names the service, the shard and the
// function of ServicePlan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "alloc/heap_owner.h"
#include "platform/log_limit.h"

namespace bedplate {

enum class ShardItem : uint8_t { kTimers, kSockets, kWatches };
inline constexpr size_t kShardItemCount = 3;
using ShardItemCounts = std::array<uint32_t, kShardItemCount>;  // by ShardItem

// How many of one item each heap owner has, by its index.
using OwnerCounts = std::array<uint32_t, kHeapOwnerCountMax>;
// A set of heap owners: a bit for each index.
using OwnerSet = uint32_t;
static_assert(kHeapOwnerCountMax <= 32);
constexpr OwnerSet set_of(HeapOwner owner) noexcept { return OwnerSet{1} << owner.index; }

// Threads: the one that makes it; then the shard's.
class ShardPlan {
 public:
  explicit ShardPlan(std::string shard) : shard_(std::move(shard)) {}

  // Adds what `service` plans. Services that share an owner, since the table of owners is full,
  // share their plan as well. Before the loop runs: it allocates. Ownership: `service` is static.
  void add(HeapOwner owner, const char* service, const ShardItemCounts& counts);

  const char* shard() const noexcept { return shard_.c_str(); }
  // The plan of all services together.
  uint32_t planned(ShardItem item) const noexcept { return sum_[static_cast<size_t>(item)]; }
  // Whether `owner` may have `count` by its own part of the plan. True for an owner that is no
  // service.
  bool allows(ShardItem item, HeapOwner owner, uint32_t count) const noexcept;

  // Stops the process because more are in use than planned. `counts`: those in use, with the one
  // too many.
  [[noreturn]] void stop_at_excess(ShardItem item, const OwnerCounts& counts) const noexcept;
  // The same for an item that is refused with ENOSPC: logs it, at most once in ten seconds.
  void log_refusal(ShardItem item, const OwnerCounts& counts) noexcept;
  // For debug builds: warns if `owner` has more than its own part, at most once in ten seconds.
  void look_at(ShardItem item, HeapOwner owner, const OwnerCounts& counts) noexcept;

  // Writes " (cache, store)" into `text`, for the services among `owners`; "" if there are none.
  // Returns `text`.
  const char* list(OwnerSet owners, char* text, size_t text_bytes) const noexcept;

 private:
  struct Part {
    const char* service = nullptr;  // nullptr: the owner is no service
    ShardItemCounts counts = {};
  };

  void describe_excess(ShardItem item, const OwnerCounts& counts, char* text,
                       size_t text_bytes) const noexcept;

  std::string shard_;
  std::array<Part, kHeapOwnerCountMax> parts_;
  ShardItemCounts sum_ = {};
  std::array<LogLimit, kShardItemCount> limits_ = {LogLimit(1), LogLimit(1), LogLimit(1)};
};

}  // namespace bedplate
