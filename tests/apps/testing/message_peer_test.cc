// Peers by message: a service under test hears them, finds them by name, lends to them, and notices
// their death.
#include "apps/testing/message_peer.h"

#include <string>
#include <string_view>
#include <vector>

#include "apps/testing/test_appliance.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::MessagePeer;
using bedplate::testing::TestAppliance;

namespace {

constexpr AmId kAnswer = 7;

// Answers the message "say" with its payload, and keeps loans until the test gives them back.
class Parrot final : public Service {
 public:
  const char* name() const noexcept override { return "parrot"; }
  void describe(ConfigurationTable&) override {}
  Result<void> plan(ServicePlan& plan) override {
    plan.segment("parrot", {{"block:parrot", 4096}}, plan.placement(0));
    plan.messages(0);
    plan.message("say");
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    BP_TRY_ASSIGN(messenger, context.messenger(0));
    BP_TRY_ASSIGN(block, context.carve("block:parrot"));
    BP_TRY_ASSIGN(const AmId say, context.message("say"));
    is_found_early = messenger->connect({.name = "ann"}).ok();
    messenger->set_handler(say, {[](void* self, const Message& message) noexcept {
                                   static_cast<Parrot*>(self)->hear(message);
                                 },
                                 this});
    return {};
  }
  void hear(const Message& message) noexcept {
    if (message.loan.is_there()) loans.push_back(message.loan);
    message.from.am_send(kAnswer, message.payload);
  }

  Messenger* messenger = nullptr;
  std::span<std::byte> block;
  std::vector<Loan> loans;
  bool is_found_early = true;
};

struct Returned : Completion {
  Returned() {
    call = [](Completion& self, Outcome how) noexcept {
      ++static_cast<Returned&>(self).count;
      static_cast<Returned&>(self).outcome = how;
    };
  }
  int count = 0;
  Outcome outcome = Outcome::kDone;
};

}  // namespace

TEST_GROUP(MessagePeer) {
  Parrot parrot;
  TestAppliance appliance{{&parrot}};
  MessagePeer* ann = nullptr;
  MessagePeer* bob = nullptr;

  void setup() override {
    ann = &appliance.add_peer("ann");
    bob = &appliance.add_peer("bob");
    STRCMP_EQUAL("", appliance.boot("[parrot]\n").c_str());
  }
  Endpoint& path_to(const char* name) {
    auto found = parrot.messenger->connect({.name = name});
    CHECK(found.ok());
    return *found.value();
  }
};

TEST(MessagePeer, TalksToTheServiceByTheNameOfAMessage) {
  CHECK(ann->send("parrot.say", "hello") == SendStatus::kDone);
  CHECK(bob->send("parrot.say", "") == SendStatus::kDone);
  appliance.run();
  LONGS_EQUAL(1, ann->received.size());
  LONGS_EQUAL(kAnswer, ann->received[0].id);
  STRCMP_EQUAL("hello", ann->received[0].payload.c_str());
  LONGS_EQUAL(1, bob->received.size());
}

// As in a real appliance: no process joins before the seal.
TEST(MessagePeer, IsFoundByItsNameOnceTheServiceHasStarted) {
  CHECK_FALSE(parrot.is_found_early);
  CHECK(path_to("ann").am_send(3, std::as_bytes(std::span("ping", 4))) == SendStatus::kDone);
  appliance.run();
  STRCMP_EQUAL("ping", ann->received[0].payload.c_str());
  LONGS_EQUAL(0, bob->received.size());
  CHECK_FALSE(parrot.messenger->connect({.name = "eve"}).ok());
}

TEST(MessagePeer, LendsAndGetsItsMemoryBack) {
  const std::span<std::byte> memory = ann->memory(100'000);
  memory[99'999] = std::byte{42};
  CHECK(ann->lend("parrot.say", "look", memory) == SendStatus::kPending);
  appliance.run();
  LONGS_EQUAL(1, parrot.loans.size());
  POINTERS_EQUAL(memory.data(), parrot.loans[0].memory.data());
  LONGS_EQUAL(100'000, parrot.loans[0].memory.size());
  LONGS_EQUAL(0, ann->returned_count());
  parrot.messenger->release(parrot.loans[0]);
  appliance.run();
  LONGS_EQUAL(1, ann->returned_count());
}

TEST(MessagePeer, GetsALoanAndGivesItBack) {
  Returned returned;
  CHECK(path_to("ann").am_send_loan(3, {}, parrot.block, &returned) == SendStatus::kPending);
  appliance.run();
  LONGS_EQUAL(0, returned.count);
  POINTERS_EQUAL(parrot.block.data(), ann->received[0].loan.memory.data());
  ann->release(ann->received[0]);
  appliance.run();
  LONGS_EQUAL(1, returned.count);
  CHECK(returned.outcome == Outcome::kDone);
}

TEST(MessagePeer, DiesWithALoan) {
  Returned returned;
  Endpoint& path = path_to("ann");
  CHECK(path.am_send_loan(3, {}, parrot.block, &returned) == SendStatus::kPending);
  appliance.run();
  ann->die();
  ann->die();
  CHECK_FALSE(ann->is_alive());
  appliance.run();
  LONGS_EQUAL(1, returned.count);
  CHECK(returned.outcome == Outcome::kUnknown);
  CHECK(path.am_send(3, {}) == SendStatus::kGone);
  CHECK(bob->send("parrot.say", "still here") == SendStatus::kDone);
  appliance.run();
  STRCMP_EQUAL("still here", bob->received[0].payload.c_str());
}
