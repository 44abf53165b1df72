// Sessions whose commands cross to other shards, in one thread: order, every command, long values,
// limits, mistakes, clients that leave; and random commands against a kvd on one shard.
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/apps/kvd/shards_rig.h"
#include "tests/support/datapath_law.h"
#include "tests/support/seed.h"
#include "transport/loop/request_limit_datapath.h"
#include "transport/sockets/stream_peer.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::kvd;
using namespace bedplate::test;

namespace {

constexpr uint64_t kFirstNs = 1000 * kNsPerSecond;

std::string set_text(const std::string& key, const std::string& value) {
  return "set " + key + " 0 0 " + std::to_string(value.size()) + "\r\n" + value + "\r\n";
}
std::string value_text(const std::string& key, const std::string& value) {
  return "VALUE " + key + " 0 " + std::to_string(value.size()) + "\r\n" + value + "\r\n";
}

// The loops of shards, which run when the test says so.
struct Loops {
  explicit Loops(uint32_t count) {
    EventLoopOptions options;
    options.test_clock_ns = &clock_ns;
    for (uint32_t i = 0; i < count; ++i) {
      loops.push_back(std::make_unique<EventLoop>());
      CHECK(loops.back()->create(options).ok());
      loops.back()->timers().reserve_more(RequestLimit::kTimerCount);
    }
  }
  std::vector<EventLoop*> all() const {
    std::vector<EventLoop*> pointers;
    for (const auto& each : loops) pointers.push_back(each.get());
    return pointers;
  }
  // Returns how much there was to do.
  uint32_t run() {
    uint32_t total = 0;
    for (uint32_t work = 1; work > 0; total += work) {
      work = 0;
      for (const auto& each : loops) work += each->run_round();
    }
    return total;
  }

  uint64_t clock_ns = kFirstNs;
  std::vector<std::unique_ptr<EventLoop>> loops;
};

// Shards of one thread, and clients that run them while they speak.
struct Shards {
  explicit Shards(uint32_t count, uint64_t cache_bytes = 1024 * 1024)
      : loops(count), rig(loops.all(), cache_bytes) {
    rig.set_time(loops.clock_ns);
  }
  void pass(uint64_t ns) {
    loops.clock_ns += ns;
    loops.run();
    rig.set_time(loops.clock_ns);
  }

  Loops loops;
  ShardsRig rig;
};

class ShardClient {
 public:
  explicit ShardClient(Shards& shards, uint32_t shard = 0)
      : shards_(shards), client_(shards.rig.environment(shard)) {}
  ~ShardClient() { leave(); }

  Session& session() { return client_.session(); }
  // Gives as much as the session takes, and runs nothing.
  void give(std::string_view text) {
    while (!text.empty() && client_.give(&text, SIZE_MAX)) {
    }
    CHECK(text.empty());
  }
  std::string take() { return client_.take(); }
  // Runs all shards until they have nothing to do, and takes all replies.
  std::string run() {
    std::string all = take();
    for (bool goes_on = true; goes_on;) {
      const uint32_t work = shards_.loops.run();
      const std::string replies = take();
      all += replies;
      goes_on = work > 0 || !replies.empty();
    }
    return all;
  }
  std::string say(std::string_view text, size_t piece_max = SIZE_MAX) {
    std::string all;
    for (bool goes_on = true; goes_on && !text.empty();) {
      const bool moved = client_.give(&text, piece_max);
      const std::string replies = run();
      all += replies;
      goes_on = moved || !replies.empty();
    }
    return all;
  }
  // The client goes; the session may have the next one.
  void leave() {
    session().leave();
    shards_.loops.run();
    session().reset();
    shards_.loops.run();
  }

 private:
  Shards& shards_;
  Client client_;
};

}  // namespace

#define ANSWERS(answer, ...) STRCMP_EQUAL(std::string(answer).c_str(), (__VA_ARGS__).c_str())

