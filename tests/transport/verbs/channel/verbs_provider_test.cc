// Tests of the verbs provider alone: credit, sleep, the three kinds of loans, and connections that
// break. provider_conformance_test.cc tests the requirements for every provider.
#include "transport/verbs/channel/verbs_provider.h"

#include <cstring>
#include <random>
#include <thread>

#include "tests/support/seed.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/verbs/verbs_fixture.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP_BASE(VerbsProvider, VerbsFixture) { Seed seed; };

TEST(VerbsProvider, TellsWhoIsNotInItsList) {
  if (!start()) BP_SKIP(kNoVerbs);
  const auto refused = rig->a.messenger->connect({.name = "c"});
  CHECK_FALSE(refused.ok());
  STRCMP_EQUAL("connecting to c", refused.error().doing);
  STRCMP_EQUAL("verbs: it is not in the list of peers", refused.error().answer);
  CHECK_FALSE(rig->a.messenger->connect({0}).ok());
}

TEST(VerbsProvider, SendsInBothDirectionsOverTcp) {
  if (!start({.listens_by_tcp = true})) BP_SKIP(kNoVerbs);
  ReceivedTexts at_a(*rig->a.messenger), at_b(*rig->b.messenger);
  CHECK(to_b().am_send(kData, view("there")) == SendStatus::kDone);
  CHECK(to_a().am_send(kData, view("back")) == SendStatus::kDone);
  CHECK(rig->poll_until([&] { return at_a.payloads.size() + at_b.payloads.size() == 2; }));
  STRCMP_EQUAL("there", at_b.payloads[0].c_str());
  STRCMP_EQUAL("back", at_a.payloads[0].c_str());
}

TEST(VerbsProvider, WhoDoesNotPollIsSentAWindowAndNoMore) {
  if (!start({.shape = {.peer_count_max = 2, .window = 8, .message_bytes = 256}})) {
    BP_SKIP(kNoVerbs);
  }
  ReceivedTexts at_b(*rig->b.messenger);
  uint32_t accepted = 0;
  for (int i = 0; i < 1000; ++i) {
    if (to_b().am_send(kData, view(std::to_string(accepted))) == SendStatus::kDone) ++accepted;
    rig->a.messenger->poll(16);
  }
  LONGS_EQUAL(8, accepted);
  // Once b polls, it returns credit, although it sends no messages. So all messages arrive, in
  // order.
  while (accepted < 1000) {
    if (to_b().am_send(kData, view(std::to_string(accepted))) == SendStatus::kDone) ++accepted;
    rig->poll();
  }
  CHECK(rig->poll_until([&] { return at_b.payloads.size() == 1000; }));
  for (size_t i = 0; i < 1000; ++i) {
    STRCMP_EQUAL(std::to_string(i).c_str(), at_b.payloads[i].c_str());
  }
}

TEST(VerbsProvider, BothWindowsFullAtOnceCannotWaitForOneAnother) {
  if (!start({.shape = {.peer_count_max = 2, .window = 4, .message_bytes = 256}})) {
    BP_SKIP(kNoVerbs);
  }
  ReceivedTexts at_a(*rig->a.messenger), at_b(*rig->b.messenger);
  const std::string payload(200, 'x');
  uint32_t there = 0, back = 0;
  CHECK(rig->poll_until([&] {
    while (there < 2000 && to_b().am_send(kData, view(payload)) == SendStatus::kDone) ++there;
    while (back < 2000 && to_a().am_send(kData, view(payload)) == SendStatus::kDone) ++back;
    return at_a.payloads.size() == 2000 && at_b.payloads.size() == 2000;
  }));
}

TEST(VerbsProvider, OperationsInABurstAreRefusedForNowAndAllEnd) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(64 * kKiB), source(64 * kKiB);
  CHECK(start({.exported = target.span()}));
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  std::vector<Counted> ended(2000);
  size_t begun = 0, refused = 0;
  CHECK(rig->poll_until([&] {
    while (begun < ended.size()) {
      const SendStatus status = to_b().put(source.span().first(100 + begun % 500),
                                           exposed.part(begun, 1000), &ended[begun]);
      if (status == SendStatus::kAgain) break;
      CHECK(status == SendStatus::kPending);
      ++begun;
    }
    refused += begun < ended.size() ? 1 : 0;
    const auto has_ended = [](const Counted& one) { return one.count == 1; };
    return std::all_of(ended.begin(), ended.end(), has_ended);
  }));
  CHECK(refused > 0);
}

