// All known defects of devices, and of the kernel below them, against the specification. Code that
// works around a defect asks for it by its name.
//
// To see if a quirk still exists, deny it (VerbsDeviceOptions::denied; the tests' verbs-traffic
// denies NAME with the word quirk_off=NAME), and run its "Shown by" test in the guest
// (tests/guest/guest_test.py verbs_over_soft_roce, or tests/guest/two_guests_test.py) on the kernel
// in question. If the test passes, remove the quirk and the code that asks for it.
// VerbsDeniedQuirks denies four of them and shows the failures.
//
// The defects below have no name, because their workarounds are right on every device. All were
// seen with soft RoCE of Linux 6.1 and rdma-core 44.
// - Soft RoCE sometimes loses its timer with a packet: it stops silently until more is posted, or
//   for ever. Workaround: VerbsEndpoint::look_at_progress. Shown by
//   VerbsEnds.WhatDoesNotEndIsFollowedByMore, cable_that_is_pulled_under_traffic (two guests).
// - Soft RoCE retries without end if the retry count is 7: RetryOptions has 6. Shown by
//   VerbsLinks.ADeviceThatEndsNothingIsNotWaitedForWithoutEnd, which sets 7.
// - A queue pair that is destroyed before its windows waits 50 s for them, and crashes. So windows
//   are destroyed first (VerbsEndpoint, window_probe.cc). Shown by
//   VerbsRandom.WithBreaksAndWindows.
// - Soft RoCE reads imm_data from requests that have none. SendQueue clears it; otherwise a bind
//   after an invalidation is refused. Shown by VerbsRandom.WithBreaksAndWindows.
// - The driver names no request when its doorbell fails: SendQueue::post then takes all of them for
//   posted. Shown by VerbsEnds.ADeviceThatGoesAwayEndsAllAndTheProcessGoesOn.
// - Soft RoCE has no event for the last receive of a queue pair, and none for a peer without the
//   right. VerbsDevice::tells_last_receive is learned from the first event; why_broken
//   (verbs_endpoint.cc) checks the state itself. Shown by
//   VerbsEnds.WhereADeviceTellsOfTheLastReceiveThatIsWaitedForButNotForEver and
//   VerbsLinks.WhoAsksForWhatItMayNotIsNamedByItsVictim.
// - The kernel pins no page that the process may not write: read-only memory gets no key
//   (joined_verbs.h, plan_verbs_contexts). Shown by VerbsQuirkSigns.WhatMayNotBeWrittenIsNotPinned.
#pragma once

#include <infiniband/verbs.h>

#include "platform/version.h"

namespace bedplate {

// Set once, when the device is opened. All false: the device follows the specification.
struct DeviceQuirks {
  // After RESET a queue pair continues a read that it was answering, and refuses the requests of
  // every later connection. So a reconnect makes a new queue pair (QueuePair::renew).
  // Seen: soft RoCE of Linux 6.1. Shown by hosts_that_are_reset_under_traffic (two guests).
  bool reset_keeps_reads = false;

  // A read or an atomic may end with success before its answer has come. After a loss, the device
  // takes a NAK of a later request for its acknowledgement, and drops the late answer as a
  // duplicate. So the answer's memory gets a mark first (RemoteOperations::mark_answer). The data
  // path asks for no other quirk, except when a receive fails.
  // Seen: soft RoCE of Linux 6.1. Shown by hosts_that_are_frozen_under_traffic (two guests); the
  // workaround by VerbsEnds.AnAnswerThatHasNotComeIsUnknown.
  bool ends_without_answer = false;

  // A receive that is too short for its message ends with LOC_QP_OP_ERR instead of LOC_LEN_ERR. The
  // peer is cut off either way (verbs_endpoint_receive_datapath.cc).
  // Seen: soft RoCE of Linux 6.1. Shown by VerbsQuirkSigns.HidesLongMessages.
  bool hides_long_messages = false;

  // If the interface goes down under a connection, the connection manager stays dead until the RDMA
  // link is made anew. There is no workaround: the log says so (LinkDialer::back_off).
  // Seen: soft RoCE of Linux 6.1. Shown by
  // VerbsProcesses.ALinkThatWasDownLosesNothingAndBringsNothingTwice, which is skipped by rdma_cm.
  bool loses_manager = false;

  // A peer can read past the end of a memory window. So windows are used only if the configuration
  // trusts them. A probe finds it on every device (window_probe.h). Seen: soft RoCE of Linux 6.1.
  // Shown by VerbsDevice.KnowsWhetherWindowsAreEnforced.
  bool ignores_window_bounds = false;

  // These quirks, without those that `denied` sets.
  DeviceQuirks without(const DeviceQuirks& denied) const noexcept;
};

// The quirks that follow from the vendor of the device: all but ignores_window_bounds. Threads:
// any.
DeviceQuirks quirks_of(const ibv_device_attr& device) noexcept;

}  // namespace bedplate
