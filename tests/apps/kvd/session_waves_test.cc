// Sessions whose commands cross to other shards, in one thread: order, every command, long values,
// mistakes, clients that leave.
#include <string>
#include <string_view>
#include <utility>

#include "tests/apps/kvd/shard_client.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::kvd;

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
  SAYS("STORED\r\n", client.say(set_request(there, "abc")));
  CHECK(rig.cache(0).peek(there) == nullptr);
  CHECK(rig.cache(1).peek(there) != nullptr);
  SAYS(value_reply(there, "abc") + "END\r\n", client.say("get " + there + "\r\n"));
  // A client of the owner has it at once.
  ShardClient other(shards, 1);
  other.give("get " + there + "\r\n");
  SAYS(value_reply(there, "abc") + "END\r\n", other.take());
  CHECK_EQUAL(1, rig.counters(1).sets.read());
  CHECK_EQUAL(2, rig.counters(1).hits.read());
  CHECK_EQUAL(0, rig.counters(0).gets.read());
  CHECK_EQUAL(2, rig.counters(0).crossed.read());
  CHECK_EQUAL(2, rig.counters(0).crossings.read());
  check_quiet();
}

TEST(KvdWaves, AnswersKeepTheOrderOfTheClient) {
  ShardClient client(shards);
  const std::string text = set_request(here, "h") + set_request(there, "t") + "get " + here +
                           "\r\n" + "get " + there + "\r\nbogus\r\n" + "delete none\r\ndelete " +
                           here + "\r\nget " + there + " " + here + " " + there2 + " " + there +
                           "\r\n" + set_request(there2, "2") + "get " + there2 + " " + there +
                           "\r\n" + "version\r\ntouch " + there + " 9\r\n";
  const std::string wanted =
      "STORED\r\nSTORED\r\n" + value_reply(here, "h") + "END\r\n" + value_reply(there, "t") +
      "END\r\nERROR\r\nNOT_FOUND\r\nDELETED\r\n" + value_reply(there, "t") +
      value_reply(there, "t") + "END\r\nSTORED\r\n" + value_reply(there2, "2") +
      value_reply(there, "t") + "END\r\nVERSION 1.0.0-bedplate\r\nTOUCHED\r\n";
  SAYS(wanted, client.say(text));
  for (const size_t piece : {1, 7, 50}) {
    client.say("flush_all\r\n");
    SAYS(wanted, client.say(text, piece));
  }
  check_quiet();
}

// One question takes all commands of a pipeline to their owner.
TEST(KvdWaves, APipelineCrossesOnce) {
  ShardClient client(shards);
  std::string text, wanted;
  for (uint32_t i = 0; i < 20; ++i) {
    text += set_request(rig.key(1, i), "x");
    wanted += "STORED\r\n";
  }
  SAYS(wanted, client.say(text));
  CHECK_EQUAL(20, rig.counters(0).crossed.read());
  CHECK_EQUAL(1, rig.counters(0).crossings.read());
}

// Waves have 32 operations, and a get may have any number of keys.
TEST(KvdWaves, AGetOfManyKeysIsInOrder) {
  ShardClient client(shards);
  std::string sets, keys, wanted;
  for (uint32_t i = 0; i < 300; ++i) {
    const std::string key = "session:" + std::to_string(i) + ":profile";
    sets += set_request(key, std::to_string(i * 7));
    keys += " " + key + (i % 5 == 0 ? " missing" + std::to_string(i) : "");
    wanted += value_reply(key, std::to_string(i * 7));
  }
  client.say(sets);
  for (const char* const end : {"\r\n", "  \r\n", "\n"}) {
    for (const size_t piece : {size_t{1} << 20, size_t{1}, size_t{100}, size_t{4096}}) {
      SAYS(wanted + "END\r\nEND\r\n", client.say("get" + keys + end + "get none\r\n", piece));
    }
  }
  CHECK_EQUAL(rig.sum(&Counters::gets), rig.sum(&Counters::hits) + rig.sum(&Counters::misses));
  check_quiet();
}

