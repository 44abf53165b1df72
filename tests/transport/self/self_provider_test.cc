// The provider of messages to oneself: its addresses, its space and its owner thread.
// provider_conformance_test.cc tests the requirements of docs/transport.md for every provider.
#include "transport/self/self_provider.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/bytes_of.h"
#include "tests/support/death_test.h"
#include "transport/messages/messenger.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(SelfProvider) {
  static constexpr AmId kData = 3;
  static constexpr AmId kUnheard = 4;

  std::vector<std::string> arrived;
  std::vector<Loan> loans;
  Messenger messenger;
  std::unique_ptr<SelfProvider> self;
  Endpoint* to_self = nullptr;

  void setup() override {
    self = std::make_unique<SelfProvider>(5, messenger.dispatcher(), "here");
    messenger.add_provider(*self);
    to_self = messenger.connect({5}).value();
    messenger.set_handler(kData, {[](void* context, const Message& message) noexcept {
                                    auto& group = *static_cast<decltype(this)>(context);
                                    const auto* text =
                                        reinterpret_cast<const char*>(message.payload.data());
                                    group.arrived.emplace_back(text, message.payload.size());
                                    if (message.loan.is_there())
                                      group.loans.push_back(message.loan);
                                  },
                                  this});
  }
  void teardown() override {
    CHECK(self->is_valid());
    self.reset();
  }

  SendStatus send(const std::string& payload) { return to_self->am_send(kData, bytes_of(payload)); }
};

TEST(SelfProvider, LeadsToItselfByNumberAndByName) {
  POINTERS_EQUAL(to_self, self->connect({.name = "here"}).value());
  POINTERS_EQUAL(to_self, self->connect({.member = 5, .name = "there"}).value());
  STRCMP_EQUAL("this is member 5", self->connect({4}).error().answer);
  STRCMP_EQUAL("this is here", self->connect({.name = "there"}).error().answer);
  SelfProvider nameless(0, messenger.dispatcher());
  STRCMP_EQUAL("this is a process without a name",
               nameless.connect({.name = "here"}).error().answer);
}

TEST(SelfProvider, WhatIsSentArrivesAtTheNextPollInOrder) {
  const std::string longest(to_self->limits().am_bytes_max, 'l');
  CHECK(send("") == SendStatus::kDone);
  CHECK(send(std::string(kInlineBytesMax, 's')) == SendStatus::kDone);
  CHECK(send(longest) == SendStatus::kDone);
  CHECK(send(longest + "l") == SendStatus::kTooLong);
  LONGS_EQUAL(0, arrived.size());
  LONGS_EQUAL(2, messenger.poll(2));
  LONGS_EQUAL(1, messenger.poll(2));
  LONGS_EQUAL(3, arrived.size());
  STRCMP_EQUAL("", arrived[0].c_str());
  LONGS_EQUAL(kInlineBytesMax, arrived[1].size());
  CHECK(arrived[2] == longest);
}

TEST(SelfProvider, WhenItIsFullItSaysSoAndHasRoomAfterAPoll) {
  size_t sent = 0;
  while (send("again") == SendStatus::kDone) ++sent;
  CHECK(sent > 0);
  CHECK(send("again") == SendStatus::kAgain);
  CHECK_FALSE(to_self->has_room());
  while (messenger.poll(64) > 0) {
  }
  LONGS_EQUAL(sent, arrived.size());
  CHECK(to_self->has_room());
  CHECK(send("again") == SendStatus::kDone);
}

TEST(SelfProvider, ALoanComesBackWhenItWasReleasedOrNobodyHeardIt) {
  static int returned;
  returned = 0;
  Completion done = {[](Completion&, Outcome outcome) noexcept {
    CHECK(outcome == Outcome::kDone);
    ++returned;
  }};
  std::byte block[128];
  CHECK(to_self->am_send_loan(kData, bytes_of("h"), block, &done) == SendStatus::kPending);
  CHECK(to_self->am_send_loan(kUnheard, {}, block, &done) == SendStatus::kPending);
  messenger.poll(64);
  messenger.poll(64);
  LONGS_EQUAL(1, returned);
  LONGS_EQUAL(1, loans.size());
  STRCMP_EQUAL("h", arrived[0].c_str());
  POINTERS_EQUAL(block, loans[0].memory.data());
  messenger.release(loans[0]);
  LONGS_EQUAL(1, returned);  // not from within release()
  messenger.poll(64);
  LONGS_EQUAL(2, returned);
  BP_CHECK_DIES("a loan is given back twice", messenger.release(loans[0]));
}