TEST(VerbsProvider, LargeTransfersAreCutIntoWhatTheDeviceTakes) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(20 * kMiB), source(20 * kMiB);
  CHECK(start({.exported = target.span()}));
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  std::mt19937_64 random(seed.value());
  for (uint64_t i = 0; i < source.bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(source.memory + i, &word, sizeof word);
  }
  Counted put, flush;
  CHECK(to_b().put(source.span(), exposed, &put) == SendStatus::kPending);
  CHECK(to_b().flush(&flush) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return flush.count == 1; }));
  LONGS_EQUAL(1, put.count);
  CHECK(put.outcome == Outcome::kDone);
  CHECK_TEXT(std::memcmp(source.memory, target.memory, source.bytes) == 0, seed.text());
}

TEST(VerbsProvider, LoansAreReadThroughAnExportOrTheBounceBuffer) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block open(64 * kKiB), closed(64 * kKiB), into(64 * kKiB);
  CHECK(start({.readable = open.span()}));
  ReceivedTexts at_b(*rig->b.messenger);
  for (Block* block : {&open, &closed}) {
    std::memset(block->memory, block == &open ? 5 : 6, block->bytes);
    Counted returned, got;
    CHECK(to_b().am_send_loan(kLent, view("take it"), block->span(), &returned) ==
          SendStatus::kPending);
    CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
    LONGS_EQUAL(block == &open ? 0 : block->bytes, rig->a.counters.bounced_bytes.read());
    const Loan loan = at_b.loans[0];
    at_b.loans.clear();
    CHECK(loan.memory.empty());
    CHECK(to_a().get(into.span(), loan.remote, &got) == SendStatus::kPending);
    CHECK(rig->poll_until([&] { return got.count == 1; }));
    MEMCMP_EQUAL(block->memory, into.memory, block->bytes);
    rig->b.messenger->release(loan);
    CHECK(rig->poll_until([&] { return returned.count == 1; }));
    CHECK(returned.outcome == Outcome::kDone);
  }
}

TEST(VerbsProvider, WakesWhoSleepsOnItsCompletions) {
  if (!start()) BP_SKIP(kNoVerbs);
  ReceivedTexts at_b(*rig->b.messenger);
  for (size_t i = 0; i < 20; ++i) {
    for (int k = 0; k < 100; ++k) rig->poll();
    const uint64_t begin_ns = monotonic_ns();
    std::thread sender([&] {  // sends after 20 ms, when b sleeps
      usleep(20'000);
      to_b().am_send(kData, view(std::to_string(i)));
      rig->a.messenger->poll(16);
    });
    uint32_t wait_count = 0;
    for (; at_b.payloads.size() == i; ++wait_count) rig->b.messenger->wait(2 * kPatienceNs);
    const uint64_t slept_ns = monotonic_ns() - begin_ns;
    sender.join();
    CHECK(slept_ns >= 20 * kNsPerMs && slept_ns < kPatienceNs);
    CHECK(wait_count <= 4);  // it was not awake all the time
  }
}

// An event that was armed for one sleep may come after that sleep. It must not end the next sleep.
TEST(VerbsProvider, WhatItPolledAwakeDoesNotWakeItLater) {
  if (!start()) BP_SKIP(kNoVerbs);
  ReceivedTexts at_b(*rig->b.messenger);
  uint32_t slept_count = 0;
  for (size_t i = 0; i < 5; ++i) {  // the connector may ring too, and end one of the sleeps
    rig->b.messenger->wait(0);
    CHECK(to_b().am_send(kData, {}) == SendStatus::kDone);
    CHECK(rig->poll_until([&] { return at_b.payloads.size() == i + 1; }));
    const uint64_t begin_ns = monotonic_ns();
    rig->b.messenger->wait(100 * kNsPerMs);
    slept_count += monotonic_ns() - begin_ns >= 90 * kNsPerMs ? 1 : 0;
  }
  CHECK(slept_count > 0);
}

TEST(VerbsProvider, SaysAgainWhileNobodyAnswersAndGoneInTheEnd) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.timing.give_up_ns = 200 * kNsPerMs;
  rig = std::make_unique<VerbsRig>(options);
  rig->b.verbs.reset();  // b no longer listens
  StderrCapture log;
  Endpoint& nobody = to_b();
  CHECK(nobody.am_send(kData, {}) == SendStatus::kAgain);
  CHECK(rig->poll_until([&] { return nobody.am_send(kData, {}) == SendStatus::kGone; }));
  const std::string text = log.finish();
  STRCMP_CONTAINS(("verbs: connecting to b at " + rig->address() + ": ").c_str(), text.c_str());
  STRCMP_CONTAINS("; still trying; check that it runs and listens there", text.c_str());
  // Logged once, and not for each try.
  CHECK_EQUAL(std::string::npos, text.find("connecting to b", text.find("connecting to b") + 1));
  rig->restart_b();
  CHECK(rig->connect());
  CHECK(nobody.am_send(kData, {}) == SendStatus::kDone);
}

