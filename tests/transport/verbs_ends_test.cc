// How what was begun over verbs ends when something goes wrong: in the middle of a transfer, when a
// life ends in a poll, when memory is withdrawn, when the device goes away.
#include <cstring>

#include <fcntl.h>

#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/verbs_fixture.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP_BASE(VerbsEnds, VerbsFixture) {
  bool has_windows() {
    return start({.trust_windows = true}) && rig->device().has_windows();
  }
};

TEST(VerbsEnds, ATransferThatIsRefusedInTheMiddleIsUnknownAndWhatIsBehindNotDone) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  constexpr uint64_t kExportBytes = 12 * kMiB;
  Block target(kExportBytes), source(20 * kMiB);
  std::memset(target.memory, 0, target.bytes);
  std::memset(source.memory, 9, source.bytes);
  CHECK(start({.exported = target.span()}));
  if (rig->device().port().transfer_bytes_max > kExportBytes) {
    BP_SKIP("this RDMA device moves it all by one request");
  }
  RemoteMemory forged = to_a().expose(target.span()).take();
  forged.bytes = source.bytes;  // it runs over the end of the export
  Counted whole, refused, behind;
  CHECK(to_b().put(source.span(), forged, &refused) == SendStatus::kPending);
  CHECK(to_b().put(source.span(), forged, &behind) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return refused.count + behind.count == 2; }));
  BYTES_EQUAL(9, static_cast<uint8_t>(target.memory[0]));  // a part of it has happened
  CHECK(refused.outcome == Outcome::kUnknown);
  CHECK(behind.outcome == Outcome::kNotDone);
  // The next one's end has nothing to do with that part.
  CHECK(rig->connect());
  CHECK(to_b().put(source.span().first(8), forged.part(kExportBytes, 8), &whole) ==
        SendStatus::kPending);
  CHECK(rig->poll_until([&] { return whole.count == 1; }));
  CHECK(whole.outcome == Outcome::kNotDone);
}

// Else a list of them would have to get through before a device that has stopped is told from one
// that is slow.
TEST(VerbsEnds, LargeTransfersEndEachByItself) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  constexpr size_t kCount = 4;
  Block target(kCount * 2 * kMiB), source(2 * kMiB);
  std::memset(target.memory, 0, target.bytes);
  std::memset(source.memory, 9, source.bytes);
  CHECK(start({.exported = target.span()}));
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  Counted ended[kCount];
  for (size_t i = 0; i < kCount; ++i) {  // one list
    CHECK(to_b().put(source.span(), exposed.part(i * source.bytes, source.bytes), &ended[i]) ==
          SendStatus::kPending);
  }
  const uint64_t deadline_ns = monotonic_ns() + 60 * kNsPerSecond;
  while (ended[0].count == 0 && monotonic_ns() < deadline_ns) rig->a.verbs->poll(1);
  LONGS_EQUAL(1, ended[0].count);
  LONGS_EQUAL(0, ended[kCount - 1].count);
  CHECK(rig->poll_until([&] { return ended[kCount - 1].count == 1; }));
}

