// Outsiders: a process is an outsider if it is not trusted, or if it runs neither as root nor as
// the appliance's user ([appliance] user, or else the user that starts the appliance). An outsider
// must not be able to harm this process through memory that it may write.
//
// A process that may write a segment's file can punch holes into it. A hole in 4 KiB pages reads as
// zeros, and is filled on the next touch. If this process touches a hole in hugepages and no
// hugepage is free, the kernel ends this process. A device goes on using the old page. So memory
// that outsiders may write uses 4 KiB pages, and no device of this process uses it. (Processes of
// the same user can write all memory of this process anyway, by ptrace.)
#pragma once

#include <vector>

#include "apps/configuration/configuration.h"
#include "pinned_pool/plan.h"

namespace bedplate {

// A process whose user does not exist is an outsider.
bool is_outsider(const Configuration& configuration, const ProcessSettings& process) noexcept;

// Whether the process may write the segment. It may write its own heap and the segments that its
// `write` names; a trusted process also its group's FIFOs, any other its own exchange segment.
bool may_write(const Configuration& configuration, const ProcessSettings& process,
               const OwnerName& segment) noexcept;

// Gives 4 KiB pages to segments that outsiders may write, and keeps them from devices. Errors
// (kConfiguration): the configuration asks for other pages for such a segment, or exports it to
// peers.
Result<void> keep_from_outsiders(const Configuration& configuration,
                                 std::vector<SegmentRequest>* segments);

}  // namespace bedplate