TEST(VerbsProvider, ARefusedOperationHasNotHappenedAndTheConnectionComesBack) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(8 * kKiB), source(8 * kKiB);
  std::memset(target.memory, 0, target.bytes);
  std::memset(source.memory, 9, source.bytes);
  CHECK(start({.exported = target.span()}));
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  RemoteMemory beyond = exposed.part(0, exposed.bytes + 1);  // forged: one byte too long
  Counted before, refused, behind;
  CHECK(to_b().put(source.span().first(1000), exposed, &before) == SendStatus::kPending);
  CHECK(to_b().put(source.span().first(4000), beyond.part(beyond.bytes - 4000, 4000), &refused) ==
        SendStatus::kPending);
  CHECK(to_b().put(source.span().first(1000), exposed.part(5000, 1000), &behind) ==
        SendStatus::kPending);
  CHECK(rig->poll_until([&] { return before.count + refused.count + behind.count == 3; }));
  CHECK(before.outcome == Outcome::kDone);
  CHECK(refused.outcome == Outcome::kNotDone);
  CHECK(behind.outcome == Outcome::kNotDone);
  BYTES_EQUAL(9, static_cast<uint8_t>(target.memory[999]));
  BYTES_EQUAL(0, static_cast<uint8_t>(target.memory[5000]));
  CHECK(rig->connect());
  Counted again;
  CHECK(to_b().put(source.span(), exposed, &again) == SendStatus::kPending);  // the key is valid
  CHECK(rig->poll_until([&] { return again.count == 1; }));
  CHECK(again.outcome == Outcome::kDone);
}

TEST(VerbsProvider, MessagesArriveOnceAndInOrderOverManyBreaks) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(4 * kKiB);
  VerbsRigOptions options;
  options.exported = target.span();
  options.shape = {.peer_count_max = 2, .window = 16, .message_bytes = 512};
  CHECK(start(options));
  ReceivedTexts at_a(*rig->a.messenger), at_b(*rig->b.messenger);
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  RemoteMemory forged = exposed;
  forged.key += 0x1000;
  std::mt19937_64 random(seed.value());
  constexpr size_t kCount = 3000;
  size_t there = 0, back = 0;
  std::vector<Counted> breaks(40);
  size_t next_break = 0;
  CHECK_TEXT(rig->poll_until([&] {
    if (there < kCount && to_b().am_send(kData, view(std::to_string(there))) == SendStatus::kDone) {
      ++there;
    }
    if (back < kCount && to_a().am_send(kData, view(std::to_string(back))) == SendStatus::kDone) {
      ++back;
    }
    if (next_break < breaks.size() && there > next_break * 70 &&
        to_b().put(target.span().first(8), forged, &breaks[next_break]) == SendStatus::kPending) {
      ++next_break;
    }
    if (random() % 8 == 0) rig->poll();
    return at_a.payloads.size() >= kCount && at_b.payloads.size() >= kCount;
  }),
             seed.text());
  for (int i = 0; i < 100; ++i) rig->poll();
  LONGS_EQUAL(kCount, at_a.payloads.size());
  LONGS_EQUAL(kCount, at_b.payloads.size());
  for (size_t i = 0; i < kCount; ++i) {
    STRCMP_EQUAL(std::to_string(i).c_str(), at_b.payloads[i].c_str());
    STRCMP_EQUAL(std::to_string(i).c_str(), at_a.payloads[i].c_str());
  }
  for (size_t i = 0; i < next_break; ++i) LONGS_EQUAL(1, breaks[i].count);
  CHECK(rig->a.counters.broken.read() > 10);
  CHECK(rig->a.counters.resent.read() + rig->b.counters.resent.read() > 0);
  LONGS_EQUAL(0, rig->a.counters.lost.read() + rig->b.counters.lost.read());
}

