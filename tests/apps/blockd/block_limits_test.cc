// Limits of a running block server: requests of clients wait, are released, and are dropped when
// the client leaves.
//
// No test waits for a budget. A limit of one byte a second lets the first request go, in debt, and
// keeps all others for hours: they go when the test changes the limit.
#include "apps/blockd/block_limits.h"

#include <atomic>
#include <string>

#include "tests/apps/blockd/block_server_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr LimitRates kOneRead = {.read_rate_bytes = 1};
constexpr LimitRates kOneWrite = {.write_rate_bytes = 1};
constexpr uint32_t kBytes = 60'000;  // over half of the smaller volume

class BlockLimitsTest : public BlockServerFixture {
 public:
  enum : size_t { kOfRam0, kOfTenant, kOfUnix };

  void setup() override {
    BlockServerFixture::setup();
    for (VolumePlan& volume : options.volumes) volume.tenant = "acme";
    options.limits = {
        {LimitKind::kVolume, "ram0"}, {LimitKind::kTenant, "acme"}, {LimitKind::kListener, "unix"}};
  }
  LimitCounters& limit(size_t index) { return rig->limit_counters[index]; }

  // Changes a limit on the shard of the connections.
  void set(size_t index, const LimitRates& rates) {
    struct Change {
      BlockServer& server;
      size_t index;
      LimitRates rates;
      std::atomic<bool> is_done{false};
    } change = {rig->server, index, rates};
    LoopCall call = {.function =
                         [](void* self) noexcept {
                           auto& its = *static_cast<Change*>(self);
                           its.server.set_limit(its.server.limits().all()[its.index].limit,
                                                its.rates);
                           its.is_done = true;
                         },
                     .context = &change};
    rig->connections.loop.submit(call);
    CHECK(eventually([&] { return change.is_done.load(); }));
  }
  // Each client reads once, which uses up the budget of reads.
  NbdPeer spender(std::string_view volume = "") {
    NbdPeer peer = negotiated(false, volume);
    LONGS_EQUAL(0, peer.do_one(kRead, 0, kBytes));
    return peer;
  }
  bool reads_wait(size_t index, uint64_t count) {
    return eventually([&] { return limit(index).reads.waiting.read() == count; });
  }
  bool in_flight(uint64_t count) {
    return eventually(
        [&] { return rig->volume_counters.requests.requests_in_flight.read() == count; });
  }
  // Whether the next replies are those to `first` and the `count` - 1 requests after it, in order.
  static bool hears_in_order(NbdPeer& peer, uint64_t first, uint64_t count) {
    PeerReply reply;
    for (uint64_t i = 0; i < count; ++i) {
      if (!peer.next_reply(reply) || reply.error != 0 || reply.cookie != first + i) return false;
    }
    return true;
  }

  void requests_wait_and_are_released() {
    set(kOfRam0, kOneRead);
    NbdPeer peer = spender();
    const uint64_t first = peer.ask(kRead, 0, 512);
    for (int i = 0; i < 4; ++i) peer.ask(kRead, 0, 512);
    CHECK(peer.flush() && reads_wait(kOfRam0, 5));
    CHECK(in_flight(5));
    // Writes, and other volumes, are not limited.
    NbdPeer other = negotiated(false, "ram1");
    LONGS_EQUAL(0, other.do_one(kRead, 0, 512));
    NbdPeer writer = negotiated();
    LONGS_EQUAL(0, writer.do_one(kWrite, 0, 512, std::string(512, 'a')));
    set(kOfRam0, {});
    CHECK(hears_in_order(peer, first, 5));
    CHECK_EQUAL(5, limit(kOfRam0).reads.wait_ns.count());
    CHECK(reads_wait(kOfRam0, 0));
    LONGS_EQUAL(0, peer.do_one(kRead, 0, 512));
  }

  void limits_of_the_plan_hold_from_the_start() {
    NbdPeer peer = spender();
    peer.ask(kRead, 0, 512);
    CHECK(peer.flush() && reads_wait(kOfRam0, 1));
  }

  void connections_of_a_client_share_the_limit() {
    set(kOfRam0, kOneRead);
    NbdPeer one = spender(), two = negotiated();
    two.ask(kRead, 0, 512);
    CHECK(two.flush() && reads_wait(kOfRam0, 1));
    one.ask(kRead, 0, 512);
    CHECK(one.flush() && reads_wait(kOfRam0, 2));
  }

  void volumes_of_a_tenant_share_the_limit() {
    set(kOfTenant, kOneRead);
    NbdPeer peer = spender("ram0"), other = negotiated(false, "ram1");
    const uint64_t first = other.ask(kRead, 0, 512);
    CHECK(other.flush() && reads_wait(kOfTenant, 1));
    set(kOfTenant, {});
    CHECK(hears_in_order(other, first, 1));
  }

