// The counters of a volume's requests, from the client's side of the data path.
#include <deque>
#include <string>

#include "tests/apps/blockd/block_server_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

class VolumeCountsTest : public BlockServerFixture {
 public:
  VolumeRequestCounters& counts() { return rig->volume_counters.requests; }
  bool nothing_is_in_flight() {
    return eventually([&] { return counts().requests_in_flight.read() == 0; });
  }

  void requests_and_bytes() {
    NbdPeer peer = negotiated();
    LONGS_EQUAL(0, peer.do_one(kWrite, 0, 4096, std::string(4096, 'a')));
    LONGS_EQUAL(0, peer.do_one(kWrite, 4096, 512, std::string(512, 'b')));
    CHECK(peer.reads(0, std::string(4096, 'a')));
    LONGS_EQUAL(0, peer.do_one(kFlush, 0, 0));
    LONGS_EQUAL(0, peer.do_one(kTrim, 0, 512));
    LONGS_EQUAL(0, peer.do_one(kWriteZeroes, 512, 512));
    // A refused request counts in request_ns, but not by its kind.
    CHECK(peer.do_one(kTrim, kVolumeBytes, 512) != 0);
    CHECK(nothing_is_in_flight());
    CHECK_EQUAL(2, counts().requests_write.read());
    CHECK_EQUAL(4096 + 512, counts().written_bytes.read());
    CHECK_EQUAL(1, counts().requests_read.read());
    CHECK_EQUAL(4096, counts().read_bytes.read());
    CHECK_EQUAL(1, counts().requests_flush.read());
    CHECK_EQUAL(1, counts().requests_trim.read());
    CHECK_EQUAL(1, counts().requests_write_zeroes.read());
    CHECK_EQUAL(7, counts().request_ns.count());
    // The server's counters equal those of the only volume in use.
    CHECK_EQUAL(counted().written_bytes.read(), counts().written_bytes.read());
  }

  // A request is in flight until it is answered. The request of a client that has left is in flight
  // until the volume returns it.
  void in_flight() {
    NbdPeer peer = negotiated(), leaver = negotiated();
    hold(true);
    for (int i = 0; i < 3; ++i) peer.ask(kRead, 0, 512);
    leaver.ask(kRead, 0, 512);
    CHECK(peer.flush() && leaver.flush());
    CHECK(eventually([&] { return counts().requests_in_flight.read() == 4; }));
    CHECK_EQUAL(0, counts().request_ns.count());
    leaver.close();
    CHECK_EQUAL(4, counts().requests_in_flight.read());
    hold(false);
    PeerReply reply;
    for (int i = 0; i < 3; ++i) CHECK(peer.next_reply(reply) && reply.error == 0);
    CHECK(nothing_is_in_flight());
  }

 private:
  struct Teller {
    Teller(BlockServer& its_server, bool its_is_on) : server(its_server), is_on(its_is_on) {}
    BlockServer& server;
    const bool is_on;
    LoopCall call = {.function = &Teller::run, .context = this};
    static void run(void* self) noexcept {
      const auto& told = *static_cast<Teller*>(self);
      told.server.set_held(0, told.is_on);
    }
  };
  std::deque<Teller> tellers_;  // live until the loops have ended

  // Holds or releases the volume, by a call on its shard.
  void hold(bool is_on) {
    rig->server.volume_loop(0).submit(tellers_.emplace_back(rig->server, is_on).call);
    CHECK(eventually([&] { return rig->server.is_held(0) == is_on; }));
  }
};

}  // namespace

BP_BLOCK_SERVER_GROUPS(VolumeCounts, VolumeCountsTest)

BP_ALL_VARIANTS(VolumeCounts, RequestsAndBytesAreCounted, , requests_and_bytes())
BP_ALL_VARIANTS(VolumeCounts, WhatIsInFlightIsItsQueue, , in_flight())
