// The ends of verbs operations when something goes wrong: in the middle of a transfer, when a
// connection ends in a poll, when memory is withdrawn, and when the device goes away.
#include <array>
#include <cstring>
#include <functional>

#include <fcntl.h>

#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/verbs/verbs_fixture.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP_BASE(VerbsEnds, VerbsFixture){
    bool has_windows(){return start({.trust_windows = true}) && rig->device().has_windows();
}
}
;

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
  BYTES_EQUAL(9, static_cast<uint8_t>(target.memory[0]));  // a part was written
  CHECK(refused.outcome == Outcome::kUnknown);
  CHECK(behind.outcome == Outcome::kNotDone);
  // The outcome of the next operation does not depend on that part.
  CHECK(rig->connect());
  CHECK(to_b().put(source.span().first(8), forged.part(kExportBytes, 8), &whole) ==
        SendStatus::kPending);
  CHECK(rig->poll_until([&] { return whole.count == 1; }));
  CHECK(whole.outcome == Outcome::kNotDone);
}

// Some devices end a read or an atomic with success, and have not written its answer. Here the
// answer itself looks as if it had not come, for one slot of the queue.
TEST(VerbsEnds, AnAnswerThatHasNotComeIsUnknown) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(64), into(64);
  CHECK(start({.shape = {.peer_count_max = 2, .window = 4, .operation_count_max = 4},
               .exported = target.span()}));
  if (!rig->device().quirks().ends_without_answer) BP_SKIP("this RDMA device is taken at its word");
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  const uint64_t mark = SendQueue::answer_mark(2);
  std::memcpy(target.memory + 56, &mark, sizeof mark);
  uint64_t before = 0;
  const auto operations = std::to_array<std::function<SendStatus(Completion*)>>({
      [&](Completion* done) { return to_b().get(into.span(), exposed, done); },
      [&](Completion* done) {
        return to_b().compare_swap(exposed.part(56, 8), 1, 2, &before, done);
      },
  });
  for (const auto& operation : operations) {
    size_t unknown_count = 0;
    for (size_t i = 0; i < 16; ++i) {  // the depth of the queue
      Counted ended;
      CHECK(operation(&ended) == SendStatus::kPending);
      CHECK(rig->poll_until([&] { return ended.count == 1; }));
      CHECK(ended.outcome == Outcome::kDone || ended.outcome == Outcome::kUnknown);
      unknown_count += ended.outcome == Outcome::kUnknown;
    }
    LONGS_EQUAL(1, unknown_count);
  }
  LONGS_EQUAL(0, rig->a.counters.broken.read());
}

// The first of two requests has no answer, although both requests end with success.
TEST(VerbsEnds, APartWhoseAnswerHasNotComeMakesTheWholeUnknown) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(12 * kMiB), into(12 * kMiB);
  CHECK(start({.shape = {.peer_count_max = 2, .window = 4, .operation_count_max = 4},
               .exported = target.span()}));
  const uint64_t part_bytes = rig->device().port().transfer_bytes_max;
  if (part_bytes >= target.bytes) BP_SKIP("this RDMA device moves it all by one request");
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  std::memset(target.memory, 7, target.bytes);
  Outcome outcome = Outcome::kDone;
  const auto get_once = [&] {
    Counted ended;
    CHECK(to_b().get(into.span(), exposed, &ended) == SendStatus::kPending);
    CHECK(rig->poll_until([&] { return ended.count == 1; }));
    return outcome = ended.outcome;
  };
  for (int i = 0; i < 8; ++i) CHECK(get_once() == Outcome::kDone);
  // Each get takes two of the queue's 16 slots, but other requests take slots, too. So the slot of
  // a get's first request may change between odd and even at any time. The test tries both until
  // one matches.
  for (int i = 0; i < 64 && outcome == Outcome::kDone; ++i) {
    const uint64_t mark = SendQueue::answer_mark(i / 8 % 2);
    std::memcpy(target.memory + part_bytes - sizeof mark, &mark, sizeof mark);
    get_once();
  }
  CHECK(outcome == Outcome::kUnknown);
  LONGS_EQUAL(0, rig->a.counters.broken.read() + rig->b.counters.broken.read());
}

