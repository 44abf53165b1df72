// Sessions whose commands cross between shards on threads of their own: all at once, with clients
// that leave.
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/apps/kvd/shards_rig.h"
#include "tests/support/patience.h"
#include "tests/support/seed.h"
#include "tests/transport/loop/running_loop.h"
#include "transport/loop/request_limit_datapath.h"
#include "transport/sockets/stream_peer.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::kvd;
using namespace bedplate::test;

namespace {

// Commands on the keys of one client; no other client touches them.
std::string random_commands(std::mt19937_64& random, const std::string& client, uint32_t count) {
  const auto below = [&](uint64_t end) { return random() % end; };
  const auto key = [&] { return client + std::to_string(below(8)); };
  std::string all;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string value(below(4) == 0 ? 1000 + below(5000) : below(300),
                            static_cast<char>('a' + below(26)));
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        all += "set " + key() + " 0 0 " + std::to_string(value.size()) + "\r\n" + value + "\r\n";
        break;
      case 3: all += "append " + key() + " 0 0 1\r\n+\r\n"; break;
      case 4: all += "delete " + key() + "\r\n"; break;
      case 5: all += "mg " + key() + " v s\r\n"; break;
      case 6: all += "incr shared 1 noreply\r\nbogus\r\n"; break;
      default: {
        all += "get";
        for (uint64_t keys = 1 + below(20); keys > 0; --keys) all += " " + key();
        all += "\r\n";
      }
    }
  }
  return all;
}

struct PeerOnThreads final : StreamPeer {
  int fd() const noexcept override { return -1; }
  bool is_certified() const noexcept override { return false; }
  void* listener() const noexcept override { return limit.get(); }

  std::unique_ptr<RequestLimit> limit;
};

// A client on the thread of its shard. In each turn of the loop it sends a part of its script, and
// takes the replies that are there. Nothing is allocated meanwhile.
class Actor {
 public:
  Actor(ShardsRig& rig, uint32_t shard, const std::string& script)
      : loop_(*rig.environment(shard).loop), script_(script), client_(rig.environment(shard)) {
    CacheRig single(1024 * 1024);
    Client alone(single);
    alone.say("set shared 0 0 1\r\n0\r\n");
    wanted_ = alone.say(script);
    said_.resize(wanted_.size());
  }

  void begin() { loop_.submit(call_); }
  bool is_over() const { return is_over_.load(); }
  bool is_right() const { return is_over() && said_ == wanted_ && said_bytes_ == wanted_.size(); }
  void stop() { must_stop_.store(true); }
  Session& session() { return client_.session(); }

 private:
  void turn() noexcept {
    if (must_stop_.load()) return is_over_.store(true);
    (void)client_.give(&left_, 3000);
    Session& session = client_.session();
    for (auto pieces = session.replies(); !pieces.empty(); pieces = session.replies()) {
      for (const iovec& piece : pieces) {
        if (said_bytes_ + piece.iov_len <= said_.size()) {
          std::memcpy(said_.data() + said_bytes_, piece.iov_base, piece.iov_len);
        }
        said_bytes_ += piece.iov_len;
      }
      client_.sent();
    }
    if (left_.empty() && said_bytes_ >= wanted_.size()) return is_over_.store(true);
    loop_.submit(call_);
  }

  EventLoop& loop_;
  const std::string script_;
  std::string_view left_ = script_;
  std::string wanted_, said_;
  size_t said_bytes_ = 0;
  std::atomic<bool> is_over_{false}, must_stop_{false};
  Client client_;
  LoopCall call_ = {.function = [](void* self) noexcept { static_cast<Actor*>(self)->turn(); },
                    .context = this};
};

}  // namespace