TEST_GROUP(KvdWaves) {
  Shards shards{2};
  ShardsRig& rig = shards.rig;
  std::string here = rig.key(0), there = rig.key(1), there2 = rig.key(1, 1);
  std::string value = std::string(5000, 'v'), middle = std::string(1200, 'm');

  void check_quiet() {
    for (uint32_t i = 0; i < rig.count(); ++i) CHECK_EQUAL(0, rig.asker(i).in_flight());
  }
};

TEST(KvdWaves, ACommandCrossesToTheOwner) {
  ShardClient client(shards);
  ANSWERS("STORED\r\n", client.say(set_text(there, "abc")));
  CHECK(rig.cache(0).peek(there) == nullptr);
  CHECK(rig.cache(1).peek(there) != nullptr);
  ANSWERS(value_text(there, "abc") + "END\r\n", client.say("get " + there + "\r\n"));
  // A client of the owner has it at once.
  ShardClient other(shards, 1);
  other.give("get " + there + "\r\n");
  ANSWERS(value_text(there, "abc") + "END\r\n", other.take());
  CHECK_EQUAL(1, rig.counters(1).sets.read());
  CHECK_EQUAL(2, rig.counters(1).hits.read());
  CHECK_EQUAL(0, rig.counters(0).gets.read());
  CHECK_EQUAL(2, rig.counters(0).crossed.read());
  CHECK_EQUAL(2, rig.counters(0).crossings.read());
  check_quiet();
}

TEST(KvdWaves, AnswersKeepTheOrderOfTheClient) {
  ShardClient client(shards);
  const std::string text = set_text(here, "h") + set_text(there, "t") + "get " + here + "\r\n" +
                           "get " + there + "\r\nbogus\r\n" + "delete none\r\ndelete " + here +
                           "\r\nget " + there + " " + here + " " + there2 + " " + there + "\r\n" +
                           set_text(there2, "2") + "get " + there2 + " " + there + "\r\n" +
                           "version\r\ntouch " + there + " 9\r\n";
  const std::string wanted = "STORED\r\nSTORED\r\n" + value_text(here, "h") + "END\r\n" +
                             value_text(there, "t") + "END\r\nERROR\r\nNOT_FOUND\r\nDELETED\r\n" +
                             value_text(there, "t") + value_text(there, "t") + "END\r\nSTORED\r\n" +
                             value_text(there2, "2") + value_text(there, "t") +
                             "END\r\nVERSION 1.0.0-bedplate\r\nTOUCHED\r\n";
  ANSWERS(wanted, client.say(text));
  for (const size_t piece : {1, 7, 50}) {
    client.say("flush_all\r\n");
    ANSWERS(wanted, client.say(text, piece));
  }
  check_quiet();
}

// One question takes all commands of a pipeline to their owner.
TEST(KvdWaves, APipelineCrossesOnce) {
  ShardClient client(shards);
  std::string text, wanted;
  for (uint32_t i = 0; i < 20; ++i) {
    text += set_text(rig.key(1, i), "x");
    wanted += "STORED\r\n";
  }
  ANSWERS(wanted, client.say(text));
  CHECK_EQUAL(20, rig.counters(0).crossed.read());
  CHECK_EQUAL(1, rig.counters(0).crossings.read());
}

// Waves have 32 operations, and a get may have any number of keys.
TEST(KvdWaves, AGetOfManyKeysIsInOrder) {
  ShardClient client(shards);
  std::string sets, keys, wanted;
  for (uint32_t i = 0; i < 300; ++i) {
    const std::string key = "session:" + std::to_string(i) + ":profile";
    sets += set_text(key, std::to_string(i * 7));
    keys += " " + key + (i % 5 == 0 ? " missing" + std::to_string(i) : "");
    wanted += value_text(key, std::to_string(i * 7));
  }
  client.say(sets);
  for (const char* const end : {"\r\n", "  \r\n", "\n"}) {
    for (const size_t piece : {size_t{1} << 20, size_t{1}, size_t{100}, size_t{4096}}) {
      ANSWERS(wanted + "END\r\nEND\r\n", client.say("get" + keys + end + "get none\r\n", piece));
    }
  }
  CHECK_EQUAL(rig.sum(&Counters::gets), rig.sum(&Counters::hits) + rig.sum(&Counters::misses));
  check_quiet();
}