  void a_listener_has_a_limit_of_its_own() {
    set(kOfUnix, kOneRead);
    NbdPeer peer = spender();
    peer.ask(kRead, 0, 512);
    CHECK(peer.flush() && reads_wait(kOfUnix, 1));
    NbdPeer elsewhere = rig->connect_tcp();
    CHECK(elsewhere.negotiate() > 0);
    LONGS_EQUAL(0, elsewhere.do_one(kRead, 0, kBytes));
    LONGS_EQUAL(0, elsewhere.do_one(kRead, 0, kBytes));
  }

  // Small writes wait with their payloads, a large one before its payload is received.
  void writes_keep_their_order_and_their_payloads() {
    set(kOfRam0, kOneWrite);
    NbdPeer peer = negotiated();
    LONGS_EQUAL(0, peer.do_one(kWrite, 0, 4096, pattern(1, 4096)));
    const uint64_t first = peer.ask(kWrite, 0, 4096, pattern(2, 4096));
    peer.ask(kWrite, 2048, 4096, pattern(3, 4096));
    CHECK(peer.flush() && eventually([&] { return limit(kOfRam0).writes.waiting.read() > 0; }));
    peer.ask(kWrite, 4096, 1'000'000, pattern(4, 1'000'000));
    set(kOfRam0, {});
    CHECK(hears_in_order(peer, first, 3));
    CHECK(peer.reads(0, pattern(2, 4096).substr(0, 2048) + pattern(3, 4096).substr(0, 2048)));
    CHECK(peer.reads(4096, pattern(4, 1'000'000)));
  }

  void a_write_waits_before_its_payload() {
    set(kOfRam0, kOneWrite);
    NbdPeer peer = negotiated();
    const std::string data = pattern(5, 1'000'000);
    LONGS_EQUAL(0, peer.do_one(kWrite, 0, 1'000'000, data));
    const uint64_t first = peer.ask(kWrite, 0, 1'000'000, data);
    CHECK(eventually([&] { return peer.pump() && limit(kOfRam0).writes.waiting.read() == 1; }));
    set(kOfRam0, {});
    CHECK(hears_in_order(peer, first, 1));
    CHECK(peer.reads(0, data));
  }

  void a_read_overtakes_a_write_that_waits() {
    set(kOfRam0, kOneWrite);
    NbdPeer peer = negotiated();
    LONGS_EQUAL(0, peer.do_one(kWrite, 0, kBytes, pattern(1, kBytes)));
    const uint64_t write = peer.ask(kTrim, 0, 512);
    peer.ask(kRead, 0, 512);
    PeerReply reply;
    CHECK(peer.next_reply(reply));
    CHECK(reply.cookie == write + 1);
    CHECK_EQUAL(1, limit(kOfRam0).writes.waiting.read());
    set(kOfRam0, {});
    CHECK(hears_in_order(peer, write, 1));
  }

  // They would keep the budget of the clients that are there busy.
  void requests_of_a_client_that_leaves_are_dropped() {
    set(kOfRam0, kOneRead);
    NbdPeer stays = spender(), closes = negotiated(), resets = negotiated();
    const uint64_t first = stays.ask(kRead, 0, 512);
    CHECK(stays.flush() && reads_wait(kOfRam0, 1));
    for (NbdPeer* leaver : {&closes, &resets}) {
      for (int i = 0; i < 3; ++i) leaver->ask(kRead, 0, 512);
      CHECK(leaver->flush());
    }
    CHECK(reads_wait(kOfRam0, 7));
    closes.close();
    CHECK(rig->has_open(2) && reads_wait(kOfRam0, 4));
    resets.reset();
    CHECK(rig->has_open(1) && reads_wait(kOfRam0, 1));
    CHECK(in_flight(1));
    CHECK_EQUAL(0, limit(kOfRam0).reads.wait_ns.count());
    set(kOfRam0, {});
    CHECK(hears_in_order(stays, first, 1));
  }

  // While a write waits, its connection receives nothing: the server notices that it cannot send.
  // The payload of a short one waits in the connection's buffer, that of a long one in the socket.
  void a_write_of_a_client_that_leaves_is_dropped(uint32_t bytes) {
    set(kOfRam0, kOneWrite);
    NbdPeer stays = negotiated(), leaves = negotiated();
    LONGS_EQUAL(0, stays.do_one(kWrite, 0, 4096, pattern(1, 4096)));
    CHECK(in_flight(0));
    hold(true);
    leaves.ask(kRead, 0, 512);
    CHECK(leaves.flush() && in_flight(1));
    leaves.ask(kWrite, 0, bytes, pattern(2, bytes));
    CHECK(eventually([&] { return leaves.pump() && limit(kOfRam0).writes.waiting.read() == 1; }));
    leaves.close();
    hold(false);
    CHECK(rig->has_open(1));
    CHECK_EQUAL(0, limit(kOfRam0).writes.waiting.read());
    CHECK(in_flight(0));
    CHECK(stays.reads(0, pattern(1, 4096)));
  }

