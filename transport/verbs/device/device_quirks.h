// Defects of devices, and of the kernel below them, against the specification: each one that we
// met, in one place. Code that works around one asks for it by its name.
//
// To see if a quirk is still there, deny it (VerbsDeviceOptions::denied; the tests' verbs-traffic
// denies the NAME of its word quirk_off=NAME), and run the test of "Shown by", in the guest
// (tests/guest/guest_test.py verbs_over_soft_roce, or tests/guest/two_guests_test.py) on the kernel
// in question. If that passes, the quirk can go, with the code that asks for it. VerbsDeniedQuirks
// shows the failures without four of them.
//
// The defects below have no name, as their workarounds are right on every device. All were seen
// with soft RoCE of Linux 6.1 and rdma-core 44.
// - Soft RoCE loses its timer with a packet now and then: it stops without a word until
//   more is posted, or for ever. VerbsEndpoint::look_at_progress. Shown by
//   VerbsEnds.WhatDoesNotEndIsFollowedByMore, cable_that_is_pulled_under_traffic (two guests).
// - It takes 7 retries as retries without end: RetryOptions has 6. Shown by
//   VerbsLinks.ADeviceThatEndsNothingIsNotWaitedForWithoutEnd, whose 7 may not end by themselves.
// - A queue pair that is destroyed before its windows waits 50 s for them, and crashes: they go
//   first (VerbsEndpoint, window_probe.cc). Shown by VerbsRandom.WithBreaksAndWindows.
// - It takes imm_data from requests that have none: SendQueue clears it, else a bind after an
//   invalidation is refused. Shown by VerbsRandom.WithBreaksAndWindows.
// - Its driver names no request when its doorbell fails: SendQueue::post then takes
//   all of them for posted. Shown by VerbsEnds.ADeviceThatGoesAwayEndsAllAndTheProcessGoesOn.
// - It has no event for a queue pair's last receive, nor for a peer that asks without the right:
//   VerbsDevice::tells_last_receive is learned, why_broken (verbs_endpoint.cc) looks. Shown by
//   VerbsEnds.WhereADeviceTellsOfTheLastReceiveThatIsWaitedForButNotForEver and
//   VerbsLinks.WhoAsksForWhatItMayNotIsNamedByItsVictim.
// - The kernel pins no page that the process may not write: read-only memory gets no key
//   (joined_verbs.h, plan_verbs_contexts). Shown by VerbsQuirkSigns.WhatMayNotBeWrittenIsNotPinned.
#pragma once

#include <infiniband/verbs.h>

namespace bedplate {

// Decided once, when the device is opened; all false: it follows the specification.
struct DeviceQuirks {
  // After RESET a queue pair goes on with a read that it was answering, and refuses the requests of
  // every later life. So a reconnect makes the queue pair anew (QueuePair::renew).
  // Seen: soft RoCE of Linux 6.1. Shown by hosts_that_are_reset_under_traffic (two guests).
  bool reset_keeps_reads = false;

  // A read or an atomic may end well without a byte of its answer: after a loss, a NAK for a later
  // request counts as its acknowledgement, and its own answer, which comes later, as a duplicate.
  // So the answer's place is marked before (RemoteOperations::mark_answer). The data path asks for
  // no other quirk. Seen: soft RoCE of Linux 6.1. Shown by hosts_that_are_frozen_under_traffic (two
  // guests); the workaround by VerbsEnds.AnAnswerThatHasNotComeIsUnknown.
  bool ends_without_answer = false;

  // A receive that is too short for its message ends with LOC_QP_OP_ERR, and not LOC_LEN_ERR; the
  // peer is cut off for it all the same (verbs_endpoint_receive_datapath.cc).
  // Seen: soft RoCE of Linux 6.1. Shown by VerbsQuirkSigns.HidesLongMessages.
  bool hides_long_messages = false;

  // Once its interface goes down under a connection, its connection manager stays dead until its
  // link is made anew. There is no workaround: the log says so (LinkDialer::back_off).
  // Seen: soft RoCE of Linux 6.1. Shown by
  // VerbsProcesses.ALinkThatWasDownLosesNothingAndBringsNothingTwice, which is skipped by rdma_cm.
  bool loses_manager = false;

  // A peer can read past the end of a memory window. So windows are used only if the configuration
  // trusts them. Found by a probe (window_probe.h), on every device. Seen: soft
  // RoCE of Linux 6.1. Shown by VerbsDevice.KnowsWhetherWindowsAreEnforced.
  bool ignores_window_bounds = false;

  // These, but for those of `denied`.
  DeviceQuirks without(const DeviceQuirks& denied) const noexcept;
};

// The quirks that the device's vendor tells: all but ignores_window_bounds. Threads: any.
DeviceQuirks quirks_of(const ibv_device_attr& device) noexcept;

}  // namespace bedplate