TEST(KvdWaves, ASetIsSeenByTheNextGetOfThePipeline) {
  ShardClient client(shards);
  ANSWERS("STORED\r\n" + value_text(there, "one") + "END\r\nSTORED\r\n" + value_text(there, "two") +
              "END\r\nDELETED\r\nEND\r\n",
          client.say(set_text(there, "one") + "get " + there + "\r\n" + set_text(there, "two") +
                     "get " + there + "\r\ndelete " + there + "\r\nget " + there + "\r\n"));
}

TEST(KvdWaves, EveryCommandOfAKey) {
  ShardClient client(shards);
  const auto exchange = [&](const std::string& request, const std::string& reply) {
    const std::string said = client.say(request + "\r\n");
    const std::string wanted = reply.empty() ? "" : reply + "\r\n";
    if (said != wanted) FAIL((request + "\nis answered\n" + said + "not\n" + wanted).c_str());
  };
  exchange("replace " + there + " 0 0 1\r\nx", "NOT_STORED");
  exchange("add " + there + " 5 0 2\r\n10", "STORED");
  exchange("add " + there + " 5 0 2\r\n11", "NOT_STORED");
  exchange("incr " + there + " 5", "15");
  exchange("decr " + there + " 100", "0");
  exchange("append " + there + " 0 0 1\r\n7", "STORED");
  exchange("prepend " + there + " 0 0 1\r\n1", "STORED");
  exchange("get " + there, "VALUE " + there + " 5 4\r\n10 7\r\nEND");
  exchange("incr " + there + " 1", "CLIENT_ERROR cannot increment or decrement non-numeric value");
  exchange("incr " + there2 + " 1", "NOT_FOUND");
  exchange("incr " + there + " x", "CLIENT_ERROR invalid numeric delta argument");
  exchange("touch " + there2 + " 1", "NOT_FOUND");
  exchange("gat 100 " + there, "VALUE " + there + " 5 4\r\n10 7\r\nEND");
  const std::string version = std::to_string(rig.cache(1).peek(there)->version);
  exchange("gets " + there, "VALUE " + there + " 5 4 " + version + "\r\n10 7\r\nEND");
  exchange("cas " + there + " 0 0 1 999\r\nz", "EXISTS");
  exchange("cas " + there + " 0 0 1 " + version + "\r\nz", "STORED");
  exchange("cas " + there2 + " 0 0 1 1\r\nz", "NOT_FOUND");
  exchange("set " + there + " 0 0 3\r\nabcd", "CLIENT_ERROR bad data chunk\r\nERROR");
  exchange("delete " + there + " 5",
           "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]");
  exchange("delete " + there, "DELETED");
  exchange("delete " + there, "NOT_FOUND");
  exchange("set " + there + " 0 0 1 noreply\r\ny", "");
  exchange("incr " + there + " 1 noreply", "");
  exchange("touch " + there + " 0 noreply", "");
  exchange("get " + there, "VALUE " + there + " 0 1\r\ny\r\nEND");
  exchange("delete " + there + " noreply", "");
  exchange("get " + there, "END");
  check_quiet();
}

