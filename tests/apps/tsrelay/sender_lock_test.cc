// One sender has a leg until it is silent.
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
