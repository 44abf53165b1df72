// The bounce buffers of verbs: for loans of memory that a peer cannot reach, and for puts and gets
// with local memory outside the pool.
#include <algorithm>
#include <cstring>

#include "tests/support/skip.h"
#include "tests/transport/verbs/verbs_fixture.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// Outside the pool.
std::byte g_outside[64 * kKiB];
std::byte g_outside_too[64 * kKiB];

}  // namespace

TEST_GROUP_BASE(VerbsBounce, VerbsFixture) {
  Block target = Block(128 * kKiB);
  RemoteMemory exposed;

  bool start_with_target() {
    VerbsRigOptions options;
    options.exported = target.span();
    options.shape.bounce_bytes = 64 * kKiB;
    if (!start(options)) return false;
    exposed = to_a().expose(target.span()).take();
    for (size_t i = 0; i < sizeof g_outside; ++i) g_outside[i] = static_cast<std::byte>(i * 7);
    std::memset(g_outside_too, 0, sizeof g_outside_too);
    return true;
  }
  SendStatus run(const std::function<SendStatus(Completion*)>& operation) {
    Counted ended;
    const SendStatus status = operation(&ended);
    if (status != SendStatus::kPending) return status;
    CHECK(rig->poll_until([&] { return ended.count == 1; }));
    CHECK(ended.outcome == Outcome::kDone);
    return SendStatus::kDone;
  }
};

TEST(VerbsBounce, ABufferThatIsFullIsWaitedFor) {
  VerbsRigOptions options;
  options.shape.bounce_bytes = 64 * kKiB;
  if (!start(options)) BP_SKIP(kNoVerbs);
  ReceivedTexts at_b(*rig->b.messenger);
  Block first(40 * kKiB), second(40 * kKiB), too_large(65 * kKiB);
  Counted returned;
  CHECK(to_b().am_send_loan(kLent, {}, first.span(), &returned) == SendStatus::kPending);
  CHECK(to_b().am_send_loan(kLent, {}, second.span(), nullptr) == SendStatus::kAgain);
  CHECK(to_b().am_send_loan(kLent, {}, too_large.span(), nullptr) == SendStatus::kRefused);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
  rig->b.messenger->release(at_b.loans[0]);
  CHECK(rig->poll_until([&] { return returned.count == 1; }));
  Counted again;
  CHECK(to_b().am_send_loan(kLent, {}, second.span(), &again) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 2; }));
  rig->b.messenger->release(at_b.loans[1]);
  CHECK(rig->poll_until([&] { return again.count == 1; }));
}

