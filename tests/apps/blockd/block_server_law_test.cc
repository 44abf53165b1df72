// The data path's law for the whole block server, with real sockets: it holds from the receipt of a
// request to its reply, and while the shards sleep in between.
#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "tests/apps/blockd/block_server_fixture.h"
#include "tests/support/datapath_law.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// Watches a loop between the calls begin() and end().
class LoopWatch {
 public:
  LoopWatch(EventLoop& loop, Permit permit) : loop_(loop), permit_(permit) {
    begin_.context = end_.context = this;
    begin_.function = [](void* self) noexcept {
      auto& its = *static_cast<LoopWatch*>(self);
      its.watch_.emplace(its.permit_);
      its.is_on_ = true;
    };
    end_.function = [](void* self) noexcept {
      auto& its = *static_cast<LoopWatch*>(self);
      its.breach_count_ = its.watch_->end();
      its.is_on_ = false;
    };
  }
  void begin() {
    loop_.submit(begin_);
    CHECK(eventually([&] { return is_on_.load(); }));
  }
  uint32_t end() {
    loop_.submit(end_);
    CHECK(eventually([&] { return !is_on_.load(); }));
    return breach_count_;
  }

 private:
  EventLoop& loop_;
  Permit permit_;
  LoopCall begin_, end_;
  std::optional<LawWatch> watch_;
  uint32_t breach_count_ = 0;
  std::atomic<bool> is_on_{false};
};

class BlockServerLawTest : public BlockServerFixture {
 public:
  void requests_of_all_kinds(std::string_view volume = "") {
    const Permit permit = variant().uring ? Permit::kRing : Permit::kEpoll | Permit::kStreams;
    LoopWatch connections(rig->connections.loop, permit);
    LoopWatch volumes(rig->volumes.loop, permit);
    NbdPeer peer = negotiated(true, volume);
    run(peer);
    connections.begin();
    if (variant().two_shards) volumes.begin();
    const bool is_done = run(peer);
    const uint32_t breaches = connections.end() + (variant().two_shards ? volumes.end() : 0);
    CHECK(is_done);
    LONGS_EQUAL(0, breaches);
  }

  // The shard of the volumes has connections, too: the first client is on the other one.
  void requests_on_two_shards() {
    const Permit permit = variant().uring ? Permit::kRing : Permit::kEpoll | Permit::kStreams;
    LoopWatch first(rig->connections.loop, permit);
    LoopWatch second(rig->volumes.loop, permit);
    NbdPeer far = negotiated(true), home = negotiated(true);
    run(far);
    run(home);
    first.begin();
    second.begin();
    const bool is_done = run(far) && run(home);
    const uint32_t breaches = first.end() + second.end();
    CHECK(is_done);
    LONGS_EQUAL(0, breaches);
  }

  // Most requests have to wait, for half a millisecond.
  void add_limits() {
    const LimitRates rates = {.read_rate = 2000,
                              .read_rate_bytes = kGiB,
                              .write_rate = 2000,
                              .write_rate_bytes = kGiB,
                              .burst_ms = 1};
    for (VolumePlan& volume : options.volumes) volume.tenant = "acme";
    options.limits = {{LimitKind::kVolume, "ram0", rates},
                      {LimitKind::kTenant, "acme", rates},
                      {LimitKind::kListener, "unix", rates}};
  }

 private:
  // Sends small and large requests, alone and many at a time, and one that is refused. Returns
  // whether all replies are right.
  static bool run(NbdPeer& peer) {
    bool is_right = true;
    for (const uint32_t bytes : {1U, 512U, 4096U, 20'000U, 300'000U}) {
      const std::string data = pattern(bytes, bytes);
      is_right &= peer.do_one(kWrite, 4096, bytes, data) == 0;
      is_right &= peer.reads(4096, data);
      for (uint64_t i = 0; i < 8; ++i)
        peer.ask(kWrite, i * bytes / 8, bytes / 8 + 1, data.substr(0, bytes / 8 + 1));
      for (uint64_t i = 0; i < 8; ++i) peer.ask(kRead, i * bytes / 8, bytes / 8 + 1);
      for (int i = 0; i < 16; ++i) {
        PeerReply reply;
        is_right &= peer.next_reply(reply) && reply.error == 0;
      }
    }
    is_right &= peer.do_one(kFlush, 0, 0) == 0;
    is_right &= peer.do_one(kWriteZeroes, 4096, 8192) == 0;
    is_right &= peer.do_one(kTrim, 4096, 8192) == 0;
    is_right &= peer.do_one(kRead, kVolumeBytes, 1) != 0;
    return is_right;
  }
};

}  // namespace

BP_BLOCK_SERVER_GROUPS(BlockServerLaw, BlockServerLawTest)

BP_ALL_VARIANTS(BlockServerLaw, RequestsOfAllKinds, BP_SKIP_WITHOUT_LAW(), requests_of_all_kinds())
BP_ALL_VARIANTS(BlockServerLaw, RequestsOfAllKindsToAFile, add_stored_volume();
                BP_SKIP_WITHOUT_LAW(), requests_of_all_kinds("disk0"))
BP_ALL_VARIANTS(BlockServerLaw, RequestsOfAllKindsWithLimits, add_limits();
                BP_SKIP_WITHOUT_LAW(), requests_of_all_kinds())

BP_ONE_VARIANT(BlockServerLawUringTwoShards, ConnectionsOnBoth, options.placements.resize(2);
               BP_SKIP_WITHOUT_LAW(), requests_on_two_shards())
BP_ONE_VARIANT(BlockServerLawEpollTwoShards, ConnectionsOnBoth, options.placements.resize(2);
               BP_SKIP_WITHOUT_LAW(), requests_on_two_shards())
BP_ONE_VARIANT(BlockServerLawUringTwoShards, ConnectionsOnBothWithLimits, add_limits();
               options.placements.resize(2); BP_SKIP_WITHOUT_LAW(), requests_on_two_shards())
BP_ONE_VARIANT(BlockServerLawEpollTwoShards, ConnectionsOnBothWithLimits, add_limits();
               options.placements.resize(2); BP_SKIP_WITHOUT_LAW(), requests_on_two_shards())
