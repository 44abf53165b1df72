// blockd as a whole, in this process: real sockets, one shard or two, io_uring or epoll.
#include "apps/blockd/block_server.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/apps/blockd/block_server_fixture.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr uint32_t kEperm = 1;
constexpr uint32_t kEinval = 22;
constexpr uint32_t kEnospc = 28;

}  // namespace

namespace {

// Holds a volume, by a call on its shard. Lives until the server has stopped.
struct Hold {
  Hold(BlockServer& its_server, size_t its_volume) : server(its_server), volume(its_volume) {
    server.volume_loop(volume).submit(call);
    CHECK(eventually([&] { return server.is_held(volume); }));
  }
  static void run(void* self) noexcept {
    auto& told = *static_cast<Hold*>(self);
    told.server.set_held(told.volume, true);
  }

  BlockServer& server;
  const size_t volume;
  LoopCall call = {.function = &Hold::run, .context = this};
};

class BlockServerTest : public BlockServerFixture {
 public:
  std::deque<Hold> holds;

  // Each of the two shards has one volume.
  void volumes_of_each_are_served() {
    CHECK(&rig->server.volume_loop(0) == &rig->volumes.loop);
    CHECK(&rig->server.volume_loop(1) == &rig->connections.loop);
    NbdPeer peers[] = {negotiated(false, "ram0"), negotiated(false, "ram1")};
    for (char fill = 'a'; fill <= 'z'; ++fill) {
      for (NbdPeer& peer : peers) {
        for (uint64_t i = 0; i < 8; ++i) peer.ask(kWrite, i * 4096, 4096, std::string(4096, fill));
      }
      for (NbdPeer& peer : peers) {
        PeerReply reply;
        for (int i = 0; i < 8; ++i) CHECK(peer.next_reply(reply) && reply.error == 0);
        CHECK(peer.reads(0, std::string(8 * 4096, fill)));
      }
    }
  }

  void what_is_held_goes_on_at_a_drain() {
    NbdPeer peers[] = {negotiated(false, "ram0"), negotiated(false, "ram1")};
    for (size_t i = 0; i < 2; ++i) {
      holds.emplace_back(rig->server, i);
      peers[i].ask(kRead, 0, 512);
      CHECK(peers[i].flush());
      // A drain takes no new requests, so the request must be taken first.
      CHECK(eventually([&] { return rig->connection_counters.requests_read.read() == i + 1; }));
    }
    rig->server.request_drain();
    for (NbdPeer& peer : peers) {
      PeerReply reply;
      CHECK(peer.next_reply(reply) && reply.error == 0);
    }
  }

