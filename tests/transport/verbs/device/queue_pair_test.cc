// The states of a queue pair, without a device. verbs_device_test.cc tests a queue pair with a
// peer.
#include "transport/verbs/device/queue_pair.h"

#include <initializer_list>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(QueuePair){};

TEST(QueuePair, StatesFollowOneAnotherInTheirOrder) {
  const std::initializer_list<ibv_qp_state> states = {
      IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR};
  for (const ibv_qp_state from : states) {
    CHECK(can_follow(from, IBV_QPS_RESET) && can_follow(from, IBV_QPS_ERR));
    LONGS_EQUAL(from == IBV_QPS_RESET, can_follow(from, IBV_QPS_INIT));
    LONGS_EQUAL(from == IBV_QPS_INIT, can_follow(from, IBV_QPS_RTR));
    LONGS_EQUAL(from == IBV_QPS_RTR, can_follow(from, IBV_QPS_RTS));
    CHECK_FALSE(can_follow(from, IBV_QPS_SQD) || can_follow(from, IBV_QPS_SQE));
  }
}

TEST(QueuePair, BeforeItIsMadeItIsNotThereAndValid) {
  const QueuePair none;
  CHECK(none.is_valid() && none.handle() == nullptr);
  LONGS_EQUAL(0, none.number());
}
