// A block server with connections on two shards, each with its thread: the second one has the
// volumes, too, or one of two. Clients take turns: the first one is on the first shard, the next on
// the second. The limits are on the first shard, so a client of the second is far from them.
//
// No test waits for a budget: see block_limits_test.cc.
#include "apps/blockd/block_connections.h"

#include <atomic>
#include <string>
#include <string_view>
#include <utility>

#include "tests/apps/blockd/block_server_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

class BlockConnectionsTest : public BlockServerFixture {
 public:
  enum : size_t { kOfRam0, kOfTenant, kOfUnix };
  static constexpr LimitRates kFewReads = {.read_rate_bytes = 1};
  static constexpr LimitRates kFewWrites = {.write_rate_bytes = 1};
  static constexpr uint32_t kSpentBytes = 60'000;

  void setup() override {
    BlockServerFixture::setup();
    options.placements.resize(2);
    options.max_connections = 8;
    for (VolumePlan& volume : options.volumes) volume.tenant = "acme";
    options.limits = {
        {LimitKind::kVolume, "ram0"}, {LimitKind::kTenant, "acme"}, {LimitKind::kListener, "unix"}};
  }

  // Calls work() on the thread of `loop`.
  template <typename Work>
  static void run_on(EventLoop& loop, Work work) {
    struct Job {
      Work work;
      std::atomic<bool> is_done{false};
    } job = {std::move(work)};
    LoopCall call = {.function =
                         [](void* self) noexcept {
                           auto& its = *static_cast<Job*>(self);
                           its.work();
                           its.is_done = true;
                         },
                     .context = &job};
    loop.submit(call);
    CHECK(eventually([&] { return job.is_done.load(); }));
  }
  // Calls work() on the first shard; then the second has followed.
  template <typename Work>
  void change(Work work) {
    run_on(rig->connections.loop, std::move(work));
    run_on(rig->volumes.loop, [] {});
  }
  void set(size_t index, const LimitRates& rates) {
    change([this, index, rates] {
      rig->server.set_limit(rig->server.limits().all()[index].limit, rates);
    });
  }
  void hold(size_t volume, bool is_on) {
    run_on(rig->server.volume_loop(volume),
           [this, volume, is_on] { rig->server.set_held(volume, is_on); });
  }
  LimitCounters& limit(size_t index) { return rig->limit_counters[index]; }
  bool reads_wait(size_t index, uint64_t count) {
    return eventually([&] { return limit(index).reads.waiting.read() == count; });
  }
  bool writes_wait(size_t index, uint64_t count) {
    return eventually([&] { return limit(index).writes.waiting.read() == count; });
  }
  bool has_open(uint64_t first, uint64_t second) {
    return eventually([&] {
      return counted().connections_open.read() == first &&
             rig->second_counters.connections_open.read() == second;
    });
  }
  // Returns true if the next replies are those to `first` and the `count` - 1 requests after it.
  static bool hears(NbdPeer& peer, uint64_t first, uint64_t count = 1) {
    PeerReply reply;
    for (uint64_t i = 0; i < count; ++i) {
      if (!peer.next_reply(reply) || reply.error != 0 || reply.cookie != first + i) return false;
    }
    return true;
  }