  void data_is_what_was_written() {
    for (const bool structured : {false, true}) {
      NbdPeer peer = rig->connect();
      CHECK_EQUAL(kVolumeBytes, peer.negotiate(structured));
      LONGS_EQUAL(0x96d + (structured ? 0x80 : 0), peer.flags);
      CHECK(structured || peer.reads(0, std::string(8192, '\0')));
      const std::string data = pattern(1 + structured, 100'001);
      LONGS_EQUAL(0, peer.do_one(kWrite, 4099, 100'001, data));
      LONGS_EQUAL(0, peer.do_one(kFlush, 0, 0));
      LONGS_EQUAL(0, peer.do_one(kFlush, UINT64_MAX, UINT32_MAX));  // reserved, ignored
      CHECK(peer.reads(4099, data));
      CHECK(peer.reads(4099 + 500, data.substr(500, 1)));
      LONGS_EQUAL(0, peer.do_one(kWrite, kVolumeBytes - 10, 10, data.substr(0, 10), 1));  // FUA
      CHECK(peer.reads(kVolumeBytes - 10, data.substr(0, 10)));
    }
    CHECK_EQUAL(4, counted().requests_write.read());
    CHECK_EQUAL(4, counted().requests_flush.read());
    CHECK_EQUAL(2 * 100'011, counted().written_bytes.read());
    CHECK(rig->has_open(0));
    CHECK_EQUAL(2, counted().connections_total.read());
  }

  void serves_over_tcp() {
    NbdPeer peer = rig->connect_tcp();
    CHECK_EQUAL(kVolumeBytes, peer.negotiate());
    const std::string data = pattern(3, 300'000);
    LONGS_EQUAL(0, peer.do_one(kWrite, 1, 300'000, data));
    CHECK(peer.reads(1, data));
  }

  void trim_and_write_zeroes() {
    NbdPeer peer = negotiated();
    const std::string data = pattern(4, 200'000);
    for (const uint16_t command : {kTrim, kWriteZeroes}) {
      LONGS_EQUAL(0, peer.do_one(kWrite, 0, 200'000, data));
      LONGS_EQUAL(0, peer.do_one(command, 5001, 90'000, {}, command == kWriteZeroes ? 3 : 1));
      CHECK(peer.reads(0, data.substr(0, 5001)));
      CHECK(peer.reads(5001, std::string(90'000, '\0')));
      CHECK(peer.reads(95'001, data.substr(95'001)));
    }
    LONGS_EQUAL(0, peer.do_one(kWriteZeroes, 0, kVolumeBytes));  // in several slices
    CHECK(peer.reads(0, std::string(kVolumeBytes, '\0')));
  }

  void connections_share_a_volume() {
    NbdPeer one = negotiated(false, "ram0");
    NbdPeer two = negotiated(true);
    NbdPeer other = negotiated(true, "ram1");
    LONGS_EQUAL(0, one.do_one(kWrite, 77, 5, "hello"));
    CHECK(two.reads(77, "hello"));
    CHECK(other.reads(77, std::string(5, '\0')));
  }

  void refusals_leave_the_connection_alive() {
    for (const bool structured : {false, true}) {
      NbdPeer peer = negotiated(structured);
      const std::string data(1000, 'x');
      LONGS_EQUAL(kEinval, peer.do_one(kRead, kVolumeBytes - 10, 11));
      LONGS_EQUAL(kEinval, peer.do_one(kRead, UINT64_MAX - 4, 10));
      LONGS_EQUAL(kEinval, peer.do_one(kRead, 0, 0));
      LONGS_EQUAL(kEinval, peer.do_one(kTrim, kVolumeBytes, 1));
      LONGS_EQUAL(kEnospc, peer.do_one(kWriteZeroes, kVolumeBytes, 1));
      LONGS_EQUAL(kEinval, peer.do_one(99, 0, 1));
      LONGS_EQUAL(kEinval, peer.do_one(kRead, 0, 1, {}, 0x8000));
      LONGS_EQUAL(kEnospc, peer.do_one(kWrite, kVolumeBytes - 999, 1000, data));
      // The payload is longer than the buffer for dropped payloads, and the next request follows.
      const std::string long_data = pattern(5, 3 * kMiB);
      peer.ask(kWrite, 0, 3 * kMiB, long_data);
      peer.ask(kFlush, 0, 0);
      PeerReply reply;
      CHECK(peer.next_reply(reply));
      LONGS_EQUAL(kEnospc, reply.error);
      CHECK(peer.next_reply(reply));
      LONGS_EQUAL(0, reply.error);
      CHECK(peer.reads(0, std::string(4096, '\0')));
    }
    CHECK_EQUAL(18, counted().requests_refused.read());
    CHECK_EQUAL(0, counted().protocol_errors.read());
    CHECK_EQUAL(0, rig->volume_counters.grants.read());
  }

  void a_read_only_volume_stays() {
    NbdPeer peer = negotiated(false, "ram1");
    CHECK((peer.flags & 2) != 0);
    LONGS_EQUAL(kEperm, peer.do_one(kWrite, 0, 4, "data"));
    LONGS_EQUAL(kEperm, peer.do_one(kTrim, 0, 4));
    LONGS_EQUAL(kEperm, peer.do_one(kWriteZeroes, 0, 4));
    CHECK(peer.reads(0, std::string(4, '\0')));
  }

  void nonsense_disconnects() {
    NbdPeer bystander = negotiated();
    NbdPeer peer = negotiated();
    peer.say(std::string(28, 'x'));
    CHECK(peer.hears_the_end());
    NbdPeer second = negotiated();
    second.ask(kWrite, 0, 64 * kMiB + 1);  // a refused payload too long to be dropped
    CHECK(second.flush());
    CHECK(second.hears_the_end());
    NbdPeer third = rig->connect();
    third.hear(18);
    third.say(nbd_reference::be(0x80, 4));  // unknown handshake flags
    CHECK(third.hears_the_end());
    CHECK(rig->has_open(1));
    CHECK_EQUAL(3, counted().protocol_errors.read());
    CHECK(bystander.reads(0, std::string(10, '\0')));
  }

  void disconnect_answers_first() {
    NbdPeer peer = negotiated();
    for (int i = 0; i < 10; ++i) peer.ask(kRead, 0, 30'000);
    peer.ask(kDisc, 0, 0);
    peer.ask(kRead, 0, 1);  // after the end: never answered
    PeerReply reply;
    for (int i = 0; i < 10; ++i) CHECK(peer.next_reply(reply));
    CHECK(peer.hears_the_end());
    CHECK(rig->has_open(0));
    CHECK_EQUAL(0, counted().broken_connections.read());
    CHECK_EQUAL(0, counted().protocol_errors.read());
  }

  void payload_split_anywhere() {
    NbdPeer peer = negotiated();
    const std::string still = pattern(6, 50);
    LONGS_EQUAL(0, peer.do_one(kWrite, 1000, 50, still));
    for (const bool after_write : {false, true}) {
      const size_t total = 28 + 40 + 28 + 28;
      for (size_t cut = 1; cut < total; ++cut) {
        // The previous request decides how far the server reads ahead.
        if (after_write) {
          LONGS_EQUAL(0, peer.do_one(kWrite, 1000, 50, still));
        } else {
          CHECK(peer.reads(1000, still));
        }
        const std::string data = pattern(cut, 40);
        std::string message;
        const uint64_t cookie = 0xabc000 + cut;
        message += nbd_reference::request(0, kWrite, cookie, 100, 40) + data;
        message += nbd_reference::request(0, kTrim, cookie + 1, 5000, 1);
        message += nbd_reference::request(0, kFlush, cookie + 2, 0, 0);
        CHECK(peer.say(std::string_view(message).substr(0, cut)));
        CHECK(peer.is_taken());
        CHECK(peer.say(std::string_view(message).substr(cut)));
        const std::string answers = peer.hear(3 * 16);
        LONGS_EQUAL(48, answers.size());
        std::multiset<uint64_t> cookies;
        for (size_t i = 0; i < 3; ++i) {
          CHECK_EQUAL(0x67446698, nbd_reference::number_at(answers, 16 * i, 4));
          CHECK_EQUAL(0, nbd_reference::number_at(answers, 16 * i + 4, 4));
          cookies.insert(nbd_reference::number_at(answers, 16 * i + 8, 8));
        }
        CHECK((cookies == std::multiset<uint64_t>{cookie, cookie + 1, cookie + 2}));
        CHECK(peer.reads(100, data));
      }
    }
  }

  void gone_in_the_middle_of_a_payload() {
    NbdPeer watcher = negotiated();
    constexpr uint64_t kAt = 40'000;
    constexpr uint32_t kBytes = 4096;
    uint64_t aborts = 0;
    for (const bool after_write : {false, true}) {
      for (const uint32_t sent : {0U, 1U, 28U, 1763U, 1764U, 1765U, 4095U}) {
        const std::string before = pattern(sent, 3 * kBytes);
        LONGS_EQUAL(0, watcher.do_one(kWrite, kAt - kBytes, 3 * kBytes, before));
        NbdPeer victim = negotiated();
        if (after_write) LONGS_EQUAL(0, victim.do_one(kWrite, 0, 1, "x"));
        const std::string half = pattern(1000 + sent, sent);
        victim.ask(kWrite, kAt, kBytes, half);
        CHECK(victim.flush());
        CHECK(victim.is_taken());
        victim.close();
        ++aborts;
        CHECK(eventually([&] { return rig->volume_counters.aborts.read() == aborts; }));
        CHECK(rig->has_open(1));
        CHECK(watcher.reads(kAt - kBytes, before.substr(0, kBytes)));
        CHECK(watcher.reads(kAt + kBytes, before.substr(2 * kBytes)));
        // Bytes that did not arrive were not written. Bytes that arrived may have been written.
        CHECK(watcher.reads(kAt + sent, before.substr(kBytes + sent, kBytes - sent)));
      }
    }
    CHECK_EQUAL(aborts, counted().broken_connections.read());
  }

  void gone_with_replies_outstanding() {
    for (int i = 0; i < 12; ++i) {  // more clients than connection slots
      NbdPeer victim = i % 2 == 0 ? rig->connect() : rig->connect_tcp();
      CHECK(victim.negotiate(i % 3 == 0) > 0);
      for (int k = 0; k < 60; ++k) victim.ask(kRead, 0, 200'000);  // more than any buffer holds
      const uint64_t before = counted().requests_read.read();
      CHECK(victim.flush());
      CHECK(eventually([&] { return counted().requests_read.read() > before; }));
      if (i % 4 < 2) {
        victim.close();
      } else {
        victim.reset();
      }
      CHECK(rig->has_open(0));
    }
  }

  // The client first shuts down its sending side, then closes the socket.
  void gone_in_two_steps() {
    NbdPeer victim = negotiated();
    for (int k = 0; k < 8; ++k) victim.ask(kRead, 0, 400'000);  // more than any buffer holds
    victim.queue(std::string(11, 'x'));                         // the beginning of a request
    CHECK(victim.flush());
    CHECK(shutdown(victim.fd(), SHUT_WR) == 0);
    CHECK(eventually([&] { return counted().broken_connections.read() > 0; }));
    LONGS_EQUAL(1, counted().connections_open.read());
    victim.close();
    CHECK(rig->has_open(0));
    CHECK_EQUAL(1, counted().broken_connections.read());
  }

  void gone_during_the_handshake() {
    NbdPeer early = rig->connect();
    early.close();
    NbdPeer late = rig->connect();
    late.hear(18);
    late.say(nbd_reference::be(3, 4) + "IHAVE");
    late.close();
    NbdPeer polite = rig->connect();
    polite.hear(18);
    polite.say(nbd_reference::be(3, 4) + nbd_reference::option(2, ""));  // ABORT
    LONGS_EQUAL(20, polite.hear(20).size());
    CHECK(polite.hears_the_end());
    polite.close();
    CHECK(eventually([&] { return counted().connections_total.read() == 3; }));
    CHECK(rig->has_open(0));
    CHECK_EQUAL(0, counted().protocol_errors.read());
  }

  void one_too_many_is_refused() {
    std::vector<NbdPeer> peers;
    for (uint32_t i = 0; i < options.max_connections; ++i) peers.push_back(negotiated());
    NbdPeer extra = rig->connect();
    CHECK(extra.hears_the_end());
    CHECK_EQUAL(1, counted().connections_refused.read());
    CHECK_EQUAL(options.max_connections, counted().connections_open.read());
    for (NbdPeer& each : peers) CHECK(each.reads(0, std::string(9, '\0')));
    peers.pop_back();  // frees one connection
    CHECK(rig->has_open(options.max_connections - 1));
    CHECK_EQUAL(options.max_connections, counted().connections_peak.read());
    NbdPeer next = negotiated();
    CHECK(next.reads(0, std::string(9, '\0')));
    CHECK_EQUAL(1, counted().connections_refused.read());
  }

  void handshake_takes_too_long() {
    NbdPeer fast = rig->connect();
    CHECK(eventually([&] {  // on a busy machine this client may be too slow, too
      if (fast.negotiate() > 0) return true;
      fast = rig->connect();
      return false;
    }));
    const uint64_t timeouts = counted().handshake_timeouts.read();
    NbdPeer silent = rig->connect();
    NbdPeer slow = rig->connect();
    LONGS_EQUAL(18, silent.hear(18).size());
    LONGS_EQUAL(18, slow.hear(18).size());
    slow.say(nbd_reference::be(3, 4) + "IHA");
    CHECK(silent.hears_the_end());
    CHECK(slow.hears_the_end());
    CHECK(rig->has_open(1));
    CHECK_EQUAL(timeouts + 2, counted().handshake_timeouts.read());
    CHECK(fast.reads(0, std::string(9, '\0')));  // its time would have been over before theirs
  }

  void more_in_flight_than_slots() {
    NbdPeer peer = negotiated();
    const std::string data = pattern(8, 256 * 1024);
    LONGS_EQUAL(0, peer.do_one(kWrite, 0, 256 * 1024, data));
    // The peer queues 200 reads of 64 KiB before it sends any. The server has few slots for them.
    std::vector<uint64_t> cookies;
    for (uint64_t i = 0; i < 200; ++i) cookies.push_back(peer.ask(kRead, i * 512, 65536));
    std::set<uint64_t> answered;
    for (uint64_t i = 0; i < 200; ++i) {
      PeerReply reply;
      CHECK(peer.next_reply(reply));
      const uint64_t which = reply.cookie - cookies[0];
      CHECK(answered.insert(which).second);
      CHECK(reply.error == 0 && reply.data == data.substr(which * 512, 65536));
    }
    // The same with writes: their payloads lie between the headers.
    for (uint64_t i = 0; i < 200; ++i) {
      peer.ask(kWrite, 300'000 + i * 1000, 1000, std::string_view(data).substr(i * 77, 1000));
    }
    for (uint64_t i = 0; i < 200; ++i) {
      PeerReply reply;
      CHECK(peer.next_reply(reply));
      LONGS_EQUAL(0, reply.error);
    }
    for (uint64_t i = 0; i < 200; ++i) {
      CHECK(peer.reads(300'000 + i * 1000, data.substr(i * 77, 1000)));
    }
    LONGS_EQUAL(0, peer.outstanding_count());
  }

  void random_requests();

  void takes_exactly_what_it_planned() {
    const std::vector<SegmentRequest> planned = plan_block_server(options);
    LONGS_EQUAL(planned.size(), rig->pool->segment_count());
    for (uint32_t i = 0; i < planned.size(); ++i) {
      uint64_t bytes = 0;
      for (const CarvePlan& each : planned[i].carves) bytes += each.bytes;
      CHECK_EQUAL(bytes, rig->pool->segment(i).carved_bytes);
    }
  }
};

// Two connections send many requests at once, each within its own stripe of the volume. Requests
// that overlap are in flight together only if both read, so the model knows each byte of each
// reply.
void BlockServerTest::random_requests() {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  constexpr uint64_t kStripeBytes = 512 * kKiB;
  constexpr size_t kInFlightMax = 40;  // more than there are slots
  struct Asked {
    uint64_t offset, length;
    bool writes;
    std::string expected;
  };
  struct Stripe {
    NbdPeer peer;
    uint64_t begin = 0;
    std::string model = std::string(kStripeBytes, '\0');
    std::map<uint64_t, Asked> in_flight;
  };
  Stripe stripes[2];
  for (size_t i = 0; i < 2; ++i) {
    stripes[i].peer = i == 0 ? rig->connect() : rig->connect_tcp();
    stripes[i].begin = i * kStripeBytes;
    CHECK(stripes[i].peer.negotiate(i == 1) > 0);
  }
  const auto ask = [&](Stripe& stripe) {
    const uint64_t length = 1 + (random() >> (random() % 24 + 40)) % 100'000;
    const uint64_t offset = random() % (kStripeBytes - length);
    constexpr uint16_t kCommands[] = {kRead, kRead, kWrite, kWrite, kTrim, kWriteZeroes, kFlush};
    const uint16_t command = kCommands[random() % 7];
    const bool writes = command != kRead && command != kFlush;
    for (const auto& [cookie, other] : stripe.in_flight) {
      const bool apart = offset + length <= other.offset || other.offset + other.length <= offset;
      if (!apart && (writes || other.writes)) return;
    }
    Asked asked{offset, command == kFlush ? 0 : length, writes, {}};
    std::string payload;
    if (command == kRead) asked.expected = stripe.model.substr(offset, length);
    if (command == kWrite) payload = pattern(random(), length);
    if (writes) {
      stripe.model.replace(offset, length, command == kWrite ? payload : std::string(length, '\0'));
    }
    const uint64_t cookie = stripe.peer.ask(command, command == kFlush ? 0 : stripe.begin + offset,
                                            static_cast<uint32_t>(asked.length), payload);
    stripe.in_flight[cookie] = asked;
  };
  const auto answer = [&](Stripe& stripe) {
    PeerReply reply;
    if (!stripe.peer.next_reply(reply) || reply.error != 0) return false;
    const auto found = stripe.in_flight.find(reply.cookie);
    const bool right = found != stripe.in_flight.end() && found->second.expected == reply.data;
    if (found != stripe.in_flight.end()) stripe.in_flight.erase(found);
    return right;
  };
  bool good = true;
  const int steps = kIsSanitized ? 600 : 2'000;
  for (int step = 0; step < steps && good; ++step) {
    Stripe& stripe = stripes[random() % 2];
    for (uint64_t i = random() % 12; i-- > 0 && stripe.in_flight.size() < kInFlightMax;) {
      ask(stripe);
    }
    for (uint64_t i = random() % 8; i-- > 0 && !stripe.in_flight.empty() && good;) {
      good = answer(stripe);
    }
  }
  for (Stripe& stripe : stripes) {
    while (good && !stripe.in_flight.empty()) good = answer(stripe);
    good = good && stripe.peer.reads(stripe.begin, stripe.model);
  }
  CHECK_TEXT(good, seed.text());
}

}  // namespace

BP_BLOCK_SERVER_GROUPS(BlockServer, BlockServerTest)

BP_ONE_VARIANT(BlockServerUringBothShards, VolumesOfEachAreServed,
               options.volumes[1].read_only = false, volumes_of_each_are_served())
BP_ALL_VARIANTS(BlockServer, WhatIsHeldGoesOnAtADrain, , what_is_held_goes_on_at_a_drain())
BP_ALL_VARIANTS(BlockServer, GivesBackWhatWasWritten, , data_is_what_was_written())
BP_ALL_VARIANTS(BlockServer, ServesOverTcp, , serves_over_tcp())
BP_ALL_VARIANTS(BlockServer, TrimAndWriteZeroesReadAsZeros, , trim_and_write_zeroes())
BP_ALL_VARIANTS(BlockServer, ConnectionsToAVolumeShareIt, , connections_share_a_volume())
BP_ALL_VARIANTS(BlockServer, TakesExactlyWhatItPlanned, , takes_exactly_what_it_planned())
BP_ALL_VARIANTS(BlockServer, AnswersWhatIsOutstandingBeforeItDisconnects, ,
                disconnect_answers_first())
BP_ALL_VARIANTS(BlockServer, ARefusedRequestLeavesTheConnectionAlive, ,
                refusals_leave_the_connection_alive())
BP_ALL_VARIANTS(BlockServer, AReadOnlyVolumeStaysAsItIs, , a_read_only_volume_stays())
BP_ALL_VARIANTS(BlockServer, NonsenseDisconnectsOnlyItsSender, , nonsense_disconnects())
BP_ALL_VARIANTS(BlockServer, RefusesOneConnectionTooMany, , one_too_many_is_refused())
BP_ALL_VARIANTS(BlockServer, EndsAHandshakeThatTakesTooLong,
                options.handshake_timeout_ns = 50 * kNsPerMs, handshake_takes_too_long())
BP_ALL_VARIANTS(BlockServer, MoreRequestsThanSlotsWaitTheirTurn,
                options.requests_per_connection = 4, more_in_flight_than_slots())
BP_ALL_VARIANTS(BlockServer, OneSlotIsEnough, options.requests_per_connection = 1,
                more_in_flight_than_slots())
BP_ALL_VARIANTS(BlockServer, APayloadMayBeSplitAnywhere, , payload_split_anywhere())
BP_ALL_VARIANTS(BlockServer, AClientGoneInTheMiddleOfAPayloadHarmsNobody, ,
                gone_in_the_middle_of_a_payload())
BP_ALL_VARIANTS(BlockServer, AClientGoneWithRepliesOutstandingIsForgotten, ,
                gone_with_replies_outstanding())
BP_ALL_VARIANTS(BlockServer, AClientGoneInTwoStepsIsCountedOnce, , gone_in_two_steps())
BP_ALL_VARIANTS(BlockServer, AClientGoneDuringTheHandshakeIsForgotten, ,
                gone_during_the_handshake())
BP_ALL_VARIANTS(BlockServer, RandomRequestsAgreeWithTheModel, , random_requests())

// ---- The plan -----------------------------------------------------------------------------------

TEST_GROUP(BlockServerPlan) {
  BlockServerOptions options;
  void setup() override { options.volumes = {{"ram0", kVolumeBytes, false}}; }
};

TEST(BlockServerPlan, HasASegmentForItselfAndOneForEachVolume) {
  options.volumes.push_back({"ram1", 4 * kKiB, true});
  const std::vector<SegmentRequest> planned = plan_block_server(options);
  LONGS_EQUAL(3, planned.size());
  STRCMP_EQUAL("blockd", planned[0].owner.text);
  LONGS_EQUAL(4, planned[0].carves.size());
  STRCMP_EQUAL("volume:ram0", planned[1].owner.text);
  CHECK_EQUAL(kVolumeBytes, planned[1].carves[0].bytes);
  STRCMP_EQUAL("volume:ram1", planned[2].owner.text);
}

TEST(BlockServerPlan, EachShardWithVolumesHasLanes) {
  LONGS_EQUAL(4, plan_block_server(options)[0].carves.size());
  options.volumes.push_back({"ram1", 4 * kKiB, true});
  options.volumes[1].shard = 1;
  const auto planned = plan_block_server(options);
  LONGS_EQUAL(6, planned[0].carves.size());
  STRCMP_EQUAL("fifo:blockd.replies-0", planned[0].carves[3].owner.text);
  STRCMP_EQUAL("fifo:blockd.replies-1", planned[0].carves[5].owner.text);
}

TEST(BlockServerPlan, ItsLanesHoldEveryRequestThereCanBe) {
  for (const uint32_t connections : {1U, 3U, 4096U}) {
    for (const uint32_t requests : {1U, 7U, 1024U}) {
      options.max_connections = connections;
      options.requests_per_connection = requests;
      const auto planned = plan_block_server(options);
      const uint64_t items_bytes = uint64_t{connections} * requests * sizeof(BlockRequest*);
      CHECK(planned[0].carves[2].bytes >= sizeof(BlockRequestFifo) + items_bytes);
      CHECK_EQUAL(planned[0].carves[2].bytes, planned[0].carves[3].bytes);
      CHECK(planned[0].carves[0].bytes >=
            connections * (sizeof(nbd::Connection) + requests * sizeof(BlockRequest)));
      for (const CarvePlan& each : planned[0].carves) LONGS_EQUAL(0, each.bytes % 64);
    }
  }
}

TEST(BlockServerPlan, VolumesWithLongNamesAreDifferentOwners) {
  const std::string name(255, 'a');
  options.volumes = {{name, 4 * kKiB, false},
                     {name.substr(0, 254) + "b", 4 * kKiB, false},
                     {name.substr(0, 48), 4 * kKiB, false}};
  const auto planned = plan_block_server(options);
  LONGS_EQUAL(4, planned.size());
  CHECK(!(planned[1].owner == planned[2].owner));
  CHECK(!(planned[1].owner == planned[3].owner));
  CHECK(!(planned[2].owner == planned[3].owner));
}
