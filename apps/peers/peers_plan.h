// The plan of [verbs]: the segments that it takes, and what is registered with its device.
//
//     verbs          buffers of messages, which peers cannot reach; and the bounce buffer
//     export:NAME    each [[verbs.export]]
//
// Peers have a standing key only for exports, for the bounce buffer and, with remote = "read", for
// the heap and segment 0.
#pragma once

#include <vector>

#include "apps/boot/peers_needs.h"
#include "apps/peers/verbs_settings.h"
#include "pinned_pool/plan.h"

struct ibv_device_attr;

namespace bedplate {

struct VerbsDemand;
struct VerbsShape;

VerbsShape verbs_shape(const VerbsSettings& settings) noexcept;

// Empty without [verbs].
PeersNeeds plan_peers(const Configuration& configuration);

// The appliance's context first, then those of each [[process]] with verbs = true; nothing without
// [verbs]. `pool` is planned from `configuration`. The plan of a process leaves out segments that
// it maps read-only: they have no key (device_quirks.h).
std::vector<VerbsContextPlan> plan_verbs_contexts(const Configuration& configuration,
                                                  const PoolPlan& pool);

// The demands of [verbs] on a device with `limits`, each with its limit: the appliance's queues,
// and the regions and protection domains of all contexts, because all contexts use one device.
// `uses_windows`: exports use memory windows.
std::vector<VerbsDemand> plan_verbs_demands(const VerbsSettings& settings,
                                            const std::vector<VerbsContextPlan>& contexts,
                                            const ibv_device_attr& limits, bool uses_windows);

}  // namespace bedplate