  void clients_are_spread() {
    NbdPeer peers[] = {negotiated(), negotiated(), negotiated(), negotiated()};
    CHECK(has_open(2, 2));
    CHECK_EQUAL(2, rig->move_counters[0].connections_moved.read());
    CHECK_EQUAL(0, rig->move_counters[1].connections_moved.read());
    for (uint64_t i = 0; i < 4; ++i) {
      LONGS_EQUAL(0, peers[i].do_one(kWrite, i * 40'000, 40'000, pattern(i, 40'000)));
    }
    for (NbdPeer& peer : peers) {
      for (uint64_t i = 0; i < 4; ++i) CHECK(peer.reads(i * 40'000, pattern(i, 40'000)));
    }
    NbdPeer other = negotiated(true, "ram1");
    CHECK(other.reads(0, std::string(512, '\0')));
  }

  // Both volumes are on the second shard.
  void requests_cross_only_to_another_shard() {
    NbdPeer far = negotiated(), near = negotiated();
    for (int i = 0; i < 10; ++i) CHECK(near.reads(0, std::string(4096, '\0')));
    CHECK_EQUAL(0, rig->lane_counters[0].crossings.read());
    CHECK_EQUAL(0, rig->lane_counters[1].crossings.read());
    for (int i = 0; i < 10; ++i) CHECK(far.reads(0, std::string(4096, '\0')));
    CHECK_EQUAL(10, rig->lane_counters[0].crossings.read());
    CHECK_EQUAL(0, rig->lane_counters[1].crossings.read());
  }

  void counters_of_a_volume_are_added_up() {
    NbdPeer peers[] = {negotiated(), negotiated()};
    for (NbdPeer& peer : peers) {
      CHECK(peer.reads(0, std::string(4096, '\0')));
      LONGS_EQUAL(0, peer.do_one(kFlush, 0, 0));
    }
    CHECK(peers[1].reads(0, std::string(512, '\0')));
    CHECK_EQUAL(1, rig->volume_parts[0].requests_read.read());
    CHECK_EQUAL(2, rig->volume_parts[1].requests_read.read());
    rig->server.add_up_counters();
    const VolumeRequestCounters& sum = rig->volume_counters.requests;
    CHECK_EQUAL(3, sum.requests_read.read());
    CHECK_EQUAL(2, sum.requests_flush.read());
    CHECK_EQUAL(2 * 4096 + 512, sum.read_bytes.read());
    CHECK_EQUAL(5, sum.request_ns.count());
  }

  void a_shard_with_room_gets_the_client() {
    NbdPeer first = negotiated(), second = negotiated();
    CHECK(has_open(1, 1));
    NbdPeer third = rig->connect();
    CHECK(third.hears_the_end());
    CHECK_EQUAL(
        1, counted().connections_refused.read() + rig->second_counters.connections_refused.read());
    first.close();
    CHECK(has_open(0, 1));
    NbdPeer next = negotiated();
    CHECK(has_open(1, 1));
  }

  void read_only_is_for_clients_of_all_shards() {
    NbdPeer peers[] = {negotiated(), negotiated()};
    change([this] { rig->server.set_read_only(0, true); });
    for (NbdPeer& peer : peers) LONGS_EQUAL(1, peer.do_one(kWrite, 0, 4, "data"));
    NbdPeer late[] = {negotiated(), negotiated()};
    for (NbdPeer& peer : late) CHECK((peer.flags & 2) != 0);
    change([this] { rig->server.set_read_only(0, false); });
    for (NbdPeer& peer : peers) LONGS_EQUAL(0, peer.do_one(kWrite, 0, 4, "data"));
    for (NbdPeer& peer : late) LONGS_EQUAL(0, peer.do_one(kWrite, 0, 4, "data"));
  }

  void no_shard_takes_clients_if_so_told() {
    NbdPeer peers[] = {negotiated(), negotiated()};
    change([this] { rig->server.set_accepting(false); });
    for (int i = 0; i < 2; ++i) {
      NbdPeer late = rig->connect();
      CHECK(late.hears_the_end());
    }
    change([this] { rig->server.set_accepting(true); });
    NbdPeer late[] = {negotiated(), negotiated()};
    for (NbdPeer& peer : late) CHECK(peer.reads(0, std::string(4, '\0')));
  }

  void a_held_volume_keeps_requests_of_both() {
    NbdPeer peers[] = {negotiated(), negotiated()};
    hold(0, true);
    uint64_t first[2];
    for (size_t i = 0; i < 2; ++i) {
      first[i] = peers[i].ask(kRead, 0, 512);
      peers[i].ask(kRead, 0, 512);
      CHECK(peers[i].flush());
      CHECK(eventually([&] { return rig->volume_parts[i].requests_in_flight.read() == 2; }));
    }
    hold(0, false);
    for (size_t i = 0; i < 2; ++i) CHECK(hears(peers[i], first[i], 2));
  }

  void a_limit_is_one_budget(size_t index) {
    NbdPeer near = negotiated(), far = negotiated();
    set(index, kFewReads);
    LONGS_EQUAL(0, far.do_one(kRead, 0, kSpentBytes));
    const uint64_t first = near.ask(kRead, 0, 512);
    CHECK(near.flush() && reads_wait(index, 1));
    const uint64_t second = far.ask(kRead, 0, 512);
    far.ask(kRead, 0, 512);
    CHECK(far.flush() && reads_wait(index, 3));
    LONGS_EQUAL(0, far.do_one(kTrim, 0, 512));  // writes are not limited
    set(index, {});
    CHECK(hears(near, first) && hears(far, second, 2));
    CHECK_EQUAL(3, limit(index).reads.wait_ns.count());
    CHECK(far.reads(0, std::string(512, '\0')));
  }

  // Small writes wait with their payloads, a large one before its payload is received.
  void far_writes_keep_their_order_and_their_payloads() {
    NbdPeer near = negotiated(), far = negotiated();
    set(kOfRam0, kFewWrites);
    LONGS_EQUAL(0, far.do_one(kWrite, 0, 4096, pattern(1, 4096)));
    const uint64_t first = far.ask(kWrite, 0, 4096, pattern(2, 4096));
    far.ask(kWrite, 2048, 4096, pattern(3, 4096));
    CHECK(far.flush() && eventually([&] { return limit(kOfRam0).writes.waiting.read() > 0; }));
    far.ask(kWrite, 4096, 1'000'000, pattern(4, 1'000'000));
    set(kOfRam0, {});
    CHECK(hears(far, first, 3));
    CHECK(near.reads(0, pattern(2, 4096).substr(0, 2048) + pattern(3, 4096).substr(0, 2048)));
    CHECK(near.reads(4096, pattern(4, 1'000'000)));
  }

  // Limits begin and end while requests are on their way. A large write that overtook a small one
  // would be an assertion failure, too.
  void order_is_kept_where_limits_begin_and_end() {
    NbdPeer near = negotiated(), far = negotiated();
    constexpr LimitRates kManyWrites = {.write_rate = 1'000'000};
    bool is_good = true;
    for (uint64_t round = 0; round < 100 && is_good; ++round) {
      for (uint64_t i = 0; i < 4; ++i) far.ask(kWrite, 0, 512, pattern(round * 8 + i, 512));
      is_good = far.flush();
      const LimitRates rates = round % 2 == 0 ? kManyWrites : LimitRates{};
      run_on(rig->connections.loop, [this, rates] {
        rig->server.set_limit(rig->server.limits().all()[kOfRam0].limit, rates);
      });
      far.ask(kWrite, 0, 4096, pattern(round * 8 + 4, 4096));
      far.ask(kWrite, 4096, 50'000, pattern(round * 8 + 5, 50'000));
      far.ask(kWrite, 0, 512, pattern(round * 8 + 6, 512));
      PeerReply reply;
      for (int i = 0; i < 7 && is_good; ++i) is_good = far.next_reply(reply) && reply.error == 0;
      is_good =
          is_good &&
          near.reads(0, pattern(round * 8 + 6, 512) + pattern(round * 8 + 4, 4096).substr(512)) &&
          near.reads(4096, pattern(round * 8 + 5, 50'000));
    }
    CHECK(is_good);
  }

  void requests_of_a_far_client_that_leaves_are_dropped() {
    NbdPeer stays = negotiated(), closes = negotiated();
    set(kOfRam0, kFewReads);
    LONGS_EQUAL(0, stays.do_one(kRead, 0, kSpentBytes));
    const uint64_t first = stays.ask(kRead, 0, 512);
    CHECK(stays.flush() && reads_wait(kOfRam0, 1));
    for (int i = 0; i < 5; ++i) closes.ask(kRead, 0, 512);
    CHECK(closes.flush() && reads_wait(kOfRam0, 6));
    closes.close();
    CHECK(has_open(1, 0) && reads_wait(kOfRam0, 1));
    NbdPeer resets = negotiated();
    for (int i = 0; i < 5; ++i) resets.ask(kRead, 0, 512);
    CHECK(resets.flush() && reads_wait(kOfRam0, 6));
    resets.reset();
    CHECK(has_open(1, 0) && reads_wait(kOfRam0, 1));
    CHECK_EQUAL(0, limit(kOfRam0).reads.wait_ns.count());
    set(kOfRam0, {});
    CHECK(hears(stays, first));
  }

  void far_requests_before_a_disconnect_are_answered() {
    NbdPeer near = negotiated(), far = negotiated();
    set(kOfRam0, kFewReads);
    LONGS_EQUAL(0, near.do_one(kRead, 0, kSpentBytes));
    const uint64_t first = far.ask(kRead, 0, 512);
    far.ask(kDisc, 0, 0);
    CHECK(far.flush() && reads_wait(kOfRam0, 1));
    set(kOfRam0, {});
    CHECK(hears(far, first));
    CHECK(far.hears_the_end());
  }

  void a_drain_answers_on_all_shards() {
    NbdPeer near = negotiated(), far = negotiated();
    set(kOfRam0, kFewReads);
    set(kOfTenant, kFewWrites);
    LONGS_EQUAL(0, near.do_one(kRead, 0, kSpentBytes));
    LONGS_EQUAL(0, near.do_one(kWrite, 0, 512, std::string(512, 'a')));
    hold(0, true);
    const uint64_t first = near.ask(kRead, 0, 512), second = far.ask(kRead, 0, 512);
    far.ask(kTrim, 4096, 512);  // elsewhere: the server keeps no order between shards
    CHECK(near.flush() && far.flush() && reads_wait(kOfRam0, 2) && writes_wait(kOfTenant, 1));
    rig->server.request_drain();
    CHECK(hears(near, first));
    PeerReply reply;
    for (int i = 0; i < 2; ++i) {
      CHECK(far.next_reply(reply) && reply.error == 0 && reply.cookie - second < 2);
    }
    CHECK(near.hears_the_end() && far.hears_the_end());
    CHECK(eventually([&] { return rig->server.is_drained(); }));
    CHECK(has_open(0, 0));
  }

  // Each client writes its own half, with all sizes, many at a time.
  void both_use_one_volume(std::string_view volume) {
    NbdPeer peers[] = {negotiated(true, volume), negotiated(false, volume)};
    constexpr uint64_t kHalf = kVolumeBytes / 2;
    for (uint64_t round = 0; round < 10; ++round) {
      for (uint64_t i = 0; i < 2; ++i) {
        for (uint64_t k = 0; k < 8; ++k) {
          const auto bytes = static_cast<uint32_t>((1 + k) * (round % 2 == 0 ? 500U : 9'000U));
          peers[i].ask(kWrite, i * kHalf + k * 100'000, bytes, pattern(round * 16 + k, bytes));
        }
      }
      for (NbdPeer& peer : peers) {
        PeerReply reply;
        for (int k = 0; k < 8; ++k) CHECK(peer.next_reply(reply) && reply.error == 0);
      }
      for (uint64_t i = 0; i < 2; ++i) {
        for (uint64_t k = 0; k < 8; ++k) {
          const auto bytes = static_cast<uint32_t>((1 + k) * (round % 2 == 0 ? 500U : 9'000U));
          CHECK(peers[1 - i].reads(i * kHalf + k * 100'000, pattern(round * 16 + k, bytes)));
        }
      }
    }
  }
};

}  // namespace

BP_BLOCK_SERVER_GROUP(BlockConnectionsUring, BlockConnectionsTest, (RigVariant{true, true}))
BP_BLOCK_SERVER_GROUP(BlockConnectionsUringBoth, BlockConnectionsTest,
                      (RigVariant{true, true, true}))
BP_BLOCK_SERVER_GROUP(BlockConnectionsEpoll, BlockConnectionsTest, (RigVariant{false, true}))

// Defines a test in all of these groups.
#define BP_ALL_CONNECTIONS(sentence, prepare, body)                  \
  BP_ONE_VARIANT(BlockConnectionsUring, sentence, prepare, body)     \
  BP_ONE_VARIANT(BlockConnectionsUringBoth, sentence, prepare, body) \
  BP_ONE_VARIANT(BlockConnectionsEpoll, sentence, prepare, body)

BP_ALL_CONNECTIONS(ClientsAreSpread, , clients_are_spread())
BP_ONE_VARIANT(BlockConnectionsUring, RequestsCrossOnlyToAnotherShard, ,
               requests_cross_only_to_another_shard())
BP_ONE_VARIANT(BlockConnectionsEpoll, RequestsCrossOnlyToAnotherShard, ,
               requests_cross_only_to_another_shard())
BP_ALL_CONNECTIONS(CountersOfAVolumeAreAddedUp, , counters_of_a_volume_are_added_up())
BP_ALL_CONNECTIONS(AShardWithRoomGetsTheClient, options.max_connections = 2,
                   a_shard_with_room_gets_the_client())
BP_ALL_CONNECTIONS(ReadOnlyIsForClientsOfAllShards, , read_only_is_for_clients_of_all_shards())
BP_ALL_CONNECTIONS(NoShardTakesClientsIfSoTold, , no_shard_takes_clients_if_so_told())
BP_ALL_CONNECTIONS(AHeldVolumeKeepsRequestsOfBoth, , a_held_volume_keeps_requests_of_both())
BP_ALL_CONNECTIONS(TheLimitOfAVolumeIsOneBudget, , a_limit_is_one_budget(kOfRam0))
BP_ALL_CONNECTIONS(TheLimitOfATenantIsOneBudget, , a_limit_is_one_budget(kOfTenant))
BP_ALL_CONNECTIONS(TheLimitOfAListenerIsOneBudget, , a_limit_is_one_budget(kOfUnix))
BP_ALL_CONNECTIONS(FarWritesKeepTheirOrderAndTheirPayloads, ,
                   far_writes_keep_their_order_and_their_payloads())
BP_ALL_CONNECTIONS(OrderIsKeptWhereLimitsBeginAndEnd, , order_is_kept_where_limits_begin_and_end())
BP_ALL_CONNECTIONS(RequestsOfAFarClientThatLeavesAreDropped, ,
                   requests_of_a_far_client_that_leaves_are_dropped())
BP_ALL_CONNECTIONS(FarRequestsBeforeADisconnectAreAnswered, ,
                   far_requests_before_a_disconnect_are_answered())
BP_ALL_CONNECTIONS(ADrainAnswersOnAllShards, , a_drain_answers_on_all_shards())
BP_ALL_CONNECTIONS(BothUseOneVolume, , both_use_one_volume("ram0"))
BP_ALL_CONNECTIONS(BothUseOneVolumeOnAFile, add_stored_volume(), both_use_one_volume("disk0"))