TEST(KvdWaves, MetaCommands) {
  ShardClient client(shards);
  const auto exchange = [&](const std::string& request, const std::string& reply) {
    const std::string said = client.say(request + "\r\n");
    const std::string wanted = reply.empty() ? "" : reply + "\r\n";
    if (said != wanted) FAIL((request + "\nis answered\n" + said + "not\n" + wanted).c_str());
  };
  exchange("mg " + there + " v k Oab", "EN k" + there + " Oab");
  exchange("ms " + there + " 3 T30 F7 k c\r\nabc", "HD k" + there + " c1");
  exchange("mg " + there + " t f v s", "VA 3 t30 f7 s3\r\nabc");
  exchange("mg " + there + " q v", "VA 3\r\nabc");
  exchange("mg " + there2 + " q v", "");
  exchange("ms " + there + " 2 q\r\nno", "");
  exchange("ms " + there + " 2\r\nnoo", "CLIENT_ERROR bad data chunk\r\nERROR");
  exchange("md " + there + " I T9", "HD");
  exchange("mg " + there + " v", "VA 2 X W\r\nno");
  exchange("mg " + there + " v", "VA 2 Z X\r\nno");
  exchange("ma " + there, "CLIENT_ERROR cannot increment or decrement non-numeric value");
  exchange("ma " + there2 + " N0 J5 v", "VA 1\r\n5");
  exchange("ma " + there2 + " D6 v k", "VA 2 k" + there2 + "\r\n11");
  exchange("me " + there2, "ME " + there2 + " exp=-1 la=0 cas=5 fetch=yes cls=1 size=128");
  exchange("md " + there, "HD");
  exchange("md " + there + " q", "NF");
  exchange("ms " + there + " 3 E1\r\nabc", "CLIENT_ERROR invalid flag");
  exchange("mn", "MN");
  // Long values in and out.
  exchange("ms " + there + " 5000 k\r\n" + value, "HD k" + there);
  exchange("mg " + there + " s v", "VA 5000 s5000\r\n" + value);
  exchange("ms " + there + " 1200 k\r\n" + middle, "HD k" + there);
  exchange("mg " + there + " s v", "VA 1200 s1200\r\n" + middle);
  exchange("ms " + there + " 70000 k\r\n" + std::string(70'000, 'x'),
           "SERVER_ERROR object too large for cache");
  exchange("mg " + there + " v", "EN");
  CHECK(rig.is_unpinned(1, there));
  check_quiet();
}

TEST(KvdWaves, ValuesOfAllLengths) {
  ShardClient client(shards);
  for (const size_t bytes : {0, 1, 200, 255, 256, 1000, 1024, 1536, 1600, 4096, 4097, 60'000}) {
    const std::string content(bytes, static_cast<char>('a' + bytes % 26));
    ANSWERS("STORED\r\n" + value_text(there, content) + "END\r\n",
            client.say(set_text(there, content) + "get " + there + "\r\n"));
    // Several share the memory for copies.
    std::string gets, wanted;
    for (int i = 0; i < 40; ++i) {
      gets += "get " + there + "\r\n";
      wanted += value_text(there, content) + "END\r\n";
    }
    CHECK(client.say(gets) == wanted);
    CHECK(rig.is_unpinned(1, there));
  }
  ANSWERS("SERVER_ERROR object too large for cache\r\nEND\r\n",
          client.say(set_text(there, std::string(70'000, 'x')) + "get " + there + "\r\n"));
  CHECK_EQUAL(1, rig.counters(1).too_large.read());
  ANSWERS("CLIENT_ERROR bad data chunk\r\nEND\r\n",
          client.say("set " + there + " 0 0 5000\r\n" + value + "xxget " + there + "\r\n"));
  check_quiet();
}

// An item is unpinned by its owner once its text is sent, not before.
TEST(KvdWaves, AValueOnItsWayIsPinned) {
  ShardClient client(shards), other(shards, 1);
  other.say(set_text(there, value));
  client.give("get " + there + "\r\n");
  shards.loops.run();
  const auto pieces = client.session().replies();
  const CacheItem& item = *rig.cache(1).peek(there);
  CHECK_EQUAL(1, item.pins);
  other.say(set_text(there, std::string(5000, 'w')));
  for (int i = 0; i < 2000; ++i) other.say(set_text(rig.key(1, 2), std::string(1000, 'd')));
  std::string seen;
  for (const iovec& piece : pieces) {
    seen.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  }
  CHECK(seen == value_text(there, value) + "END\r\n");
  client.session().sent(shards.loops.clock_ns);
  CHECK_EQUAL(1, rig.asker(0).in_flight());
  CHECK_EQUAL(1, item.pins);
  shards.loops.run();
  CHECK_EQUAL(0, item.pins);
  check_quiet();
}

// The next wave waits for the items of the last one.
TEST(KvdWaves, LongValuesInAPipeline) {
  ShardClient client(shards);
  client.say(set_text(there, value) + set_text(here, middle) + set_text(there2, middle));
  std::string text, wanted;
  for (int i = 0; i < 50; ++i) {
    text += "get " + there + " " + here + " " + there2 + "\r\n";
    wanted += value_text(there, value) + value_text(here, middle) + value_text(there2, middle) +
              "END\r\n";
  }
  CHECK(client.say(text) == wanted);
  CHECK(rig.is_unpinned(0, here));
  CHECK(rig.is_unpinned(1, there) && rig.is_unpinned(1, there2));
  check_quiet();
}

// ---- Order --------------------------------------------------------------------------------------

TEST(KvdWaves, FlushAllIsOfAllShards) {
  ShardClient client(shards);
  client.say(set_text(here, "h") + set_text(there, "t"));
  ANSWERS(value_text(there, "t") + "END\r\nOK\r\nEND\r\n",
          client.say("get " + there + "\r\nflush_all\r\nget " + there + " " + here + "\r\n"));
  client.say(set_text(here, "h") + set_text(there, "t"));
  ANSWERS("OK\r\n" + value_text(there, "t") + value_text(here, "h") + "END\r\n",
          client.say("flush_all 5\r\nget " + there + " " + here + "\r\n"));
  shards.pass(5 * kNsPerSecond);
  ANSWERS("END\r\n", client.say("get " + there + " " + here + "\r\n"));
  ANSWERS("", client.say("flush_all noreply\r\n"));
  CHECK_EQUAL(3, rig.sum(&Counters::flushes));
}

TEST(KvdWaves, StatsAreThoseOfAllShards) {
  ShardClient client(shards);
  client.say(set_text(here, "h") + set_text(there, "t") + "get " + here + " " + there +
             " none\r\n");
  const auto expect = [](const std::string& stats, const std::string& line) {
    if (stats.find("STAT " + line + "\r\n") == stats.npos)
      FAIL((line + " is not in\n" + stats).c_str());
  };
  // The wave before it is answered first.
  const std::string stats = client.say("get " + there + "\r\nstats\r\n");
  CHECK(stats.starts_with(value_text(there, "t") + "END\r\nSTAT pid 4711\r\n"));
  for (const char* const line : {"cmd_get 4", "get_hits 3", "get_misses 1", "cmd_set 2",
                                 "curr_items 2", "threads 2", "limit_maxbytes 2097152"}) {
    expect(stats, line);
  }
  ShardClient other(shards, 1);
  ANSWERS("RESET\r\n", other.say("stats reset\r\n"));
  const std::string after = client.say("get " + there + "\r\nstats\r\n");
  for (const char* const line : {"cmd_get 1", "cmd_set 0", "curr_items 2"}) expect(after, line);
}

TEST(KvdWaves, WhatEndsTheSessionComesLast) {
  const std::string got = value_text(there, "t") + "END\r\n";
  ShardClient first(shards);
  first.say(set_text(there, "t"));
  ANSWERS(got, first.say("get " + there + "\r\nquit\r\nget " + there + "\r\n"));
  CHECK(first.session().is_over());
  const std::pair<const char*, std::string> all[] = {
      {"HTTP", "GET / HTTP/1.1\r\n"}, {"HTTP", "Host: a\r\n"}, {"TLS", "\x16\x03\x01\r\n"}};
  for (const auto& [what, text] : all) {
    ShardClient client(shards);
    ANSWERS(got, client.say("get " + there + "\r\n" + text + "set pwned 0 0 1\r\nx\r\n"));
    CHECK(client.session().foreign() != nullptr);
    STRCMP_EQUAL(what, client.session().foreign());
  }
  ShardClient binary(shards);
  const std::string said = binary.say("get " + there + "\r\n\x80");
  CHECK(said.starts_with(got + "CLIENT_ERROR the binary protocol"));
  CHECK(binary.session().is_over());
  CHECK(rig.cache(0).peek("pwned") == nullptr && rig.cache(1).peek("pwned") == nullptr);
}

TEST(KvdWaves, MistakesInTheMiddle) {
  ShardClient client(shards);
  client.say(set_text(there, "t"));
  const std::string got = value_text(there, "t") + "END\r\n";
  const std::string get = "get " + there + "\r\n";
  const std::string bad = "CLIENT_ERROR bad command line format\r\n";
  const std::pair<std::string, std::string> all[] = {
      {"bogus\r\n", "ERROR\r\n"},
      {"\r\n", "ERROR\r\n"},
      {"set a 0 0 x\r\n", bad},
      {"delete a b c d\r\n", "ERROR\r\n"},
      {"ms a 3 E1\r\nabc\r\n", "CLIENT_ERROR invalid flag\r\n"},
      {"get " + there + " " + std::string(251, 'k') + " " + there + "\r\n",
       value_text(there, "t") + bad},
      {"set " + there2 + " 0 0 1 noreply junk\r\n", "ERROR\r\n"},
      {"set " + there2 + " 0 0 3\r\nabcd\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"},
      {"set " + here + " 0 0 70000\r\n" + std::string(70'000, 'x') + "\r\n",
       "SERVER_ERROR object too large for cache\r\n"},
      {std::string(3000, 'x') + "\r\n", "ERROR\r\n"}};
  for (const auto& [text, answer] : all) {
    for (const size_t piece : {size_t{1} << 20, size_t{1}, size_t{100}}) {
      const std::string said = client.say(get + text + get, piece);
      if (said != got + answer + got) FAIL((text.substr(0, 100) + "\n" + said).c_str());
    }
  }
  check_quiet();
}

// A value that is not there yet does not keep the answers before it.
TEST(KvdWaves, WhatIsIncompleteKeepsNoAnswer) {
  ShardClient client(shards);
  client.say(set_text(there, "t"));
  const std::string got = value_text(there, "t") + "END\r\n";
  const std::string halves[] = {"get " + there2, "set " + there2 + " 0 0 100\r\nabc",
                                "set " + there2 + " 0 0 9000\r\nabc",
                                "set " + here + " 0 0 9000\r\nabc", "ms a 3 E1\r\na"};
  for (const std::string& half : halves) {
    ShardClient one(shards);
    const std::string said = one.say("get " + there + "\r\n" + half);
    CHECK(said.starts_with(got));
  }
}

// ---- Leaving ------------------------------------------------------------------------------------

TEST(KvdWaves, AClientMayLeaveAtAnyStep) {
  const std::string text = set_text(there, value) + set_text(here, middle) + "get " + there + " " +
                           here + " " + there + "\r\nincr n 1\r\nget " + there + "\r\n" + "set " +
                           there2 + " 0 0 60000\r\n" + std::string(60'000, 'x') + "\r\nmg " +
                           there + " v\r\nflush_all\r\n";
  for (uint32_t rounds = 0; rounds < 60; ++rounds) {
    for (const bool takes : {false, true}) {
      ShardClient client(shards);
      std::string_view left = std::string_view(text).substr(0, 12'000 + rounds * 1000);
      testing::SessionPeer peer(client.session());
      peer.now_ns = shards.loops.clock_ns;
      for (uint32_t i = 0; i < rounds; ++i) {
        (void)peer.give(&left, 5000);
        if (takes) (void)client.take();
        (void)shards.loops.loops[i % 2]->run_round();
      }
      client.session().leave();
      shards.loops.run();
      CHECK_FALSE(client.session().is_waiting());
      client.session().reset();
      // The next client of this session.
      ANSWERS("END\r\n", client.say("get none\r\n"));
    }
    CHECK(rig.is_unpinned(0, here));
    CHECK(rig.is_unpinned(1, there) && rig.is_unpinned(1, there2));
    check_quiet();
  }
  // Nothing that was taken is lost.
  ShardClient client(shards, 1);
  for (int i = 0; i < 100; ++i) {
    ANSWERS("STORED\r\n", client.say(set_text(rig.key(1, 3), std::string(60'000, 'y'))));
  }
}

TEST(KvdWaves, AWaveThatIsOutKeepsItsSession) {
  ShardClient client(shards);
  client.give(set_text(there, "t"));
  client.session().leave();
  CHECK(client.session().is_waiting());
  shards.loops.run();
  CHECK_FALSE(client.session().is_waiting());
  CHECK(rig.cache(1).peek(there) != nullptr);
}

// The item of a long value goes back to its owner.
TEST(KvdWaves, AClientThatLeavesGivesBackWhatItHad) {
  ShardClient client(shards);
  for (int i = 0; i < 100; ++i) {
    client.say("set " + there + " 0 0 30000\r\nthe beginning of it");
    client.leave();
  }
  ANSWERS("STORED\r\n", client.say(set_text(there, std::string(60'000, 'x'))));
  CHECK(rig.is_unpinned(1, there));
  check_quiet();
}

// ---- Limits -------------------------------------------------------------------------------------

namespace {

struct ListenerPeer final : StreamPeer {
  int fd() const noexcept override { return -1; }
  bool is_certified() const noexcept override { return false; }
  void* listener() const noexcept override { return limit; }

  RequestLimit* limit = nullptr;
};

}  // namespace

TEST(KvdWaves, CommandsWaitForALimitInTheirOrder) {
  const auto counters = std::make_unique<LimitCounters>();
  EventLoop& loop = *shards.loops.loops[0];
  RequestLimit limit(loop, *counters, &Session::turn_came, &loop);
  ListenerPeer peer;
  peer.limit = &limit;
  ShardClient client(shards);
  client.say(set_text(there, "t") + set_text(here, "h"));
  client.session().set_owner({.peer = &peer});
  limit.set({.read_rate = 10});
  rig.environment(0).set_limited(true);
  const std::string got = value_text(there, "t") + "END\r\n";
  ANSWERS(got, client.say("get " + there + "\r\nget " + there + "\r\ndelete " + here + "\r\nget " +
                          there + "\r\n"));
  CHECK_EQUAL(1, limit.reads_waiting());
  shards.pass(100 * kNsPerMs - 1);
  ANSWERS("", client.run());
  shards.pass(1);
  ANSWERS(got + "DELETED\r\n", client.run());
  shards.pass(100 * kNsPerMs);
  ANSWERS(got, client.run());
  // The bytes of a value of another shard are paid by the next read.
  rig.environment(0).set_limited(false);
  client.say(set_text(there, value));
  limit.set({.read_rate_bytes = 1000});
  rig.environment(0).set_limited(true);
  ANSWERS(value_text(there, value) + "END\r\n", client.say("get " + there + "\r\n"));
  ANSWERS("", client.say("get " + there2 + "\r\n"));
  shards.pass(4900 * kNsPerMs - 1);
  ANSWERS("", client.run());
  shards.pass(1);
  ANSWERS("END\r\n", client.run());
  client.leave();
  limit.set({});
  rig.environment(0).set_limited(false);
}

// ---- The model ----------------------------------------------------------------------------------

namespace {

// Random commands without versions, which are of a shard.
std::string random_commands(std::mt19937_64& random, uint32_t count) {
  const auto below = [&](uint64_t end) { return random() % end; };
  const auto key = [&] { return "k" + std::to_string(below(12)); };
  const auto data = [&] {
    constexpr size_t kLengths[] = {0, 1, 3, 100, 600, 1100, 1700, 4096, 4097, 9000};
    return std::string(kLengths[below(std::size(kLengths))], static_cast<char>('a' + below(26)));
  };
  const auto store = [&](const char* word, const std::string& value) {
    return std::string(word) + " " + key() + " " + std::to_string(below(9)) + " 0 " +
           std::to_string(value.size()) + (below(5) == 0 ? " noreply" : "") + "\r\n" + value +
           "\r\n";
  };
  std::string all;
  for (uint32_t i = 0; i < count; ++i) {
    switch (below(20)) {
      case 0:
      case 1: all += store("set", data()); break;
      case 2: all += store("set", std::to_string(below(100))); break;
      case 3: all += store("add", data()); break;
      case 4: all += store("replace", data()); break;
      case 5: all += store("append", "+"); break;
      case 6: all += store("prepend", "-"); break;
      case 7: all += "incr " + key() + " " + std::to_string(below(50)) + "\r\n"; break;
      case 8: all += "decr " + key() + " " + std::to_string(below(50)) + " noreply\r\n"; break;
      case 9: all += "delete " + key() + "\r\n"; break;
      case 10: all += "touch " + key() + " " + std::to_string(below(3)) + "\r\n"; break;
      case 11: all += "gat 0 " + key() + " " + key() + "\r\n"; break;
      case 12: all += "mg " + key() + " v s f k q\r\nmn\r\n"; break;
      case 13: all += "ms " + key() + " 2 s F3\r\nms\r\n"; break;
      case 14: all += below(30) == 0 ? "flush_all\r\n" : "md " + key() + " q\r\n"; break;
      case 15: all += below(2) == 0 ? "bogus\r\n" : "set " + key() + " 0 0 1\r\nxx\r\n"; break;
      default: {
        all += "get";
        for (uint64_t keys = 1 + below(40); keys > 0; --keys) all += " " + key();
        all += "\r\n";
      }
    }
  }
  return all;
}

}  // namespace

TEST(KvdWaves, RandomCommandsAreAnsweredAsOnOneShard) {
  const Seed seed;
  std::mt19937_64 random(seed.value());
  for (const uint32_t count : {2U, 3U, 5U}) {
    Shards several(count);
    CacheRig single(1024 * 1024);
    Client alone(single);
    ShardClient client(several, static_cast<uint32_t>(random() % count));
    for (int round = 0; round < 40; ++round) {
      const std::string text = random_commands(random, 30);
      const size_t piece = random() % 3 == 0 ? text.size() : 1 + random() % 3000;
      const std::string wanted = alone.say(text);
      const std::string said = client.say(text, piece);
      if (said != wanted) FAIL((seed.text() + std::string(":\n") + text).c_str());
    }
    for (uint32_t i = 0; i < count; ++i) {
      CHECK_EQUAL(0, several.rig.asker(i).in_flight());
      CHECK(several.rig.cache(i).is_valid());
    }
    CHECK_EQUAL(single.counters.hits.read(), several.rig.sum(&Counters::hits));
    CHECK_EQUAL(single.counters.misses.read(), several.rig.sum(&Counters::misses));
    CHECK_EQUAL(single.counters.sets.read(), several.rig.sum(&Counters::sets));
  }
}

// ---- The law ------------------------------------------------------------------------------------

TEST(KvdWaves, KeepTheLawOfTheDataPath) {
  BP_SKIP_WITHOUT_LAW();
  Client client(rig.environment(0));
  const std::string script = set_text(there, "t") + set_text(here, "h") + "get " + there + " " +
                             here + "\r\nincr " + there + " 1\r\nmg " + there + " v\r\n" +
                             set_text(there2, value) + "get " + there2 + "\r\nbogus\r\ntouch " +
                             there + " 9\r\nflush_all\r\ndelete " + there + "\r\n";
  const auto speak = [&]() noexcept {
    size_t bytes = 0;
    for (std::string_view text(script);;) {
      const bool moved = !text.empty() && client.give(&text, 3000);
      const uint32_t work = shards.loops.run();
      const size_t before = bytes;
      for (auto pieces = client.session().replies(); !pieces.empty();
           pieces = client.session().replies()) {
        for (const iovec& piece : pieces) bytes += piece.iov_len;
        client.session().handed_over(shards.loops.clock_ns);
        client.sent();
      }
      if (!moved && work == 0 && bytes == before) return bytes;
    }
  };
  CHECK(speak() > 5000);
  size_t bytes = 0;
  LONGS_EQUAL(0, breaches_in([&] {
                for (int i = 0; i < 20; ++i) bytes += speak();
              }));
  CHECK(bytes > 20 * 5000);
}
