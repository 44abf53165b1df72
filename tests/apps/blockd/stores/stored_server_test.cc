// A volume on a file, from socket to socket, in every variant of the server.
#include <algorithm>
#include <random>
#include <string>

#include "tests/apps/blockd/block_server_fixture.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

class StoredServerTest : public BlockServerFixture {
 public:
  void writes_and_reads_of_all_sizes() {
    NbdPeer peer = negotiated(true, "disk0");
    std::string model(kVolumeBytes, '\0');
    for (const uint32_t bytes : {1U, 511U, 512U, 4096U, 4097U, 20'000U, 300'000U, 1'000'000U}) {
      for (const uint64_t offset : {uint64_t{0}, uint64_t{4096}, uint64_t{12'345}}) {
        const std::string data = pattern(bytes + offset, bytes);
        LONGS_EQUAL(0, peer.do_one(kWrite, offset, bytes, data));
        model.replace(offset, bytes, data);
        CHECK(peer.reads(offset, data));
      }
    }
    LONGS_EQUAL(0, peer.do_one(kFlush, 0, 0));
    LONGS_EQUAL(0, peer.do_one(kFlush, UINT64_MAX, UINT32_MAX));  // reserved, ignored
    LONGS_EQUAL(0, peer.do_one(kWriteZeroes, 1000, 100'000));
    model.replace(1000, 100'000, std::string(100'000, '\0'));
    LONGS_EQUAL(0, peer.do_one(kTrim, 1'500'000, 4096));
    CHECK(peer.reads(0, std::string_view(model).substr(0, 1'400'000)));
  }

  // Sends many writes at once on two connections, each to its own half of the volume.
  void bursts() {
    const Seed seed;
    std::mt19937_64 random(seed.value());
    NbdPeer peers[2] = {negotiated(false, "disk0"), negotiated(true, "disk0")};
    constexpr uint64_t kHalf = kVolumeBytes / 2;
    std::string models[2] = {std::string(kHalf, '\0'), std::string(kHalf, '\0')};
    bool good = true;
    for (int round = 0; round < 20 && good; ++round) {
      uint64_t at[2] = {0, 0};
      for (int i = 0; i < 24; ++i) {
        const size_t which = random() % 2;
        const auto bytes =
            static_cast<uint32_t>(1 + random() % (random() % 3 == 0 ? 50'000 : 5'000));
        if (at[which] + bytes > kHalf) continue;
        const std::string data = pattern(random(), bytes);
        peers[which].ask(kWrite, which * kHalf + at[which], bytes, data);
        models[which].replace(at[which], bytes, data);
        at[which] += bytes;
      }
      for (NbdPeer& peer : peers) {
        PeerReply reply;
        while (good && peer.outstanding_count() > 0) {
          good = peer.next_reply(reply) && reply.error == 0;
        }
      }
      for (size_t which : {0, 1}) good &= peers[which].reads(which * kHalf, models[which]);
    }
    CHECK_TEXT(good, seed.text());
  }

  void clients_that_leave_keep_no_buffers() {
    for (int round = 0; round < 5; ++round) {
      NbdPeer peer = negotiated(false, "disk0");
      for (int i = 0; i < 8; ++i) peer.ask(kRead, 0, 1'000'000);
      peer.ask(kWrite, 0, 1'000'000, std::string(100, 'x'));
      peer.flush();
      peer.reset();
      CHECK(rig->has_open(0));
    }
    CHECK(eventually([this] { return rig->store_counters.buffer_bytes.read() == 0; }));
    NbdPeer peer = negotiated(false, "disk0");
    LONGS_EQUAL(0, peer.do_one(kWrite, 0, 4, "good"));
    CHECK(peer.reads(0, "good"));
  }
};

}  // namespace

BP_BLOCK_SERVER_GROUPS(StoredServer, StoredServerTest)

BP_ALL_VARIANTS(StoredServer, WritesAndReadsOfAllSizes, add_stored_volume(),
                writes_and_reads_of_all_sizes())
BP_ALL_VARIANTS(StoredServer, Bursts, add_stored_volume(), bursts())
BP_ALL_VARIANTS(StoredServer, ClientsThatLeaveKeepNoBuffers, add_stored_volume(),
                clients_that_leave_keep_no_buffers())
