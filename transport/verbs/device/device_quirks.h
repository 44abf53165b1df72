// What devices, and the kernel below them, do otherwise than the specification says: each defect
// that was met, in one place. The code that gets around one asks for it by its name.
//
// Whether one is still there: deny it (VerbsDeviceOptions::denied; the tests' verbs-traffic denies
// what its word quirk_off=NAME names), and run what "Shown by" names, in the guest
// (tests/guest/guest_test.py verbs_over_soft_roce, or tests/guest/two_guests_test.py) on the kernel
// in question. Where that passes, the quirk can go, with the code that asks for it. What goes wrong
// without four of them, VerbsDeniedQuirks shows.
//
// For what follows there is no name, as what gets around it is right on every device. All were seen
// with soft RoCE of Linux 6.1 and rdma-core 44.
// - Soft RoCE loses its timer with a packet now and then: it stops without a word until
//   more is posted, or for ever. VerbsEndpoint::look_at_progress. Shown by
//   VerbsEnds.WhatDoesNotEndIsFollowedByMore, cable_that_is_pulled_under_traffic (two guests).
// - It takes 7 retries as retries without end: RetryOptions has 6. Shown by
//   VerbsLinks.ADeviceThatEndsNothingIsNotWaitedForWithoutEnd, whose 7 may not end by themselves.
// - When a queue pair goes before its windows it waits 50 s for them, and crashes: they go first
//   (VerbsEndpoint, window_probe.cc). Shown by VerbsRandom.WithBreaksAndWindows.
// - It takes imm_data from requests that have none: SendQueue clears it, or what is bound after an
//   invalidation is refused. Shown by VerbsRandom.WithBreaksAndWindows.
// - Its driver names no request when its doorbell fails: SendQueue::post then takes
//   all of them for posted. Shown by VerbsEnds.ADeviceThatGoesAwayEndsAllAndTheProcessGoesOn.
// - It has no event for a queue pair's last receive, nor for a peer that asks for what it may not:
//   VerbsDevice::tells_last_receive is learned, VerbsEndpoint::why_broken looks. Shown by
//   VerbsEnds.WhereADeviceTellsOfTheLastReceiveThatIsWaitedForButNotForEver and
//   VerbsLinks.WhoAsksForWhatItMayNotIsNamedByItsVictim.
// - The kernel pins no page that the process may not write: what is mapped read-only gets no key
//   (joined_verbs.h, plan_verbs_contexts). Shown by VerbsQuirkSigns.WhatMayNotBeWrittenIsNotPinned.
#pragma once

#include <infiniband/verbs.h>

namespace bedplate {

// Decided once, when the device is opened; all false: as the specification says.
struct DeviceQuirks {
  // RESET leaves of a queue pair a read that it was answering: it goes on with it, and refuses what
  // comes next in every later life. So a reconnect makes the queue pair anew (QueuePair::renew).
  // Seen: soft RoCE of Linux 6.1. Shown by hosts_that_are_reset_under_traffic (two guests).
  bool reset_keeps_reads = false;

  // A read or an atomic may end well without a byte of its answer: after a loss, a NAK for what is
  // behind it counts as its acknowledgement, and the answer, which comes later, as a repetition. So
  // the answer's place is marked before (VerbsEndpoint::mark_answer), the one quirk that is asked
  // for on the data path. Seen: soft RoCE of Linux 6.1. Shown by
  // hosts_that_are_frozen_under_traffic (two guests); what it does about it by
  // VerbsEnds.AnAnswerThatHasNotComeIsUnknown.
  bool ends_without_answer = false;

  // Of a message that is longer than its receive the receiver is told LOC_QP_OP_ERR, and not
  // LOC_LEN_ERR; the peer is cut off for it all the same (verbs_provider_datapath.cc).
  // Seen: soft RoCE of Linux 6.1. Shown by VerbsQuirkSigns.HidesLongMessages.
  bool hides_long_messages = false;

  // Its connection manager is lost for good when its interface goes down under a connection, until
  // its link is made anew. Nothing gets around that: the log says it (LinkConnector::back_off).
  // Seen: soft RoCE of Linux 6.1. Shown by
  // VerbsProcesses.ALinkThatWasDownLosesNothingAndBringsNothingTwice, which is skipped by rdma_cm.
  bool loses_manager = false;

  // A peer may read past the end of a memory window. So windows are used only where the
  // configuration trusts them. Found out by trying (window_probe.h), on every device. Seen: soft
  // RoCE of Linux 6.1. Shown by VerbsDevice.KnowsWhetherWindowsAreEnforced.
  bool ignores_window_bounds = false;

  // These, but for those of `denied`.
  DeviceQuirks without(const DeviceQuirks& denied) const noexcept;
};

// Those that are known by the device's maker: all but ignores_window_bounds. Threads: any.
DeviceQuirks quirks_of(const ibv_device_attr& device) noexcept;

}  // namespace bedplate
