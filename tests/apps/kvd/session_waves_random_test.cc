// Sessions whose commands cross to other shards, in one thread: limits of listeners, random
// commands against a kvd on one shard, and the law of the data path.
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "tests/apps/kvd/shard_client.h"
#include "tests/support/datapath_law.h"
#include "tests/support/seed.h"
#include "transport/loop/request_limit_datapath.h"
#include "transport/sockets/stream_peer.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::kvd;
using namespace bedplate::test;

TEST_GROUP(KvdWavesAtRandom) {
  Shards shards{2};
  ShardsRig& rig = shards.rig;
  std::string here = rig.key(0), there = rig.key(1), there2 = rig.key(1, 1);
  std::string value = std::string(5000, 'v');
};

// ---- Limits -------------------------------------------------------------------------------------

namespace {

struct PeerWithLimit final : StreamPeer {
  int fd() const noexcept override { return -1; }
  bool is_certified() const noexcept override { return false; }
  void* listener() const noexcept override { return limit; }

  RequestLimit* limit = nullptr;
};

}  // namespace

TEST(KvdWavesAtRandom, CommandsWaitForALimitInTheirOrder) {
  const auto counters = std::make_unique<LimitCounters>();
  EventLoop& loop = *shards.loops.loops[0];
  RequestLimit limit(loop, *counters, &Session::turn_came, &loop);
  PeerWithLimit peer;
  peer.limit = &limit;
  ShardClient client(shards);
  client.say(set_request(there, "t") + set_request(here, "h"));
  client.session().set_owner({.peer = &peer});
  limit.set({.read_rate = 10});
  rig.environment(0).set_limited(true);
  const std::string got = value_reply(there, "t") + "END\r\n";
  SAYS(got, client.say("get " + there + "\r\nget " + there + "\r\ndelete " + here + "\r\nget " +
                       there + "\r\n"));
  CHECK_EQUAL(1, limit.reads_waiting());
  shards.pass(100 * kNsPerMs - 1);
  SAYS("", client.run());
  shards.pass(1);
  SAYS(got + "DELETED\r\n", client.run());
  shards.pass(100 * kNsPerMs);
  SAYS(got, client.run());
  // The bytes of a value of another shard are paid by the next read.
  rig.environment(0).set_limited(false);
  client.say(set_request(there, value));
  limit.set({.read_rate_bytes = 1000});
  rig.environment(0).set_limited(true);
  SAYS(value_reply(there, value) + "END\r\n", client.say("get " + there + "\r\n"));
  SAYS("", client.say("get " + there2 + "\r\n"));
  shards.pass(4900 * kNsPerMs - 1);
  SAYS("", client.run());
  shards.pass(1);
  SAYS("END\r\n", client.run());
  client.leave();
  limit.set({});
  rig.environment(0).set_limited(false);
}

// The limit is on the first shard; a client of the other one asks for its turns there.
TEST(KvdWavesAtRandom, ClientsOfAllShardsShareALimit) {
  const auto counters = std::make_unique<LimitCounters>();
  EventLoop& loop = *shards.loops.loops[0];
  RequestLimit limit(loop, *counters, &Session::turn_came, &loop);
  PeerWithLimit peer;
  peer.limit = &limit;
  ShardClient near_client(shards), far_client(shards, 1);
  far_client.say(set_request(there, "t") + set_request(here, "h"));
  near_client.session().set_owner({.peer = &peer});
  far_client.session().set_owner({.peer = &peer});
  const auto set = [&](const LimitRates& rates) {
    limit.set(rates);
    for (uint32_t i = 0; i < 2; ++i) rig.environment(i).set_limited(rates.are_limited());
  };
  set({.read_rate = 10});
  const std::string got_there = value_reply(there, "t") + "END\r\n";
  const std::string got_here = value_reply(here, "h") + "END\r\n";
  SAYS("TOUCHED\r\n" + got_there,
       far_client.say("touch " + there + " 0\r\nget " + there + "\r\nget " + here + "\r\n"));
  CHECK_EQUAL(1, limit.reads_waiting());
  SAYS("", near_client.say("get " + here + "\r\n"));
  CHECK_EQUAL(2, limit.reads_waiting());
  shards.pass(100 * kNsPerMs - 1);
  SAYS("", far_client.run());
  shards.pass(1);
  SAYS(got_here, far_client.run());
  SAYS("", near_client.run());
  shards.pass(100 * kNsPerMs);
  SAYS(got_here, near_client.run());
  // A client that leaves leaves the queue.
  SAYS("", far_client.say("get " + there + "\r\n"));
  CHECK_EQUAL(1, limit.reads_waiting());
  far_client.session().leave();
  CHECK(far_client.session().is_waiting());
  shards.loops.run();
  CHECK_FALSE(far_client.session().is_waiting());
  CHECK_EQUAL(0, limit.reads_waiting());
  far_client.leave();
  // Its bytes are paid by the next one, whoever that is.
  set({});
  far_client.say(set_request(there, value));
  set({.read_rate_bytes = 1000});
  SAYS(value_reply(there, value) + "END\r\n", far_client.say("get " + there + "\r\n"));
  SAYS("", near_client.say("get none\r\n"));
  shards.pass(4900 * kNsPerMs - 1);
  SAYS("", near_client.run());
  shards.pass(1);
  SAYS("END\r\n", near_client.run());
  // The end of the limit lets all go.
  SAYS(value_reply(there, value) + "END\r\n", far_client.say("get " + there + "\r\n"));
  SAYS("", far_client.say("get none\r\n"));
  set({});
  SAYS("END\r\n", far_client.run());
  near_client.leave();
  far_client.leave();
  CHECK_EQUAL(0, rig.asker(1).in_flight());
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

TEST(KvdWavesAtRandom, RandomCommandsAreAnsweredAsOnOneShard) {
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

TEST(KvdWavesAtRandom, KeepTheLawOfTheDataPath) {
  BP_SKIP_WITHOUT_LAW();
  Client client(rig.environment(0));
  const std::string script = set_request(there, "t") + set_request(here, "h") + "get " + there +
                             " " + here + "\r\nincr " + there + " 1\r\nmg " + there + " v\r\n" +
                             set_request(there2, value) + "get " + there2 + "\r\nbogus\r\ntouch " +
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
