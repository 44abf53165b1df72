#include "transport/loop/shard_plan.h"

#include <algorithm>
#include <cstdio>

#include "platform/assert.h"
#include "platform/log.h"

namespace bedplate {
namespace {

struct ItemWords {
  const char* excess;
  const char* function;
  const char* source;  // of LogLimit
};

constexpr ItemWords kWords[kShardItemCount] = {
    {"arms more timers on", "ServicePlan::timers (bp_plan_timers)", "timers that are not planned"},
    {"attaches more sockets to", "ServicePlan::connections (bp_plan_connections)",
     "sockets that are not planned"},
    {"watches more descriptors on", "ServicePlan::watches (bp_plan_watches)",
     "watches that are not planned"}};

}  // namespace

void ShardPlan::add(HeapOwner owner, const char* service, const ShardItemCounts& counts) {
  BP_ASSERT(owner.index < parts_.size() && service != nullptr);
  Part& part = parts_[owner.index];
  part.service = part.service == nullptr ? service : "without a heap owner of its own";
  for (size_t i = 0; i < kShardItemCount; ++i) {
    part.counts[i] += counts[i];
    sum_[i] += counts[i];
  }
}

bool ShardPlan::allows(ShardItem item, HeapOwner owner, uint32_t count) const noexcept {
  const Part& part = parts_[owner.index];
  return part.service == nullptr || count <= part.counts[static_cast<size_t>(item)];
}

void ShardPlan::describe_excess(ShardItem item, const OwnerCounts& counts, char* text,
                                size_t text_bytes) const noexcept {
  const auto index = static_cast<size_t>(item);
  const ItemWords& words = kWords[index];
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (part.service == nullptr || counts[i] <= part.counts[index]) continue;
    std::snprintf(text, text_bytes, "service %s %s shard %s than it plans, %u: %s", part.service,
                  words.excess, shard(), part.counts[index], words.function);
    return;
  }
  std::snprintf(text, text_bytes, "code of no service %s shard %s than all services plan, %u: %s",
                words.excess, shard(), sum_[index], words.function);
}

void ShardPlan::stop_at_excess(ShardItem item, const OwnerCounts& counts) const noexcept {
  char text[256];
  describe_excess(item, counts, text, sizeof text);
  contract_broken("%s", text);
}

void ShardPlan::look_at(ShardItem item, HeapOwner owner, const OwnerCounts& counts) noexcept {
  if (allows(item, owner, counts[owner.index])) return;
  const auto index = static_cast<size_t>(item);
  if (!limits_[index].try_pass(kWords[index].source)) return;
  char text[256];
  describe_excess(item, counts, text, sizeof text);
  BP_LOG_WARNING("broken contract: %s", text);
}

void ShardPlan::log_refusal(ShardItem item, const OwnerCounts& counts) noexcept {
  const auto index = static_cast<size_t>(item);
  if (!limits_[index].try_pass(kWords[index].source)) return;
  char text[256];
  describe_excess(item, counts, text, sizeof text);
  BP_LOG_WARNING("broken contract: %s; it is refused (ENOSPC)", text);
}

const char* ShardPlan::list(OwnerSet owners, char* text, size_t text_bytes) const noexcept {
  text[0] = '\0';
  size_t used = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if ((owners >> i & 1) == 0 || parts_[i].service == nullptr || used >= text_bytes) continue;
    used += static_cast<size_t>(std::snprintf(text + used, text_bytes - used, "%s%s",
                                              used == 0 ? " (" : ", ", parts_[i].service));
  }
  if (used > 0 && used < text_bytes) std::snprintf(text + used, text_bytes - used, ")");
  return text;
}

}  // namespace bedplate
