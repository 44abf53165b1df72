// Writes that come in bursts: small ones are copied from the connection's buffer, large ones are
// received straight into the volume, and a client may leave in the middle of a burst.
#include <algorithm>
#include <string>

#include "tests/apps/blockd/block_server_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

class BlockServerBurstTest : public BlockServerFixture {
 public:
  // A write whose payload arrives with its header asks for no destination. Bytes sent in one call
  // arrive together: a Unix socket takes them whole.
  void small_writes_need_no_grant() {
    NbdPeer peer = negotiated();
    const std::string data = pattern(10, 14 * 512);
    LONGS_EQUAL(0, peer.do_one(kWrite, 0, 512, data.substr(0, 512)));  // reads ahead
    for (uint64_t i = 0; i < 14; ++i) {
      peer.ask(kWrite, 1'000 + 600 * i, 512, std::string_view(data).substr(512 * i, 512));
    }
    PeerReply reply;
    for (int i = 0; i < 14; ++i) CHECK(peer.next_reply(reply) && reply.error == 0);
    CHECK_EQUAL(15, rig->volume_counters.commits.read());
    CHECK_EQUAL(0, rig->volume_counters.grants.read());
    for (uint64_t i = 0; i < 14; ++i) CHECK(peer.reads(1'000 + 600 * i, data.substr(512 * i, 512)));
  }

  // Writes of up to 32 KiB count as small if they arrive together, and as large if the client waits
  // for each. A Unix socket takes each burst of this test whole.
  void writes_between_small_and_large() {
    constexpr uint32_t kBetween = 9 * kKiB;
    struct {
      int count;
      uint64_t grants;
    } const steps[] = {
        {3, 0}, {3, 0},          // small, like the writes before them
        {1, 0}, {1, 1}, {1, 2},  // the first arrives with its header; the next ones come alone
        {3, 4}, {3, 4},          // two grants before the server sees that the client does not wait
    };
    NbdPeer peer = negotiated();
    NbdPeer reader = negotiated();  // a read on `peer` would change its read-ahead
    LONGS_EQUAL(0, peer.do_one(kWrite, 0, 1, "x"));
    for (const auto& step : steps) {
      const auto count = static_cast<uint64_t>(step.count);
      const std::string data = pattern(step.grants, kBetween * count);
      for (uint64_t i = 0; i < count; ++i) {
        peer.ask(kWrite, kBetween * i, kBetween,
                 std::string_view(data).substr(kBetween * i, kBetween));
      }
      PeerReply reply;
      for (uint64_t i = 0; i < count; ++i) CHECK(peer.next_reply(reply) && reply.error == 0);
      CHECK_EQUAL(step.grants, rig->volume_counters.grants.read());
      CHECK(reader.reads(0, data));
    }
  }

  // The last write decides how far the server reads ahead: 8 KiB is small, one byte more is not.
  void large_writes_are_received_in_place() {
    constexpr uint32_t kSmall = 8 * kKiB;
    constexpr uint32_t kLarge = kSmall + 1;
    struct {
      uint32_t bytes;
      uint64_t grants;
    } const steps[] = {{kLarge, 1}, {kLarge, 2}, {kSmall, 3},
                       {kSmall, 3}, {kLarge, 3}, {kLarge, 4}};
    NbdPeer peer = negotiated();
    for (const auto& step : steps) {
      const std::string data = pattern(step.grants, step.bytes);
      LONGS_EQUAL(0, peer.do_one(kWrite, 4096, step.bytes, data));
      CHECK_EQUAL(step.grants, rig->volume_counters.grants.read());
      CHECK(peer.reads(4096, data));
    }
  }

  void gone_in_the_middle_of_a_burst() {
    NbdPeer watcher = negotiated();
    NbdPeer victim = negotiated();
    LONGS_EQUAL(0, victim.do_one(kWrite, 0, 1, "x"));
    const std::string data = pattern(11, 6 * 1000);
    for (uint64_t i = 0; i < 6; ++i) {  // only 300 bytes of the last one
      victim.ask(kWrite, 1000 * i, 1000,
                 std::string_view(data).substr(1000 * i, i < 5 ? 1000 : 300));
    }
    PeerReply reply;
    for (int i = 0; i < 5; ++i) CHECK(victim.next_reply(reply) && reply.error == 0);
    CHECK(victim.is_taken());
    victim.close();
    CHECK(eventually([&] { return rig->volume_counters.aborts.read() == 1; }));
    CHECK(rig->has_open(1));
    CHECK_EQUAL(1 + 5, rig->volume_counters.commits.read());
    CHECK_EQUAL(1, counted().broken_connections.read());
    CHECK(watcher.reads(0, data.substr(0, 5000)));
    CHECK(watcher.reads(5300, std::string(700, '\0')));
  }

  // A burst larger than the read-ahead buffer, so the end of the buffer cuts payloads and headers
  // anywhere. Requests that wait for a slot stay in the buffer while payloads next to them are
  // copied.
  void a_long_burst_of_small_writes() {
    for (const uint32_t bytes : {1U, 511U, 4096U, 16'384U}) {
      NbdPeer peer = negotiated();
      const uint64_t count = std::min<uint64_t>(kVolumeBytes / bytes, 1000);
      const std::string data = pattern(bytes, bytes * count);
      for (uint64_t i = 0; i < count; ++i) {
        peer.ask(kWrite, bytes * i, bytes, std::string_view(data).substr(bytes * i, bytes));
      }
      for (uint64_t i = 0; i < count; ++i) {
        PeerReply reply;
        CHECK(peer.next_reply(reply) && reply.error == 0);
      }
      CHECK(peer.reads(0, data));
    }
  }
};

}  // namespace

BP_BLOCK_SERVER_GROUPS(BlockServerBurst, BlockServerBurstTest)

BP_ALL_VARIANTS(BlockServerBurst, ASmallWriteThatIsThereNeedsNoGrant, ,
                small_writes_need_no_grant())
BP_ALL_VARIANTS(BlockServerBurst, AWriteBetweenIsCopiedWhereItComesWithOthers, ,
                writes_between_small_and_large())
BP_ALL_VARIANTS(BlockServerBurst, ALargeWriteIsReceivedInPlace, ,
                large_writes_are_received_in_place())
BP_ALL_VARIANTS(BlockServerBurst, MayBeLong, , a_long_burst_of_small_writes())
BP_ALL_VARIANTS(BlockServerBurst, CutOffLeavesWhatIsWhole, , gone_in_the_middle_of_a_burst())