TEST(VerbsBounce, MemoryThatIsNotOfThePoolIsPutAndGotThroughIt) {
  if (!start_with_target()) BP_SKIP(kNoVerbs);
  const std::span<const std::byte> from = {g_outside, 30'001};
  CHECK(run([&](Completion* done) { return to_b().put(from, exposed.part(5, 30'001), done); }) ==
        SendStatus::kDone);
  MEMCMP_EQUAL(g_outside, target.memory + 5, 30'001);
  LONGS_EQUAL(30'001, rig->a.counters.bounced_bytes.read());
  const std::span<std::byte> into = {g_outside_too + 3, 20'000};
  CHECK(run([&](Completion* done) { return to_b().get(into, exposed.part(6, 20'000), done); }) ==
        SendStatus::kDone);
  MEMCMP_EQUAL(g_outside + 1, into.data(), into.size());
  BYTES_EQUAL(0, static_cast<uint8_t>(g_outside_too[20'003]));
  LONGS_EQUAL(50'001, rig->a.counters.bounced_bytes.read());
  // A small put travels in the request.
  CHECK(run([&](Completion* done) { return to_b().put(from.first(8), exposed, done); }) ==
        SendStatus::kDone);
  LONGS_EQUAL(50'001, rig->a.counters.bounced_bytes.read());
  CHECK_FALSE(to_a().expose(std::span(g_outside)).ok());  // no peer can reach it
}

TEST(VerbsBounce, ItIsWaitedForAndMoreThanItIsRefused) {
  if (!start_with_target()) BP_SKIP(kNoVerbs);
  Counted put, got;
  const std::span<std::byte> outside = g_outside;
  CHECK(to_b().put(outside.first(40'000), exposed, &put) == SendStatus::kPending);
  CHECK(to_b().get(outside.last(24'000), exposed, &got) == SendStatus::kPending);
  CHECK(to_b().put(outside.first(1000), exposed, &put) == SendStatus::kAgain);
  CHECK(rig->poll_until([&] { return put.count + got.count == 2; }));
  const std::span<const std::byte> more = {g_outside, sizeof g_outside + sizeof g_outside_too};
  CHECK(to_b().put(more.first(sizeof g_outside + 1), exposed, &put) == SendStatus::kRefused);
  CHECK(run([&](Completion* done) { return to_b().put(outside, exposed, done); }) ==
        SendStatus::kDone);  // the whole buffer
}

TEST(VerbsBounce, LoansOfMemoryThatIsNotOfThePoolAreReadIntoSuch) {
  if (!start_with_target()) BP_SKIP(kNoVerbs);
  ReceivedTexts at_b(*rig->b.messenger);
  Counted returned;
  CHECK(to_b().am_send_loan(kLent, {}, {g_outside, 10'000}, &returned) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
  const Loan loan = at_b.loans[0];
  CHECK(run([&](Completion* done) {
          return to_a().get({g_outside_too, 10'000}, loan.remote, done);
        }) == SendStatus::kDone);
  MEMCMP_EQUAL(g_outside, g_outside_too, 10'000);
  LONGS_EQUAL(10'000, rig->a.counters.bounced_bytes.read());
  LONGS_EQUAL(10'000, rig->b.counters.bounced_bytes.read());
  // The loan is for reading only, and the borrower knows that without asking the device.
  CHECK(to_a().put(target.span().first(8), loan.remote, nullptr) == SendStatus::kRefused);
  CHECK(to_a().fetch_add(loan.remote, 1, nullptr, nullptr) == SendStatus::kRefused);
  rig->b.messenger->release(loan);
  CHECK(rig->poll_until([&] { return returned.count == 1; }));
  CHECK(returned.outcome == Outcome::kDone);
}

TEST(VerbsBounce, ALoanOfNothingComesBack) {
  if (!start()) BP_SKIP(kNoVerbs);
  ReceivedTexts at_b(*rig->b.messenger);
  for (uint32_t i = 0; i < 2 * kVerbsLoanCountMax; ++i) {  // each slot is free again
    Counted returned;
    CHECK(insist([&] { return to_b().am_send_loan(kLent, view("none"), {}, &returned); }) ==
          SendStatus::kPending);
    CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
    CHECK(to_a().get({}, at_b.loans[0].remote, nullptr) == SendStatus::kDone);
    rig->b.messenger->release(at_b.loans[0]);
    at_b.loans.clear();
    CHECK(rig->poll_until([&] { return returned.count == 1; }));
  }
}

TEST(VerbsBounce, WhatABreakInterruptedIsWholeAgain) {
  if (!start_with_target()) BP_SKIP(kNoVerbs);
  ReceivedTexts at_b(*rig->b.messenger);
  const std::span<std::byte> outside = g_outside;
  std::memset(g_outside_too, 77, sizeof g_outside_too);
  Counted lent, forged_put, put, got;
  RemoteMemory forged = exposed;
  forged.key += 0x1000;
  CHECK(to_b().am_send_loan(kLent, {}, outside, &lent) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
  CHECK(to_b().put(outside.first(20'000), forged, &forged_put) == SendStatus::kPending);
  CHECK(to_b().put(outside.first(20'000), exposed, &put) == SendStatus::kPending);
  CHECK(to_b().get({g_outside_too, 20'000}, exposed, &got) == SendStatus::kPending);
  CHECK(
      rig->poll_until([&] { return lent.count + forged_put.count + put.count + got.count == 4; }));
  CHECK(forged_put.outcome == Outcome::kNotDone && got.outcome == Outcome::kNotDone);
  BYTES_EQUAL(77, static_cast<uint8_t>(g_outside_too[0]));  // no byte was read
  CHECK(rig->connect());
  CHECK(run([&](Completion* done) { return to_b().put(outside, exposed, done); }) ==
        SendStatus::kDone);
  Counted again;
  CHECK(to_b().am_send_loan(kLent, {}, outside, &again) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 2; }));
  rig->b.messenger->release(at_b.loans[1]);
  CHECK(rig->poll_until([&] { return again.count == 1; }));
}

// A peer that has borrowed through the buffer has the key of the whole buffer.
TEST(VerbsBounce, OfALoanThatIsOverNothingIsLeftInIt) {
  if (!start_with_target()) BP_SKIP(kNoVerbs);
  if (rig->device().enforces_windows()) BP_SKIP("this RDMA device opens each loan by a window");
  ReceivedTexts at_b(*rig->b.messenger);
  Counted returned;
  CHECK(to_b().am_send_loan(kLent, {}, {g_outside, 10'000}, &returned) == SendStatus::kPending);
  CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
  rig->b.messenger->release(at_b.loans[0]);
  CHECK(rig->poll_until([&] { return returned.count == 1; }));
  std::memset(g_outside_too, 77, sizeof g_outside_too);
  const RemoteMemory over = at_b.loans[0].remote;
  CHECK(run([&](Completion* done) {
          return to_a().get({g_outside_too, 10'000}, over, done);
        }) == SendStatus::kDone);  // the key is still valid
  const auto is_nothing = [](std::byte one) { return one == std::byte{0}; };
  CHECK(std::all_of(g_outside_too, g_outside_too + 10'000, is_nothing));
}

TEST(VerbsBounce, WhereThereAreWindowsItIsReadThroughThem) {
  VerbsRigOptions options;
  options.trust_windows = true;
  if (!start(options)) BP_SKIP(kNoVerbs);
  if (!rig->device().has_windows()) BP_SKIP("this RDMA device has no memory windows");
  ReceivedTexts at_b(*rig->b.messenger);
  for (size_t round = 0; round < 2 * kVerbsLoanCountMax; ++round) {
    std::memset(g_outside, static_cast<int>(round), sizeof g_outside);
    Counted returned, late;
    CHECK(insist([&] {
            return to_b().am_send_loan(kLent, {}, {g_outside, 3000}, &returned);
          }) == SendStatus::kPending);
    CHECK(rig->poll_until([&] { return at_b.loans.size() == 1; }));
    const Loan loan = at_b.loans[0];
    at_b.loans.clear();
    CHECK(run([&](Completion* done) {
            return to_a().get({g_outside_too, 3000}, loan.remote, done);
          }) == SendStatus::kDone);
    MEMCMP_EQUAL(g_outside, g_outside_too, 3000);
    rig->b.messenger->release(loan);
    CHECK(rig->poll_until([&] { return returned.count == 1; }));
    if (round != kVerbsLoanCountMax) continue;
    // Once the loan has come back, its key opens nothing.
    CHECK(to_a().get({g_outside_too, 3000}, loan.remote, &late) == SendStatus::kPending);
    CHECK(rig->poll_until([&] { return late.count == 1; }));
    CHECK(late.outcome == Outcome::kNotDone);
    CHECK(rig->connect());
  }
  LONGS_EQUAL(2 * kVerbsLoanCountMax * 3000, rig->a.counters.bounced_bytes.read());
}

TEST(VerbsBounce, ThereMayBeNone) {
  VerbsRigOptions options;
  options.exported = target.span();
  options.shape.bounce_bytes = 0;
  if (!start(options)) BP_SKIP(kNoVerbs);
  exposed = to_a().expose(target.span()).take();
  Block closed(4 * kKiB);
  CHECK(to_b().am_send_loan(kLent, {}, closed.span(), nullptr) == SendStatus::kRefused);
  CHECK(to_b().put({g_outside, 1000}, exposed, nullptr) == SendStatus::kRefused);
  CHECK(run([&](Completion* done) { return to_b().put(closed.span(), exposed, done); }) ==
        SendStatus::kDone);
}