TEST(VerbsProvider, LoansOfABrokenConnectionComeBackAsUnknown) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(4 * kKiB), lent(4 * kKiB), not_delivered(4 * kKiB);
  CHECK(start({.exported = target.span()}));
  ReceivedTexts at_b(*rig->b.messenger);
  const RemoteMemory exposed = to_a().expose(target.span()).take();
  Counted delivered, open, undelivered, got;
  CHECK(to_b().am_send_loan(kLent, view("one"), lent.span(), &delivered) == SendStatus::kPending);
  CHECK(to_b().am_send_loan(kLent, view("open"), target.span(), &open) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 2; }));
  break_connection(exposed);
  CHECK(rig->poll_until([&] { return delivered.count == 1 && open.count == 1; }));
  CHECK(delivered.outcome == Outcome::kUnknown);
  CHECK(rig->connect());
  // An old loan cannot be read, neither through the bounce buffer nor through an export. The bytes
  // may belong to another loan now.
  for (const Loan& loan : at_b.loans) {
    CHECK(to_a().get(not_delivered.span(), loan.remote, &got) == SendStatus::kRefused);
  }
  rig->b.messenger->release(at_b.loans[0]);  // has no effect any more
  CHECK(to_b().am_send(kData, view("after")) == SendStatus::kDone);
  CHECK(rig->poll_until([&] { return at_b.payloads.size() == 3; }));
  LONGS_EQUAL(1, delivered.count);
  // If the connection breaks before the peer receives a loan, the loan is not sent again.
  CHECK(to_b().am_send_loan(kLent, view("two"), not_delivered.span(), &undelivered) ==
        SendStatus::kPending);
  break_connection(exposed);
  CHECK(rig->poll_until([&] { return undelivered.count == 1; }));
  CHECK(undelivered.outcome == Outcome::kUnknown);
}

TEST(VerbsProvider, ARestartedPeerBeginsAnew) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  Block target(4 * kKiB);
  CHECK(start({.exported = target.span()}));
  const RemoteMemory of_the_old = to_a().expose(target.span()).take();
  for (int i = 0; i < 5; ++i) CHECK(to_b().am_send(kData, view("lost")) == SendStatus::kDone);
  rig->restart_b();  // before b consumed them
  ReceivedTexts at_b(*rig->b.messenger);
  CHECK(rig->connect());
  LONGS_EQUAL(5, rig->a.counters.lost.read());
  CHECK(to_b().am_send(kData, view("first")) == SendStatus::kDone);
  CHECK(to_a().am_send(kData, view("first")) == SendStatus::kDone);
  CHECK(rig->poll_until([&] { return at_b.payloads.size() == 1; }));
  STRCMP_EQUAL("first", at_b.payloads[0].c_str());
  // The initiator itself refuses the old connection's remote memory. So the new connection does not
  // break.
  Counted ended;
  CHECK(to_b().put(target.span().first(8), of_the_old, &ended) == SendStatus::kRefused);
  LONGS_EQUAL(1, rig->a.counters.broken.read());
}