TEST(SelfProvider, LendsNoMoreThanItKeepsRecordsFor) {
  std::byte block[8];
  Completion done = {[](Completion&, Outcome) noexcept {}};
  uint32_t lent = 0;
  while (to_self->am_send_loan(kData, {}, block, &done) == SendStatus::kPending) {
    ++lent;
    messenger.poll(64);
  }
  LONGS_EQUAL(SelfProvider::kLoanCountMax, lent);
  for (const Loan& loan : loans) messenger.release(loan);
  messenger.poll(64);
  CHECK(to_self->am_send_loan(kData, {}, block, &done) == SendStatus::kPending);
}

TEST(SelfProvider, AtomicsTakeAWholeWord) {
  alignas(8) uint64_t words[2] = {7, 0};
  const auto memory = std::as_writable_bytes(std::span(words));
  uint64_t before = 0;
  const RemoteMemory all = to_self->expose(memory).value();
  CHECK(to_self->fetch_add(all, 2, &before, nullptr) == SendStatus::kDone);
  LONGS_EQUAL(7, before);
  LONGS_EQUAL(9, words[0]);
  CHECK(to_self->compare_swap(all, 8, 1, &before, nullptr) == SendStatus::kDone);
  LONGS_EQUAL(9, words[0]);
  CHECK(to_self->fetch_add(all.part(4, 8), 2, nullptr, nullptr) == SendStatus::kRefused);
  CHECK(to_self->fetch_add(all.part(8, 4), 2, nullptr, nullptr) == SendStatus::kTooLong);
}

namespace {

// The provider of a messenger whose loop runs on this thread.
struct OfARunningLoop {
  OfARunningLoop() : provider(1, messenger.dispatcher()) {
    messenger.follow(loop);
    messenger.add_provider(provider);
  }
  void fill() {
    Endpoint& endpoint = *provider.connect({1}).value();
    while (endpoint.am_send(3, {}) == SendStatus::kDone) {
    }
  }
  ThreadOwner loop;
  Messenger messenger;
  SelfProvider provider;
  ThreadOwner::Hold hold{loop};
};

}  // namespace

BP_PROBE(fill_a_box_on_another_thread) {
  OfARunningLoop its;
  std::thread([&] { its.fill(); }).join();
}

// A release looks at the thread only where nothing more can be sent.
TEST(SelfProvider, AnotherThreadThanTheLoopsIsToldAtTheLatestWhenTheBoxIsFull) {
  OfARunningLoop its;
  its.fill();  // on its own thread a full box is no mistake
  check_died(run_fresh("fill_a_box_on_another_thread"),
             "Endpoint::am_send was called on another thread", __FILE__, __LINE__);
}

#if BP_DEBUG
TEST(SelfProvider, WhileItPollsItIsThatThreadsAlone) {
  static Endpoint* endpoint;
  static SelfProvider* provider;
  static std::vector<Ended> ends;
  endpoint = to_self;
  provider = self.get();
  ends.clear();
  messenger.set_handler(
      kData,
      {[](void*, const Message&) noexcept {
         std::thread([] {
           ends.push_back(run_forked([] { endpoint->am_send(kData, {}); }));
           ends.push_back(run_forked([] { endpoint->am_send_loan(kData, {}, {}, nullptr); }));
           ends.push_back(run_forked([] { endpoint->get({}, {}, nullptr); }));
           ends.push_back(run_forked([] { (void)endpoint->has_room(); }));
           ends.push_back(run_forked([] { provider->release({}); }));
         }).join();
       },
       nullptr});
  CHECK(send("") == SendStatus::kDone);
  LONGS_EQUAL(1, messenger.poll(1));
  LONGS_EQUAL(5, ends.size());
  for (const Ended& end : ends) check_died(end, "on another thread", __FILE__, __LINE__);
  std::vector<Ended>().swap(ends);
}
#endif
