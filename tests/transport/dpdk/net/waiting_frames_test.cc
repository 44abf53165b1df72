// The frames that wait for a neighbour, compared with a simple list.
#include "transport/dpdk/net/waiting_frames_datapath.h"

#include <list>
#include <utility>
#include <vector>

#include "tests/support/seed.h"
#include "tests/transport/dpdk/net/made_up_port.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;

namespace {

constexpr uint32_t kRoom = 5;

}  // namespace

TEST_GROUP(WaitingFrames) {
  made_up::Port port{64};
  ::bedplate::WaitingFrames waiting{kRoom};

  std::vector<rte_mbuf*> take_of(uint32_t neighbour) {
    std::vector<rte_mbuf*> taken;
    waiting.take_of(neighbour, [&](rte_mbuf* frame) { taken.push_back(frame); });
    return taken;
  }
};

TEST(WaitingFrames, ComeBackByNeighbourInTheirOrder) {
  rte_mbuf* frames[4] = {};
  for (uint32_t i = 0; i < 4; ++i) {
    frames[i] = port.allocate();
    POINTERS_EQUAL(nullptr, waiting.push(i % 2, frames[i]).frame);
  }
  LONGS_EQUAL(2, waiting.count_of(1));
  CHECK((take_of(1) == std::vector<rte_mbuf*>{frames[1], frames[3]}));
  CHECK(take_of(1).empty());
  CHECK((take_of(0) == std::vector<rte_mbuf*>{frames[0], frames[2]}));
  for (rte_mbuf* frame : frames) rte_pktmbuf_free(frame);
}

TEST(WaitingFrames, ByChance) {
  const test::Seed seed;
  uint64_t random = seed.value() | 1;
  const auto next = [&](uint32_t limit) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<uint32_t>(random >> 33) % limit;
  };
  std::list<std::pair<uint32_t, rte_mbuf*>> model;
  for (int i = 0; i < 20000; ++i) {
    const uint32_t neighbour = next(3);
    if (next(4) != 0) {
      rte_mbuf* frame = port.allocate();
      const auto pushed_out = waiting.push(neighbour, frame);
      model.emplace_back(neighbour, frame);
      const bool is_full = model.size() > kRoom;
      CHECK_TEXT(is_full == (pushed_out.frame != nullptr), seed.text());
      if (!is_full) continue;
      CHECK_TEXT(model.front() == std::pair(pushed_out.neighbour, pushed_out.frame), seed.text());
      model.pop_front();
      rte_pktmbuf_free(pushed_out.frame);
    } else {
      std::vector<rte_mbuf*> expected;
      for (const auto& one : model) {
        if (one.first == neighbour) expected.push_back(one.second);
      }
      model.remove_if([&](const auto& one) { return one.first == neighbour; });
      CHECK_TEXT(take_of(neighbour) == expected, seed.text());
      for (rte_mbuf* frame : expected) rte_pktmbuf_free(frame);
    }
    CHECK_TEXT(waiting.is_valid() && waiting.count() == model.size(), seed.text());
  }
}
