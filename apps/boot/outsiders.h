// Outsiders: processes that are not trusted, or that run as another user than the appliance
// ([appliance] user, else the one that starts it) and root. Writable memory in their hands must not
// be able to harm this process.
//
// A process that may write a segment's file can punch holes into it. A hole in 4 KiB pages reads as
// zeros, and is filled on the next touch. A hole in hugepages ends the process that touches it if
// no hugepage is free, and a device goes on using the old page. So memory that outsiders may write
// uses 4 KiB pages, and no device of this process uses it. (Processes of the same user can write
// all memory of this process anyway, by ptrace.)
#pragma once

#include <vector>

#include "apps/configuration/configuration.h"
#include "pinned_pool/plan.h"

namespace bedplate {

// A user that does not exist counts as another one.
bool is_outsider(const Configuration& configuration, const ProcessSettings& process) noexcept;

// Whether processes of this kind may write the segment: it is a FIFO of their group, one of the
// process's own segments, or named by `write`.
bool may_write(const Configuration& configuration, const ProcessSettings& process,
               const OwnerName& segment) noexcept;

// Gives 4 KiB pages to segments that outsiders may write, and keeps them from devices. Errors
// (kConfiguration): the configuration asks for other pages for such a segment, or exports it to
// peers.
Result<void> keep_from_outsiders(const Configuration& configuration,
                                 std::vector<SegmentRequest>* segments);

}  // namespace bedplate