TEST(KvdWaves, ASetIsSeenByTheNextGetOfThePipeline) {
  ShardClient client(shards);
  SAYS("STORED\r\n" + value_reply(there, "one") + "END\r\nSTORED\r\n" + value_reply(there, "two") +
           "END\r\nDELETED\r\nEND\r\n",
       client.say(set_request(there, "one") + "get " + there + "\r\n" + set_request(there, "two") +
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
    SAYS("STORED\r\n" + value_reply(there, content) + "END\r\n",
         client.say(set_request(there, content) + "get " + there + "\r\n"));
    // Several share the memory for copies.
    std::string gets, wanted;
    for (int i = 0; i < 40; ++i) {
      gets += "get " + there + "\r\n";
      wanted += value_reply(there, content) + "END\r\n";
    }
    CHECK(client.say(gets) == wanted);
    CHECK(rig.is_unpinned(1, there));
  }
  SAYS("SERVER_ERROR object too large for cache\r\nEND\r\n",
       client.say(set_request(there, std::string(70'000, 'x')) + "get " + there + "\r\n"));
  CHECK_EQUAL(1, rig.counters(1).too_large.read());
  SAYS("CLIENT_ERROR bad data chunk\r\nEND\r\n",
       client.say("set " + there + " 0 0 5000\r\n" + value + "xxget " + there + "\r\n"));
  check_quiet();
}

// An item is unpinned by its owner once its text is sent, not before.
TEST(KvdWaves, AValueOnItsWayIsPinned) {
  ShardClient client(shards), other(shards, 1);
  other.say(set_request(there, value));
  client.give("get " + there + "\r\n");
  shards.loops.run();
  const auto pieces = client.session().replies();
  const CacheItem& item = *rig.cache(1).peek(there);
  CHECK_EQUAL(1, item.pins);
  other.say(set_request(there, std::string(5000, 'w')));
  for (int i = 0; i < 2000; ++i) other.say(set_request(rig.key(1, 2), std::string(1000, 'd')));
  std::string seen;
  for (const iovec& piece : pieces) {
    seen.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  }
  CHECK(seen == value_reply(there, value) + "END\r\n");
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
  client.say(set_request(there, value) + set_request(here, middle) + set_request(there2, middle));
  std::string text, wanted;
  for (int i = 0; i < 50; ++i) {
    text += "get " + there + " " + here + " " + there2 + "\r\n";
    wanted += value_reply(there, value) + value_reply(here, middle) + value_reply(there2, middle) +
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
  client.say(set_request(here, "h") + set_request(there, "t"));
  SAYS(value_reply(there, "t") + "END\r\nOK\r\nEND\r\n",
       client.say("get " + there + "\r\nflush_all\r\nget " + there + " " + here + "\r\n"));
  client.say(set_request(here, "h") + set_request(there, "t"));
  SAYS("OK\r\n" + value_reply(there, "t") + value_reply(here, "h") + "END\r\n",
       client.say("flush_all 5\r\nget " + there + " " + here + "\r\n"));
  shards.pass(5 * kNsPerSecond);
  SAYS("END\r\n", client.say("get " + there + " " + here + "\r\n"));
  SAYS("", client.say("flush_all noreply\r\n"));
  CHECK_EQUAL(3, rig.sum(&Counters::flushes));
}

TEST(KvdWaves, StatsAreThoseOfAllShards) {
  ShardClient client(shards);
  client.say(set_request(here, "h") + set_request(there, "t") + "get " + here + " " + there +
             " none\r\n");
  const auto expect = [](const std::string& stats, const std::string& line) {
    if (stats.find("STAT " + line + "\r\n") == stats.npos)
      FAIL((line + " is not in\n" + stats).c_str());
  };
  // The wave before it is answered first.
  const std::string stats = client.say("get " + there + "\r\nstats\r\n");
  CHECK(stats.starts_with(value_reply(there, "t") + "END\r\nSTAT pid 4711\r\n"));
  for (const char* const line : {"cmd_get 4", "get_hits 3", "get_misses 1", "cmd_set 2",
                                 "curr_items 2", "threads 2", "limit_maxbytes 2097152"}) {
    expect(stats, line);
  }
  ShardClient other(shards, 1);
  SAYS("RESET\r\n", other.say("stats reset\r\n"));
  const std::string after = client.say("get " + there + "\r\nstats\r\n");
  for (const char* const line : {"cmd_get 1", "cmd_set 0", "curr_items 2"}) expect(after, line);
}

TEST(KvdWaves, WhatEndsTheSessionComesLast) {
  const std::string got = value_reply(there, "t") + "END\r\n";
  ShardClient first(shards);
  first.say(set_request(there, "t"));
  SAYS(got, first.say("get " + there + "\r\nquit\r\nget " + there + "\r\n"));
  CHECK(first.session().is_over());
  const std::pair<const char*, std::string> all[] = {
      {"HTTP", "GET / HTTP/1.1\r\n"}, {"HTTP", "Host: a\r\n"}, {"TLS", "\x16\x03\x01\r\n"}};
  for (const auto& [what, text] : all) {
    ShardClient client(shards);
    SAYS(got, client.say("get " + there + "\r\n" + text + "set pwned 0 0 1\r\nx\r\n"));
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
  client.say(set_request(there, "t"));
  const std::string got = value_reply(there, "t") + "END\r\n";
  const std::string get = "get " + there + "\r\n";
  const std::string bad = "CLIENT_ERROR bad command line format\r\n";
  const std::pair<std::string, std::string> all[] = {
      {"bogus\r\n", "ERROR\r\n"},
      {"\r\n", "ERROR\r\n"},
      {"set a 0 0 x\r\n", bad},
      {"delete a b c d\r\n", "ERROR\r\n"},
      {"ms a 3 E1\r\nabc\r\n", "CLIENT_ERROR invalid flag\r\n"},
      {"get " + there + " " + std::string(251, 'k') + " " + there + "\r\n",
       value_reply(there, "t") + bad},
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
  client.say(set_request(there, "t"));
  const std::string got = value_reply(there, "t") + "END\r\n";
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
  const std::string text = set_request(there, value) + set_request(here, middle) + "get " + there +
                           " " + here + " " + there + "\r\nincr n 1\r\nget " + there + "\r\n" +
                           "set " + there2 + " 0 0 60000\r\n" + std::string(60'000, 'x') +
                           "\r\nmg " + there + " v\r\nflush_all\r\n";
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
      SAYS("END\r\n", client.say("get none\r\n"));
    }
    CHECK(rig.is_unpinned(0, here));
    CHECK(rig.is_unpinned(1, there) && rig.is_unpinned(1, there2));
    check_quiet();
  }
  // Nothing that was taken is lost.
  ShardClient client(shards, 1);
  for (int i = 0; i < 100; ++i) {
    SAYS("STORED\r\n", client.say(set_request(rig.key(1, 3), std::string(60'000, 'y'))));
  }
}

TEST(KvdWaves, AWaveThatIsOutKeepsItsSession) {
  ShardClient client(shards);
  client.give(set_request(there, "t"));
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
  SAYS("STORED\r\n", client.say(set_request(there, std::string(60'000, 'x'))));
  CHECK(rig.is_unpinned(1, there));
  check_quiet();
}
