// The states of RFC 4861, with a simulated clock, and the limits that hold in a flood.
#include "transport/dpdk/net/neighbours_datapath.h"

#include <functional>
#include <string>

#include "tests/support/seed.h"
#include "tests/transport/dpdk/net/frames.h"
#include "tests/transport/dpdk/net/made_up_port.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using frames::ip;
using State = Neighbour::State;

namespace {

class Asker final : public NeighbourAsker {
 public:
  void ask(const IpAddress& target, const rte_ether_addr* known) noexcept override {
    asked.push_back((DatagramAddress{target, 0, 0}).text() + (known != nullptr ? " known" : ""));
  }
  void send_waiting(rte_mbuf* frame, const rte_ether_addr& mac) noexcept override {
    sent.push_back(mac.addr_bytes[5]);
    rte_pktmbuf_free(frame);
  }
  void drop_waiting(rte_mbuf* frame, bool is_unresolved) noexcept override {
    (is_unresolved ? unresolved_count : dropped_count) += 1;
    rte_pktmbuf_free(frame);
    if (is_unresolved && told) told();
  }
  std::function<void()> told;
  std::vector<std::string> asked;
  std::vector<uint8_t> sent;
  uint32_t unresolved_count = 0;
  uint32_t dropped_count = 0;
};

constexpr rte_ether_addr mac_of(uint8_t last) { return {{2, 0, 0, 0, 0, last}}; }
constexpr uint64_t kSecond = 1'000'000'000;

}  // namespace

TEST_GROUP(Neighbours) {
  made_up::Port port{600};
  Asker asker;
  std::unique_ptr<::bedplate::Neighbours> neighbours;
  uint64_t now_ns = kSecond;

  void setup() override { make(64); }
  void make(uint32_t count) {
    neighbours = std::make_unique<::bedplate::Neighbours>(
        asker, ::bedplate::Neighbours::Limits{.entry_count = count, .waiting_count = 8});
  }
  void teardown() override { neighbours.reset(); }
  void pass(uint64_t ns) {
    now_ns += ns;
    neighbours->advance(now_ns);
    CHECK(neighbours->is_valid());
  }
  State state(const char* address) {
    const Neighbour* entry = neighbours->find(ip(address));
    return entry != nullptr ? entry->state : State::kUnused;
  }
  void use(const std::string& address) { CHECK(neighbours->use(ip(address), now_ns) != nullptr); }
  bool learn(const std::string& address, uint8_t last, bool solicited, bool overrides = true) {
    return neighbours->learn(ip(address), mac_of(last), {solicited, overrides}, now_ns);
  }
};

TEST(Neighbours, AsksThreeTimesAndGivesUp) {
  neighbours->wait(*neighbours->use(ip("192.0.2.9"), now_ns), port.allocate());
  CHECK(state("192.0.2.9") == State::kIncomplete);
  pass(kSecond - 1);
  LONGS_EQUAL(1, asker.asked.size());
  pass(1);
  pass(kSecond);
  LONGS_EQUAL(3, asker.asked.size());
  LONGS_EQUAL(0, asker.unresolved_count);
  pass(kSecond);
  LONGS_EQUAL(3, asker.asked.size());
  LONGS_EQUAL(1, asker.unresolved_count);
  CHECK(state("192.0.2.9") == State::kUnused);
  CHECK(neighbours->next_deadline_ns() == ::bedplate::Neighbours::kNever);
}

TEST(Neighbours, AnAnswerIsGoodForAWhileAndIsThenLookedAfter) {
  neighbours->wait(*neighbours->use(ip("192.0.2.9"), now_ns), port.allocate());
  CHECK(learn("192.0.2.9", 5, true));
  CHECK(state("192.0.2.9") == State::kReachable);
  LONGS_EQUAL(1, asker.sent.size());
  LONGS_EQUAL(5, asker.sent[0]);
  pass(30 * kSecond - 1);
  use("192.0.2.9");
  CHECK(state("192.0.2.9") == State::kReachable);
  pass(1);
  use("192.0.2.9");
  CHECK(state("192.0.2.9") == State::kDelay);
  pass(5 * kSecond);
  CHECK(state("192.0.2.9") == State::kProbe);
  STRCMP_EQUAL("192.0.2.9:0 known", asker.asked.back().c_str());
  CHECK(learn("192.0.2.9", 5, true));
  CHECK(state("192.0.2.9") == State::kReachable);
  pass(30 * kSecond);
  use("192.0.2.9");
  pass(5 * kSecond);
  for (int i = 0; i < 3; ++i) pass(kSecond);
  CHECK(state("192.0.2.9") == State::kUnused);
}

TEST(Neighbours, WhatIsNotAskedForChangesByItsFlags) {
  use("2001:db8::9");
  CHECK(learn("2001:db8::9", 5, false));
  CHECK(state("2001:db8::9") == State::kStale);
  CHECK(learn("2001:db8::9", 5, true));
  CHECK(learn("2001:db8::9", 6, false, false));
  CHECK(state("2001:db8::9") == State::kStale);
  LONGS_EQUAL(5, neighbours->find(ip("2001:db8::9"))->mac.addr_bytes[5]);
  CHECK(learn("2001:db8::9", 6, false, true));
  LONGS_EQUAL(6, neighbours->find(ip("2001:db8::9"))->mac.addr_bytes[5]);
  CHECK(state("2001:db8::9") == State::kStale);
}

