// Gets of kvd by message: a value comes in the message, on loan, or is out of reach. The number of
// loans and of waiting questions is bounded.
#include "apps/kvd/message_gets_datapath.h"

#include <memory>
#include <string>

#include "tests/apps/kvd/kvd_driver.h"
#include "tests/support/pool_fixture.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::kvd;
using namespace bedplate::test;

namespace {

constexpr AmId kGet = 130;
constexpr AmId kReply = 7;
constexpr uint64_t kCacheBytes = 256 * kKiB;

GroupShape lazy_shape() {
  GroupShape shape;
  shape.member_count = 3;
  shape.box_count = default_box_count(3);
  return shape;
}

static_assert(alignof(GroupRig) <= alignof(std::max_align_t));

}  // namespace

TEST_GROUP(KvdMessages) {
  TestPool pool;
  GroupRig rig{lazy_shape(), &*pool};
  // Allocated on their own, because CppUTest's operator new ignores alignment.
  std::unique_ptr<Counters> own_counters = std::make_unique<Counters>();
  std::unique_ptr<EventLoop> own_loop = std::make_unique<EventLoop>();
  Counters& counters = *own_counters;
  EventLoop& loop = *own_loop;
  KeyedCache cache;
  Facts facts{.value_bytes_max = kCacheBytes / 4};
  const Counters* counted[1] = {&counters};
  Stats stats{facts, counted};
  Environment environment{&loop, &cache, &counters, &facts, &stats};
  MessageGets gets{environment};
  std::span<std::byte> memory;
  Member* server = nullptr;
  Member* client = nullptr;

  void setup() override {
    memory = pool.memory(kCacheBytes);
    cache.create({.memory = memory,
                  .index = pool.memory(KeyedCache::index_bytes(kCacheBytes)),
                  .seed = 1,
                  .key_offset_bytes = kValueWord.size(),
                  .counters = &counters.cache});
    CHECK(loop.create({}).ok());
    server = &rig.join(0);
    client = &rig.join(1);
    gets.create({.messenger = &server->messenger,
                 .question = kGet,
                 .lent_bytes_max = kCacheBytes / 8,
                 .dropped = &counters.messages_dropped});
  }
  void set(const std::string& key, const std::string& value) {
    const std::string text =
        "set " + key + " 0 0 " + std::to_string(value.size()) + "\r\n" + value + "\r\n";
    Client writer(environment);
    STRCMP_EQUAL("STORED\r\n", writer.say(text).c_str());
  }
  SendStatus ask(const std::string& key, Member& from) {
    std::string question(1, static_cast<char>(kReply));
    question += "tag1" + key;
    return from.to(0).am_send(kGet, std::as_bytes(std::span(question)));
  }
  void poll() {
    for (int i = 0; i < 600; ++i) {  // loans are checked only now and then
      server->messenger.poll(16);
      gets.poll(16);
      client->messenger.poll(16);
    }
  }
};

TEST(KvdMessages, AShortValueComesInTheMessage) {
  set("apple", "red");
  CHECK(ask("apple", *client) == SendStatus::kDone);
  CHECK(ask("pear", *client) == SendStatus::kDone);
  poll();
  LONGS_EQUAL(2, client->received.size());
  LONGS_EQUAL(kReply, client->received[0].id);
  CHECK(client->received[0].payload == std::string("tag1\0red", 8));
  CHECK_FALSE(client->received[0].loan.is_there());
  CHECK(client->received[1].payload == std::string("tag1\1", 5));
  CHECK_EQUAL(2, counters.gets.read());
  CHECK_EQUAL(1, counters.hits.read());
  CHECK_EQUAL(1, counters.misses.read());
}