TEST(VerbsEnds, ALifeThatEndsInAPollIsCounted) {
  if (!start()) BP_SKIP(kNoVerbs);
  Inbox at_b(*rig->b.messenger);
  Block lent(4 * kKiB);
  Counted returned;
  CHECK(to_b().am_send_loan(kLent, {}, lent.span(), &returned) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
  rig->b.verbs.reset();
  uint32_t counted = 0;
  const uint64_t deadline_ns = monotonic_ns() + 10 * kNsPerSecond;
  while (returned.count == 0 && monotonic_ns() < deadline_ns) counted = rig->a.verbs->poll(64);
  CHECK(counted > 0);  // else who sleeps after a poll that found nothing forgets what it began
  CHECK(returned.outcome == Outcome::kUnknown);
}

// Else a device that has stopped sending until more is posted, as soft RoCE does after some losses,
// would be waited for without end.
TEST(VerbsEnds, WhatDoesNotEndIsFollowedByMore) {
  if (!start()) BP_SKIP(kNoVerbs);
  Inbox at_b(*rig->b.messenger);
  CHECK(to_b().am_send(kData, {}) == SendStatus::kDone);  // its end is not asked for
  CHECK(rig->poll_until([&] { return at_b.payloads.size() == 1; }));
  CHECK(rig->poll_until([&] { return rig->a.counters.nudged.read() > 0; }));
  // That ends, and all before it with it: then there is nothing more to wait for.
  bool is_quiet = false;
  for (int i = 0; i < 10 && !is_quiet; ++i) {
    const uint64_t before = rig->a.counters.nudged.read();
    is_quiet = !rig->poll_until([&] { return rig->a.counters.nudged.read() > before; }, 3);
  }
  CHECK(is_quiet);
  LONGS_EQUAL(0, rig->a.counters.broken.read());
}

TEST(VerbsEnds, AFlushEndsBehindWhatWasWithdrawnBeforeIt) {
  if (!has_windows()) BP_SKIP("no RDMA device with memory windows");
  Inbox at_a(*rig->a.messenger);
  Block exposed(8 * kKiB), source(8 * kKiB);
  std::memset(exposed.memory, 0, exposed.bytes);
  std::memset(source.memory, 9, source.bytes);
  auto description = to_a().expose(exposed.span());
  CHECK(description.ok());
  CHECK(to_a().am_send(kData, {}) == SendStatus::kDone);
  CHECK(rig->poll_until([&] { return at_a.payloads.size() == 1; }));
  Counted flushed, late;
  to_a().withdraw(description.value());
  CHECK(to_a().flush(&flushed) == SendStatus::kPending);
  while (flushed.count == 0) rig->b.messenger->poll(16);
  // From here on the memory is its owner's alone. That nothing at all was written only the device
  // knows: what is written through a window may end in the middle of it.
  CHECK(to_b().put(source.span(), description.value(), &late) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return late.count == 1; }));
  CHECK(late.outcome == Outcome::kUnknown);
  BYTES_EQUAL(0, static_cast<uint8_t>(exposed.memory[0]));
  CHECK(rig->connect());
  to_a().withdraw(description.value());  // of a former connection: nothing
  CHECK(to_a().flush(nullptr) == SendStatus::kDone);
}

// What a failed queue pair still held of the shared receives would be lost to its reset.
TEST(VerbsEnds, WhereADeviceTellsOfTheLastReceiveThatIsWaitedForButNotForEver) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(4 * kKiB);
  CHECK(start({.exported = target.span()}));
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  ForgedEvents events(rig->device());
  events.tell(IBV_EVENT_QP_LAST_WQE_REACHED, events.queue_pair(nullptr));
  LONGS_EQUAL(1, events.take());
  CHECK(rig->device().tells_last_receive());
  const uint64_t begin_ns = monotonic_ns();
  break_connection(exposed);  // soft RoCE tells nothing
  CHECK(rig->connect());
  CHECK(monotonic_ns() - begin_ns >= 900 * kNsPerMs);
}

TEST(VerbsEnds, ADeviceThatGoesAwayEndsAllAndTheProcessGoesOn) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(4 * kKiB), lent(4 * kKiB);
  CHECK(start({.exported = target.span()}));
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  Inbox at_b(*rig->b.messenger);
  Counted returned, put, flushed;
  CHECK(to_b().am_send_loan(kLent, {}, lent.span(), &returned) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
  StderrCapture log;
  // As after `rdma link delete`, or when it was pulled out: no call of verbs works any more.
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  CHECK(dup2(nothing, rig->device().context()->cmd_fd) >= 0);
  close(nothing);
  CHECK(to_b().put(lent.span(), exposed, &put) == SendStatus::kPending);
  CHECK(rig->poll_until([&] {
    to_b().am_send(kData, {});
    to_a().am_send(kData, {});
    return to_b().am_send(kData, {}) == SendStatus::kGone &&
           to_a().am_send(kData, {}) == SendStatus::kGone;
  }));
  LONGS_EQUAL(1, returned.count);
  CHECK(returned.outcome == Outcome::kUnknown);
  LONGS_EQUAL(1, put.count);
  CHECK(put.outcome == Outcome::kUnknown);  // it lies where the device would find it
  CHECK(to_b().flush(&flushed) == SendStatus::kGone);
  rig->b.messenger->release(at_b.loans[0]);
  rig->a.messenger->wait(kNsPerMs);
  for (int i = 0; i < 100; ++i) rig->poll();
  const std::string text = log.finish();
  const std::string line = "verbs: lost the device ";
  const size_t first = text.find(line);
  CHECK(first != std::string::npos);
  const size_t second = text.find(line, first + 1);  // one for each provider
  CHECK(second != std::string::npos && text.find(line, second + 1) == std::string::npos);
}
