// The plan of [verbs]: the segments that it takes, and what is registered with its device.
//
//     verbs          messages to and from peers, and the bounce buffer; no peer reaches the former
//     export:NAME    each [[verbs.export]]; the only memory that peers have a standing key for, but
//                    for the bounce buffer and what remote = "read" opens
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/configuration/configuration.h"
#include "pinned_pool/plan.h"

struct ibv_device_attr;

namespace bedplate {

struct VerbsDemand;
struct VerbsShape;

// The registrations of one kind of process with the device of [verbs]. Regions: one for each
// segment, if the device takes it whole, and one for each opening to peers, which pins its bytes
// once more.
struct VerbsContextPlan {
  std::string process;  // the appliance, or a [[process]]
  uint64_t count = 1;   // how many of them may run, each with a context of its own
  uint64_t region_count = 0;
  uint64_t locked_bytes = 0;

  uint64_t total_bytes() const noexcept { return count * locked_bytes; }
};

VerbsShape verbs_shape(const VerbsSettings& settings) noexcept;

// Nothing without [verbs].
std::vector<SegmentRequest> plan_peers(const Configuration& configuration);

// The appliance's context first, then those of each [[process]] with verbs = true; nothing without
// [verbs]. `pool` is the configuration's.
// Segments that a process maps read-only are left out: they have no key (device_quirks.h).
std::vector<VerbsContextPlan> plan_verbs_contexts(const Configuration& configuration,
                                                  const PoolPlan& pool);

// The demands of [verbs] on a device with `limits`, each beside its limit: the queues of the
// appliance, the regions and protection domains of all contexts, since one device has them all.
std::vector<VerbsDemand> plan_verbs_demands(const VerbsSettings& settings,
                                            const std::vector<VerbsContextPlan>& contexts,
                                            const ibv_device_attr& limits, bool uses_windows);

}  // namespace bedplate
