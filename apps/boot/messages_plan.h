// The plan of messages: the segments that [[group]] and [[process]] of a configuration take.
//
//     members              a members table for each group, `members:GROUP`, and for each untrusted
//                          process, `members:PROCESS.K`; written by the owner of the pool alone
//     fifo:GROUP           the FIFOs of a group: what GroupLayout says
//     heap:PROCESS.K       the heap of the K-th process of its kind, if it has one
//     exchange:PROCESS.K   what an untrusted process shares with the owner alone: a group of two
//
// `members` has pages of 4 KiB. The other segments have the pages of the pool, unless outsiders.h
// has to change them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "apps/configuration/configuration.h"
#include "pinned_pool/plan.h"
#include "transport/shm/membership/group_layout.h"

namespace bedplate {

struct GroupPlan {
  OwnerName segment;  // the group fills it, up to a part of its last page
  GroupShape shape;
};

// "fifo:main" belongs to the group main, "exchange:probe.0" to the group probe.0.
inline std::string_view group_name(const OwnerName& segment) noexcept {
  const std::string_view owner = segment.view();
  return owner.substr(owner.find(':') + 1);
}

struct MessagesPlan {
  std::vector<SegmentRequest> requests;
  std::vector<GroupPlan> groups;  // in the order of their requests
};

// Errors (kConfiguration): a group has fewer places than its processes have members, or more than
// kMemberCountMax.
Result<MessagesPlan> plan_messages(const Configuration& configuration);

// Errors (kConfiguration): [[process]] names a segment that is not among `segments`, or asks to
// write a segment that only its owner may write.
Result<void> check_grants(const Configuration& configuration,
                          const std::vector<SegmentRequest>& segments);

// "KIND:NAME.K" for the K-th process (from 0) of one [[process]].
OwnerName instance_owner(std::string_view kind, const ProcessSettings& process, uint32_t number);

// Whether `text`, an element of `read` or `write`, means `segment`. It may be the segment's owner,
// or the common name of segments that each process of a kind has ("heap:worker" means heap:worker.0
// and heap:worker.1).
bool names_segment(std::string_view text, const OwnerName& segment) noexcept;

// The group of two in which an untrusted process and the owner exchange messages.
GroupShape exchange_shape(const ProcessSettings& process) noexcept;

}  // namespace bedplate
