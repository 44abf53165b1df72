// A drain of a running block server: what has begun is finished, and its client hears of it.
#include <string>
#include <string_view>

#include "tests/apps/blockd/block_server_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

class BlockServerDrainTest : public BlockServerFixture {
 public:
  void drain_finishes_what_has_begun() {
    NbdPeer writer = negotiated();
    NbdPeer idle = negotiated();
    NbdPeer negotiating = rig->connect();
    LONGS_EQUAL(18, negotiating.hear(18).size());
    const std::string data = pattern(9, 10'000);
    for (int i = 0; i < 5; ++i) writer.ask(kRead, 0, 50'000);
    const uint64_t write = writer.ask(kWrite, 0, 10'000, std::string_view(data).substr(0, 4'000));
    CHECK(writer.flush());
    CHECK(eventually([&] { return counted().requests_write.read() == 1; }));
    rig->server.request_drain();
    CHECK(idle.hears_the_end());
    CHECK(negotiating.hears_the_end());
    CHECK(!rig->server.is_drained());
    CHECK(writer.say(std::string_view(data).substr(4'000)));
    bool was_written = false;
    for (int i = 0; i < 6; ++i) {
      PeerReply reply;
      CHECK(writer.next_reply(reply));
      LONGS_EQUAL(0, reply.error);
      was_written |= reply.cookie == write;
    }
    CHECK(was_written);
    CHECK(writer.hears_the_end());
    CHECK(eventually([&] { return rig->server.is_drained(); }));
    CHECK_EQUAL(1, rig->volume_counters.commits.read());
    CHECK_EQUAL(0, counted().connections_open.read());
    // A new client is not served.
    NbdPeer late = rig->connect();
    CHECK_EQUAL(3, counted().connections_total.read());
  }

  // A reset would discard replies that are still on their way. The client does not close its side,
  // either.
  void drain_reaches_a_client_that_sends() {
    NbdPeer idle = negotiated();
    NbdPeer peer = rig->connect_tcp();
    CHECK(peer.negotiate() > 0);
    const uint32_t count = options.requests_per_connection;
    for (uint32_t i = 0; i < count; ++i) peer.ask(kRead, 0, 400'000);  // more than buffers hold
    CHECK(peer.flush());
    CHECK(eventually([&] { return counted().requests_read.read() == count; }));
    rig->server.request_drain();
    CHECK(idle.hears_the_end());
    for (int i = 0; i < 100; ++i) peer.ask(kFlush, 0, 0);  // never taken
    for (uint32_t i = 0; i < count; ++i) {
      PeerReply reply;
      CHECK(peer.next_reply(reply));
      LONGS_EQUAL(0, reply.error);
    }
    CHECK(peer.hears_the_end());
    CHECK(eventually([&] { return rig->server.is_drained(); }));
    CHECK_EQUAL(0, counted().requests_flush.read());
    CHECK_EQUAL(0, counted().broken_connections.read());
  }
};

}  // namespace

BP_BLOCK_SERVER_GROUPS(BlockServerDrain, BlockServerDrainTest)

BP_ALL_VARIANTS(BlockServerDrain, FinishesWhatHasBegun, , drain_finishes_what_has_begun())
BP_ALL_VARIANTS(BlockServerDrain, ReachesAClientThatSends, , drain_reaches_a_client_that_sends())
