// One sender has a leg until it falls silent.
#include "apps/tsrelay/sender_lock_datapath.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

Sender sender(const char* address, uint32_t ssrc) {
  return {parse_datagram_address(address).value(), ssrc};
}

}  // namespace

TEST_GROUP(SenderLock) {
  SenderLock lock{1000};
  const Sender one = sender("192.0.2.1:5000", 7);
};

TEST(SenderLock, TheFirstHasIt) {
  CHECK(!lock.is_alive(100));
  CHECK(lock.judge(one, 100) == SenderVerdict::kNew);
  CHECK(lock.judge(one, 200) == SenderVerdict::kSame);
  for (const Sender& other : {sender("192.0.2.2:5000", 7), sender("192.0.2.1:5001", 7),
                              sender("192.0.2.1:5000", 8), sender("[2001:db8::1]:5000", 7)}) {
    CHECK(lock.judge(other, 300) == SenderVerdict::kForeign);
  }
  CHECK(lock.judge(one, 1199) == SenderVerdict::kSame);
}

TEST(SenderLock, ASilentOneLosesIt) {
  lock.judge(one, 100);
  const Sender other = sender("192.0.2.2:5000", 9);
  CHECK(lock.judge(other, 1099) == SenderVerdict::kForeign);
  CHECK(lock.judge(other, 1100) == SenderVerdict::kNew);
  CHECK(lock.judge(one, 1101) == SenderVerdict::kForeign);
  LONGS_EQUAL(9, lock.sender().ssrc);
  lock.open();
  CHECK(lock.judge(one, 1102) == SenderVerdict::kNew);
}

TEST(SenderLock, SilenceBeginsWithTheFirstLookOrTheLastPacket) {
  CHECK_FALSE(lock.is_silent(5000));
  CHECK_FALSE(lock.is_silent(5999));
  CHECK(lock.is_silent(6000));
  CHECK(lock.judge(one, 7000) == SenderVerdict::kNew);
  CHECK_FALSE(lock.is_silent(7999));
  CHECK(lock.is_silent(8000));
}

TEST_GROUP(Successor) {
  Successor successor{1000};
  uint64_t now = 5000;

  SuccessorVerdict judge(uint32_t ssrc, uint16_t sequence, uint32_t present, uint32_t leg = 0) {
    return successor.judge(leg, ssrc, sequence, present, now);
  }
};

TEST(Successor, TwoInARowAreBelieved) {
  CHECK(judge(8, 65535, 7) == SuccessorVerdict::kWaits);
  CHECK(judge(8, 0, 7) == SuccessorVerdict::kBelieved);
  // The same at each further restart.
  for (uint32_t ssrc = 9; ssrc < 40; ++ssrc) {
    CHECK(judge(ssrc, 5, ssrc - 1) == SuccessorVerdict::kWaits);
    CHECK(judge(ssrc, 6, ssrc - 1) == SuccessorVerdict::kBelieved);
  }
}

TEST(Successor, OthersAreNot) {
  CHECK(judge(8, 1, 7) == SuccessorVerdict::kWaits);
  CHECK(judge(8, 3, 7) == SuccessorVerdict::kWaits);     // not the next number
  CHECK(judge(9, 4, 7) == SuccessorVerdict::kWaits);     // another SSRC
  CHECK(judge(9, 5, 7, 1) == SuccessorVerdict::kWaits);  // another leg
  successor.deny();
  CHECK(judge(9, 6, 7, 1) == SuccessorVerdict::kWaits);  // the old sender is alive
}

TEST(Successor, OneThatComesBackSharesItsAddress) {
  const auto restart = [&](uint32_t ssrc, uint32_t present) {
    CHECK(judge(ssrc, 1, present) == SuccessorVerdict::kWaits);
    CHECK(judge(ssrc, 2, present) == SuccessorVerdict::kBelieved);
  };
  restart(8, 7);
  restart(9, 8);
  restart(7, 9);  // three senders, in turns
  for (uint32_t i = 0; i < 10; ++i, now += 900) {
    CHECK(judge(8, 1, 7) == SuccessorVerdict::kForeign);
    CHECK(judge(8, 2, 7) == SuccessorVerdict::kForeign);
  }
  now += 100;  // no second sender for 1000 ns
  restart(8, 7);
  // Long after it was given up, a sender counts as a new one.
  now += 1000;
  restart(7, 8);
  restart(5, 7);
}