// Otherwise a whole list would have to end before a stopped device differs from a slow one.
TEST(VerbsEnds, LargeTransfersEndEachByItself) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  constexpr size_t kCount = 4;
  Block target(kCount * 2 * kMiB), source(2 * kMiB);
  std::memset(target.memory, 0, target.bytes);
  std::memset(source.memory, 9, source.bytes);
  CHECK(start({.exported = target.span()}));
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  Counted ended[kCount];
  for (size_t i = 0; i < kCount; ++i) {  // posted as one list
    CHECK(to_b().put(source.span(), exposed.part(i * source.bytes, source.bytes), &ended[i]) ==
          SendStatus::kPending);
  }
  const uint64_t deadline_ns = monotonic_ns() + test::kPatienceNs;
  while (ended[0].count == 0 && monotonic_ns() < deadline_ns) rig->a.verbs->poll(1);
  LONGS_EQUAL(1, ended[0].count);
  LONGS_EQUAL(0, ended[kCount - 1].count);
  CHECK(rig->poll_until([&] { return ended[kCount - 1].count == 1; }));
}

TEST(VerbsEnds, ALifeThatEndsInAPollIsCounted) {
  if (!start()) BP_SKIP(kNoVerbs);
  ReceivedTexts at_b(*rig->b.messenger);
  Block lent(4 * kKiB);
  Counted returned;
  CHECK(to_b().am_send_loan(kLent, {}, lent.span(), &returned) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
  rig->b.verbs.reset();
  uint32_t counted = 0;
  const uint64_t deadline_ns = monotonic_ns() + test::kPatienceNs;
  while (returned.count == 0 && monotonic_ns() < deadline_ns) counted = rig->a.verbs->poll(64);
  CHECK(counted > 0);  // otherwise a sleep after an idle poll forgets what this poll began
  CHECK(returned.outcome == Outcome::kUnknown);
}

// A device may stop sending until more is posted, as soft RoCE does after some losses. Without a
// further request, the wait for it would never end.
TEST(VerbsEnds, WhatDoesNotEndIsFollowedByMore) {
  if (!start()) BP_SKIP(kNoVerbs);
  ReceivedTexts at_b(*rig->b.messenger);
  CHECK(to_b().am_send(kData, {}) == SendStatus::kDone);  // without a signal for its end
  CHECK(rig->poll_until([&] { return at_b.payloads.size() == 1; }));
  CHECK(rig->poll_until([&] { return rig->a.counters.kicks.read() > 0; }));
  // The further request ends, and all earlier ones with it. Then there is nothing to wait for.
  bool is_quiet = false;
  for (int i = 0; i < 10 && !is_quiet; ++i) {
    const uint64_t before = rig->a.counters.kicks.read();
    is_quiet =
        !rig->poll_for(3 * kNsPerSecond, [&] { return rig->a.counters.kicks.read() > before; });
  }
  CHECK(is_quiet);
  LONGS_EQUAL(0, rig->a.counters.broken.read());
}

TEST(VerbsEnds, AFlushEndsBehindWhatWasWithdrawnBeforeIt) {
  if (!has_windows()) BP_SKIP("no RDMA device with memory windows");
  ReceivedTexts at_a(*rig->a.messenger);
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
  // From here on the memory belongs to its owner alone. Only the device knows that nothing at all
  // was written: a put through a window may end in its middle.
  CHECK(to_b().put(source.span(), description.value(), &late) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return late.count == 1; }));
  CHECK(late.outcome == Outcome::kUnknown);
  BYTES_EQUAL(0, static_cast<uint8_t>(exposed.memory[0]));
  CHECK(rig->connect());
  to_a().withdraw(description.value());  // of an earlier connection: does nothing
  CHECK(to_a().flush(nullptr) == SendStatus::kDone);
}

// A reset would lose the shared receives that a failed queue pair still holds.
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
  break_connection(exposed);  // soft RoCE has no such event
  CHECK(rig->connect());
  CHECK(monotonic_ns() - begin_ns >= 900 * kNsPerMs);
}

TEST(VerbsEnds, ADeviceThatGoesAwayEndsAllAndTheProcessGoesOn) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(4 * kKiB), lent(4 * kKiB);
  CHECK(start({.exported = target.span()}));
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  ReceivedTexts at_b(*rig->b.messenger);
  Counted returned, put, flushed;
  CHECK(to_b().am_send_loan(kLent, {}, lent.span(), &returned) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
  StderrCapture log;
  // As after `rdma link delete`, or when the device was pulled out: no call of verbs works any
  // more.
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
  CHECK(put.outcome == Outcome::kUnknown);  // the device could still find it in the queue
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