TEST_GROUP(KvdWaveThreads) {
  std::vector<std::unique_ptr<RunningLoop>> loops;
  std::unique_ptr<ShardsRig> rig;
  std::vector<std::unique_ptr<Actor>> actors;
  Seed seed;
  std::mt19937_64 random{seed.value()};

  void make(uint32_t count) {
    std::vector<EventLoop*> all;
    for (uint32_t i = 0; i < count; ++i) {
      loops.push_back(std::make_unique<RunningLoop>(0));
      all.push_back(loops.back()->loop.get());
    }
    rig = std::make_unique<ShardsRig>(all);
  }
  void add_actors(uint32_t count, uint32_t commands) {
    for (uint32_t i = 0; i < count; ++i) {
      const std::string script = random_commands(random, "c" + std::to_string(i) + ":", commands);
      actors.push_back(std::make_unique<Actor>(*rig, i % rig->count(), script));
    }
  }
  void leave(uint32_t index) {
    Session& session = actors[index]->session();
    RunningLoop& loop = *loops[index % loops.size()];
    loop.run_there([&] { session.leave(); });
    CHECK(eventually([&] {
      bool is_waiting = true;
      loop.run_there([&] { is_waiting = session.is_waiting(); });
      return !is_waiting;
    }));
    loop.run_there([&] { session.reset(); });
  }
  // Nothing is on its way between the shards.
  void check_quiet() {
    for (uint32_t i = 0; i < rig->count(); ++i) {
      CHECK(eventually([&] { return rig->asker(i).in_flight() == 0; }));
    }
  }
  void end() {
    for (uint32_t i = 0; i < actors.size(); ++i) leave(i);
    check_quiet();
    loops.clear();
    for (uint32_t i = 0; i < rig->count(); ++i) {
      rig->environment(i).loop = nullptr;  // the sessions are this thread's
      CHECK(rig->cache(i).is_valid());
    }
  }
  void set_shared() {
    const uint32_t owner = owner_of("shared", rig->count());
    bool is_set = false;
    loops[owner]->run_there([&] {
      is_set = Items(rig->environment(owner)).put("shared", "0", 0, KeyedCache::kNever) != nullptr;
    });
    CHECK(is_set);
  }
};

TEST(KvdWaveThreads, EachClientSeesWhatItDid) {
  for (const uint32_t count : {2U, 3U}) {
    make(count);
    set_shared();
    add_actors(6, 1500);
    for (auto& each : actors) each->begin();
    for (auto& each : actors) {
      CHECK_TEXT(eventually([&] { return each->is_over(); }), seed.text());
      CHECK_TEXT(each->is_right(), seed.text());
    }
    end();
    actors.clear();
    rig.reset();
  }
}

TEST(KvdWaveThreads, CountersOfAllClientsAdd) {
  make(2);
  set_shared();
  std::string script;
  for (int i = 0; i < 1000; ++i) script += "incr shared 1 noreply\r\n";
  script += "version\r\n";
  for (uint32_t i = 0; i < 4; ++i) {
    actors.push_back(std::make_unique<Actor>(*rig, i % 2, script));
  }
  for (auto& each : actors) each->begin();
  for (auto& each : actors) CHECK(eventually([&] { return each->is_over(); }));
  end();
  CacheItem* const item = rig->cache(owner_of("shared", 2)).peek("shared");
  CHECK(item != nullptr);
  CHECK(value_of(*item) == "4000");
  actors.clear();
}

TEST(KvdWaveThreads, ClientsLeaveInTheMiddle) {
  make(3);
  set_shared();
  for (uint32_t round = 0; round < 7; ++round) {
    const auto first = static_cast<uint32_t>(actors.size());
    const uint64_t gets_before = rig->sum(&Counters::gets);
    add_actors(6, 300);
    for (uint32_t i = first; i < actors.size(); ++i) actors[i]->begin();
    CHECK(eventually([&] { return rig->sum(&Counters::gets) > gets_before; }));
    for (uint32_t i = first; i < actors.size(); ++i) {
      actors[i]->stop();
      CHECK(eventually([&] { return actors[i]->is_over(); }));
      leave(i);
    }
    check_quiet();
  }
  end();
  actors.clear();
}

// The limit is on the first shard; those of the other one ask for their turns there.
TEST(KvdWaveThreads, ClientsShareALimitAndLeave) {
  make(2);
  set_shared();
  const auto counters = std::make_unique<LimitCounters>();
  PeerOnThreads peer;
  EventLoop& loop = *loops[0]->loop;
  loops[0]->run_there([&] {
    loop.timers().reserve_more(RequestLimit::kTimerCount);
    peer.limit = std::make_unique<RequestLimit>(loop, *counters, &Session::turn_came, &loop);
    peer.limit->set({.read_rate = 50'000, .write_rate = 50'000, .burst_ms = 1});
  });
  for (uint32_t i = 0; i < 2; ++i) rig->environment(i).set_limited(true);
  add_actors(12, 200);
  for (auto& each : actors) each->session().set_owner({.peer = &peer});
  for (auto& each : actors) each->begin();
  for (uint32_t i = 0; i < 6; ++i) {
    CHECK_TEXT(eventually([&] { return actors[i]->is_over(); }), seed.text());
    CHECK_TEXT(actors[i]->is_right(), seed.text());
  }
  // The others may be anywhere.
  for (uint32_t i = 6; i < actors.size(); ++i) {
    actors[i]->stop();
    CHECK(eventually([&] { return actors[i]->is_over(); }));
  }
  end();
  CHECK_EQUAL(0, counters->reads.waiting.read() + counters->writes.waiting.read());
  actors.clear();
}