// The value is lent in place and does not change: until the loan is returned, a new value goes
// elsewhere.
TEST(KvdMessages, ALongValueIsLentAndStaysAsItIs) {
  const std::string value(5000, 'v');
  set("long", value);
  CHECK(ask("long", *client) == SendStatus::kDone);
  poll();
  LONGS_EQUAL(1, client->received.size());
  const Loan loan = client->received[0].loan;
  CHECK(client->received[0].payload == std::string("tag1\0", 5));
  CHECK(loan.is_there());
  CHECK(loan.memory.data() >= memory.data() && loan.memory.data() < memory.data() + memory.size());
  LONGS_EQUAL(1, gets.lent_count());
  for (int i = 0; i < 100; ++i) set("long", std::string(5000, static_cast<char>('a' + i % 26)));
  const auto* lent = reinterpret_cast<const char*>(loan.memory.data());
  CHECK(std::string(lent, loan.memory.size()) == value);
  client->messenger.release(loan);
  poll();
  LONGS_EQUAL(0, gets.lent_count());
  CHECK(cache.find("long") != nullptr);
}

TEST(KvdMessages, WhatAPeerMayNotReadIsCopiedOrOutOfReach) {
  SegmentRights none;
  Member& stranger = rig.join(2, false, none);
  set("middle", std::string(3000, 'm'));
  set("long", std::string(10'000, 'l'));
  CHECK(ask("middle", stranger) == SendStatus::kDone);
  CHECK(ask("long", stranger) == SendStatus::kDone);
  poll();
  stranger.messenger.poll(16);
  LONGS_EQUAL(2, stranger.received.size());
  CHECK(stranger.received[0].payload == std::string("tag1\0", 5) + std::string(3000, 'm'));
  CHECK(stranger.received[1].payload == std::string("tag1\2", 5));
  LONGS_EQUAL(0, gets.lent_count());
}

// One peer may have a sixteenth of the cache on loan. Then its questions wait until it returns a
// loan.
TEST(KvdMessages, WhatIsLentIsBoundedAndTheRestWaits) {
  for (int i = 0; i < 6; ++i) set("k" + std::to_string(i), std::string(5'000, 'x'));
  for (int i = 0; i < 6; ++i) CHECK(ask("k" + std::to_string(i), *client) == SendStatus::kDone);
  poll();
  LONGS_EQUAL(3, client->received.size());  // three fit into 16 KiB
  for (size_t i = 0; i < 6; ++i) {
    CHECK(client->received.size() > i);
    client->messenger.release(client->received[i].loan);
    poll();
  }
  LONGS_EQUAL(6, client->received.size());
  LONGS_EQUAL(0, gets.lent_count());
  CHECK_EQUAL(6, counters.hits.read());
}

TEST(KvdMessages, WhatDiesWithALoanGivesItBack) {
  set("long", std::string(5000, 'v'));
  CHECK(ask("long", *client) == SendStatus::kDone);
  poll();
  LONGS_EQUAL(1, gets.lent_count());
  rig.bury(1);
  client = &rig.join(1);
  poll();
  LONGS_EQUAL(0, gets.lent_count());
}

TEST(KvdMessages, QuestionsThatMakeNoSenseAreCountedAndDropped) {
  const std::string texts[] = {"", "\7", "\7tag1", std::string("\7tag1") + std::string(251, 'k')};
  for (const std::string& text : texts) {
    CHECK(client->to(0).am_send(kGet, std::as_bytes(std::span(text))) == SendStatus::kDone);
  }
  poll();
  CHECK_EQUAL(std::size(texts), counters.messages_dropped.read());
  LONGS_EQUAL(0, client->received.size());
  // While a question waits for a loan, the next ones wait behind it, up to a limit.
  for (int i = 0; i < 4; ++i) set("k" + std::to_string(i), std::string(5'000, 'x'));
  for (int i = 0; i < 4; ++i) CHECK(ask("k" + std::to_string(i), *client) == SendStatus::kDone);
  poll();
  for (int i = 0; i < 100; ++i) {
    CHECK(ask("none", *client) == SendStatus::kDone);
    server->messenger.poll(16);
  }
  CHECK_EQUAL(std::size(texts) + 100 - (MessageGets::kWaitingPerPeerMax - 1),
              counters.messages_dropped.read());
}