// All neighbours share the slots for waiting frames. The oldest frame of all is dropped.
TEST(Neighbours, OnlyTheNewestFramesOfAllWait) {
  for (int i = 0; i < 3; ++i) {
    neighbours->wait(*neighbours->use(ip("192.0.2.9"), now_ns), port.allocate());
  }
  for (int i = 0; i < 7; ++i) {
    neighbours->wait(*neighbours->use(ip("192.0.2.8"), now_ns), port.allocate());
    CHECK(neighbours->is_valid());
  }
  LONGS_EQUAL(2, asker.dropped_count);
  learn("192.0.2.9", 5, true);
  LONGS_EQUAL(1, asker.sent.size());
  learn("192.0.2.8", 6, true);
  LONGS_EQUAL(8, asker.sent.size());
  LONGS_EQUAL(0, asker.unresolved_count);
  CHECK(neighbours->is_valid());
}

// The failure callback sends at once, to the same station, more frames than can wait. The station
// gets a new entry.
TEST(Neighbours, OneThatIsToldOfAFailureMaySend) {
  for (int i = 0; i < 8; ++i) {
    neighbours->wait(*neighbours->use(ip("192.0.2.9"), now_ns), port.allocate());
  }
  asker.told = [&] {
    for (int i = 0; i < 3; ++i) {
      neighbours->wait(*neighbours->use(ip("192.0.2.9"), now_ns), port.allocate());
    }
  };
  for (int i = 0; i < 3; ++i) pass(kSecond);
  LONGS_EQUAL(8, asker.unresolved_count);
  LONGS_EQUAL(24 - 8, asker.dropped_count);
  CHECK(state("192.0.2.9") == State::kIncomplete);
  learn("192.0.2.9", 5, true);
  LONGS_EQUAL(8, asker.sent.size());
}

TEST(Neighbours, AFloodOfAnnouncementsMakesNoEntry) {
  use("192.0.2.9");
  learn("192.0.2.9", 5, true);
  for (int i = 0; i < 5000; ++i) {
    const std::string from = "10." + std::to_string(i / 250) + ".0." + std::to_string(i % 250);
    CHECK(!learn(from, 7, false));
  }
  CHECK(state("192.0.2.9") == State::kReachable);
}

TEST(Neighbours, AFullTableKeepsThoseThatAnswered) {
  make(16);
  for (int i = 0; i < 16; ++i) {
    use("192.0.2." + std::to_string(i));
    CHECK(learn("192.0.2." + std::to_string(i), static_cast<uint8_t>(i), true));
  }
  POINTERS_EQUAL(nullptr, neighbours->use(ip("192.0.2.99"), now_ns));
  pass(30 * kSecond);
  use("192.0.2.3");  // this entry is being verified; the others may be replaced
  for (int i = 100; i < 200; ++i) use("192.0.2." + std::to_string(i));
  CHECK(state("192.0.2.3") == State::kDelay);
  CHECK(neighbours->is_valid());
}

TEST(Neighbours, AnEntryThatMayBeTakenIsFoundBehindAllOthers) {
  constexpr uint32_t kCount = 4 * ::bedplate::Neighbours::kLookedAtCount;
  const auto name = [](uint32_t number) {
    return "192.0." + std::to_string(number / 256) + "." + std::to_string(number % 256);
  };
  make(kCount);
  for (uint32_t i = 0; i < kCount - 1; ++i) {
    use(name(i));
    CHECK(learn(name(i), 5, true));
  }
  use("198.51.100.1");  // the last entry: its station does not answer
  use("198.51.100.2");
  CHECK(state("198.51.100.1") == State::kUnused);
  CHECK(learn("198.51.100.2", 5, true));
  POINTERS_EQUAL(nullptr, neighbours->use(ip("198.51.100.3"), now_ns));
  CHECK(neighbours->is_valid());
}

TEST(Neighbours, ByChance) {
  const test::Seed seed;
  uint64_t random = seed.value() | 1;
  const auto next = [&](uint32_t limit) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<uint32_t>(random >> 33) % limit;
  };
  make(16);
  for (int i = 0; i < 20000; ++i) {
    const IpAddress address = ip("192.0.2." + std::to_string(next(40)));
    switch (next(4)) {
      case 0:
      case 1: {
        Neighbour* entry = neighbours->use(address, now_ns);
        if (entry == nullptr) break;
        CHECK_TEXT(is_same(entry->address, address), seed.text());
        if (!entry->has_mac()) neighbours->wait(*entry, port.allocate());
        break;
      }
      case 2:
        neighbours->learn(address, mac_of(static_cast<uint8_t>(next(3))),
                          {next(2) != 0, next(2) != 0}, now_ns);
        break;
      default:
        now_ns += next(2) != 0 ? next(3'000'000'000U) : 7 * kSecond;
        neighbours->advance(now_ns);
    }
    CHECK_TEXT(neighbours->is_valid(), seed.text());
    CHECK_TEXT(neighbours->next_deadline_ns() > now_ns, seed.text());
    asker.asked.clear();
  }
}