// Soft RoCE does not enforce a window's bounds, but binds and invalidates like all other devices.
TEST(VerbsProvider, LoansThroughWindowsAreReachableUntilTheyComeBack) {
  if (!start({.trust_windows = true})) BP_SKIP(kNoVerbs);
  if (!rig->device().has_windows()) BP_SKIP("this RDMA device has no memory windows");
  ReceivedTexts at_b(*rig->b.messenger);
  Block lent(100'000), into(100'000);
  for (int round = 0; round < 300; ++round) {  // each window is used more than once
    std::memset(lent.memory, round, lent.bytes);
    const uint64_t bytes = 1 + static_cast<uint64_t>(round) * 300;
    Counted returned, got, late;
    CHECK(insist([&] {
            return to_b().am_send_loan(kLent, {}, lent.span().subspan(7, bytes), &returned);
          }) == SendStatus::kPending);
    CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
    const Loan loan = at_b.loans[0];
    at_b.loans.clear();
    CHECK(to_a().get(into.span().first(bytes), loan.remote, &got) == SendStatus::kPending);
    CHECK(rig->poll_until([&] { return got.count == 1; }));
    CHECK(got.outcome == Outcome::kDone);
    MEMCMP_EQUAL(lent.memory + 7, into.memory, bytes);
    rig->b.messenger->release(loan);
    CHECK(rig->poll_until([&] { return returned.count == 1; }));
    if (round % 100 != 99) continue;
    // Once the loan has come back, its key is invalid. A get with it breaks the connection. The
    // connection is then made again.
    CHECK(to_a().get(into.span().first(bytes), loan.remote, &late) == SendStatus::kPending);
    CHECK(rig->poll_until([&] { return late.count == 1; }));
    CHECK(late.outcome == Outcome::kNotDone);
    CHECK(rig->connect());
  }
  LONGS_EQUAL(0, rig->a.counters.bounced_bytes.read());
}

TEST(VerbsProvider, WindowsThatWereBoundWhenTheConnectionBrokeAreBoundAgain) {
  if (!start({.trust_windows = true})) BP_SKIP(kNoVerbs);
  if (!rig->device().has_windows()) BP_SKIP("this RDMA device has no memory windows");
  ReceivedTexts at_b(*rig->b.messenger);
  Block lent(4 * kKiB), into(4 * kKiB);
  auto exposed = to_a().expose(lent.span());
  CHECK(exposed.ok());
  const RemoteMemory window = exposed.value();
  Counted put, returned, got;
  CHECK(to_a().am_send(kData, {}) == SendStatus::kDone);  // the window is bound before this message
  CHECK(to_b().am_send_loan(kLent, {}, lent.span(), &returned) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
  CHECK(to_b().put(into.span(), window, &put) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return put.count == 1; }));
  CHECK(put.outcome == Outcome::kDone);
  break_connection(window);
  CHECK(rig->poll_until([&] { return returned.count == 1; }));
  CHECK(rig->connect());
  // The window and the loan of the old connection are void. The initiator refuses them itself, and
  // posts no request.
  CHECK(to_b().put(into.span(), window, &put) == SendStatus::kRefused);
  CHECK(to_a().get(into.span(), at_b.loans[0].remote, &got) == SendStatus::kRefused);
  for (int i = 0; i < 20; ++i) {
    auto again = to_a().expose(lent.span());
    if (!again.ok()) break;  // windows are limited, and the broken connection lost one
    to_a().withdraw(again.value());
    CHECK(to_a().am_send(kData, {}) == SendStatus::kDone);
    for (int k = 0; k < 50; ++k) rig->poll();
  }
  Counted second;
  CHECK(to_b().am_send_loan(kLent, {}, lent.span(), &second) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 2; }));
  CHECK(to_a().get(into.span(), at_b.loans[1].remote, &got) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return got.count == 1; }));
  CHECK(got.outcome == Outcome::kDone);
  rig->b.messenger->release(at_b.loans[1]);
  CHECK(rig->poll_until([&] { return second.count == 1; }));
}