  // NBD_CMD_DISC asks for the outstanding answers.
  void requests_before_a_disconnect_are_answered() {
    set(kOfRam0, kOneRead);
    NbdPeer peer = spender();
    const uint64_t first = peer.ask(kRead, 0, 512);
    peer.ask(kDisc, 0, 0);
    CHECK(peer.flush() && reads_wait(kOfRam0, 1));
    set(kOfRam0, {});
    CHECK(hears_in_order(peer, first, 1));
    CHECK(peer.hears_the_end());
  }

  void a_drain_ends_all_limits() {
    set(kOfRam0, kOneRead);
    set(kOfTenant, kOneRead);
    set(kOfUnix, kOneRead);
    NbdPeer peer = spender(), other = negotiated(false, "ram1");
    const uint64_t first = peer.ask(kRead, 0, 512);
    const uint64_t second = other.ask(kRead, 0, 512);
    CHECK(peer.flush() && other.flush() && reads_wait(kOfUnix, 2));
    rig->server.request_drain();
    CHECK(hears_in_order(peer, first, 1) && hears_in_order(other, second, 1));
    CHECK(peer.hears_the_end() && other.hears_the_end());
    CHECK(reads_wait(kOfUnix, 0));
  }

  // The request has used up its budget when it reaches the volume.
  void a_held_volume_keeps_requests_behind_their_limits() {
    set(kOfRam0, {.read_rate = 1'000'000, .burst_ms = 1000});
    NbdPeer peer = negotiated();
    hold(true);
    const uint64_t first = peer.ask(kRead, 0, 512);
    peer.ask(kRead, 0, 512);
    CHECK(peer.flush());
    CHECK(in_flight(2));
    CHECK(reads_wait(kOfRam0, 0));
    hold(false);
    CHECK(hears_in_order(peer, first, 2));
  }

 private:
  void hold(bool is_on) {
    struct Holder {
      BlockServer& server;
      bool is_on;
      std::atomic<bool> is_done{false};
    } holder = {rig->server, is_on};
    LoopCall call = {.function =
                         [](void* self) noexcept {
                           auto& its = *static_cast<Holder*>(self);
                           its.server.set_held(0, its.is_on);
                           its.is_done = true;
                         },
                     .context = &holder};
    rig->server.volume_loop(0).submit(call);
    CHECK(eventually([&] { return holder.is_done.load(); }));
  }
};

}  // namespace

BP_BLOCK_SERVER_GROUPS(BlockLimits, BlockLimitsTest)

BP_ALL_VARIANTS(BlockLimits, RequestsWaitAndAreReleased, , requests_wait_and_are_released())
BP_ALL_VARIANTS(BlockLimits, LimitsOfThePlanHoldFromTheStart, options.limits[0].rates = kOneRead,
                limits_of_the_plan_hold_from_the_start())
BP_ALL_VARIANTS(BlockLimits, ConnectionsOfAClientShareTheLimit, ,
                connections_of_a_client_share_the_limit())
BP_ALL_VARIANTS(BlockLimits, VolumesOfATenantShareTheLimit, , volumes_of_a_tenant_share_the_limit())
BP_ALL_VARIANTS(BlockLimits, AListenerHasALimitOfItsOwn, , a_listener_has_a_limit_of_its_own())
BP_ALL_VARIANTS(BlockLimits, WritesKeepTheirOrderAndTheirPayloads, ,
                writes_keep_their_order_and_their_payloads())
BP_ALL_VARIANTS(BlockLimits, AWriteWaitsBeforeItsPayload, , a_write_waits_before_its_payload())
BP_ALL_VARIANTS(BlockLimits, AReadOvertakesAWriteThatWaits, , a_read_overtakes_a_write_that_waits())
BP_ALL_VARIANTS(BlockLimits, RequestsOfAClientThatLeavesAreDropped, ,
                requests_of_a_client_that_leaves_are_dropped())
BP_ALL_VARIANTS(BlockLimits, AShortWriteOfAClientThatLeavesIsDropped, ,
                a_write_of_a_client_that_leaves_is_dropped(512))
BP_ALL_VARIANTS(BlockLimits, ALongWriteOfAClientThatLeavesIsDropped, ,
                a_write_of_a_client_that_leaves_is_dropped(1'000'000))
BP_ALL_VARIANTS(BlockLimits, RequestsBeforeADisconnectAreAnswered, ,
                requests_before_a_disconnect_are_answered())
BP_ALL_VARIANTS(BlockLimits, ADrainEndsAllLimits, , a_drain_ends_all_limits())
BP_ALL_VARIANTS(BlockLimits, AHeldVolumeKeepsRequestsBehindTheirLimits, ,
                a_held_volume_keeps_requests_behind_their_limits())
