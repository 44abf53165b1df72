// The fixture for tests of blockd as a whole: a running server, and a client after its negotiation.
// Each test runs with one shard and with two, over io_uring and over epoll.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <string_view>

#include <fcntl.h>

#include "tests/apps/blockd/block_server_rig.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

inline constexpr uint64_t kVolumeBytes = 2 * kMiB;

inline std::string pattern(uint64_t seed, size_t bytes) {
  std::mt19937_64 random(seed);
  std::string text(bytes, '\0');
  for (char& each : text) each = static_cast<char>(random());
  return text;
}

inline int count_fds() {
  int count = 0;
  for (int fd = 0; fd < 512; ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

class BlockServerFixture : public Utest {
 public:
  virtual RigVariant variant() const = 0;

  // Allocated on its own, because CppUTest's operator new ignores alignment.
  std::unique_ptr<BlockServerRig> rig;
  BlockServerOptions options;
  int fd_count_before = 0;

  void setup() override {
    fd_count_before = count_fds();
    rig = std::make_unique<BlockServerRig>();
    options.volumes = {{"ram0", kVolumeBytes, false}, {"ram1", 64 * kKiB, true}};
    options.max_connections = 4;
    options.requests_per_connection = 16;
    options.handshake_timeout_ns = 60 * kNsPerSecond;
  }
  void teardown() override {
    const bool drained = rig->stop();
    rig.reset();
    CHECK(drained);
    LONGS_EQUAL(fd_count_before, count_fds());
  }
  // The volume's queue runs two operations at once, so that further ones wait.
  void add_stored_volume() {
    const StoreQueueShape shape = {align_up(StoreQueue::kBufferBytesMin, kMiB), 2};
    options.volumes.push_back({"disk0", 0, false, {}, shape});
  }
  bool start() {
    for (size_t i = 0; variant().on_both && i < options.volumes.size(); ++i) {
      options.volumes[i].shard = i % 2;
    }
    return rig->start(options, variant());
  }

  nbd::ConnectionCounters& counted() { return rig->connection_counters; }
  NbdPeer negotiated(bool structured = false, std::string_view name = "") {
    NbdPeer peer = rig->connect();
    CHECK(peer.is_connected());
    CHECK(peer.negotiate(structured, name) > 0);
    return peer;
  }
};

}  // namespace bedplate::test

// Defines the test groups of a fixture: one for each variant of the server.
#define BP_BLOCK_SERVER_GROUPS(name, fixture)                                           \
  BP_BLOCK_SERVER_GROUP(name##UringOneShard, fixture, (RigVariant{true, false}))        \
  BP_BLOCK_SERVER_GROUP(name##UringTwoShards, fixture, (RigVariant{true, true}))        \
  BP_BLOCK_SERVER_GROUP(name##UringBothShards, fixture, (RigVariant{true, true, true})) \
  BP_BLOCK_SERVER_GROUP(name##EpollOneShard, fixture, (RigVariant{false, false}))       \
  BP_BLOCK_SERVER_GROUP(name##EpollTwoShards, fixture, (RigVariant{false, true}))
#define BP_BLOCK_SERVER_GROUP(group, fixture, its_variant)                                \
  TEST_GROUP_BASE(group, fixture){RigVariant variant() const override{return its_variant; \
  }                                                                                       \
  }                                                                                       \
  ;

// Defines a test in all of these groups. `prepare`: statements that run before the server starts.
#define BP_ALL_VARIANTS(name, sentence, prepare, body)           \
  BP_ONE_VARIANT(name##UringOneShard, sentence, prepare, body)   \
  BP_ONE_VARIANT(name##UringTwoShards, sentence, prepare, body)  \
  BP_ONE_VARIANT(name##UringBothShards, sentence, prepare, body) \
  BP_ONE_VARIANT(name##EpollOneShard, sentence, prepare, body)   \
  BP_ONE_VARIANT(name##EpollTwoShards, sentence, prepare, body)
#define BP_ONE_VARIANT(group, sentence, prepare, body)                          \
  TEST(group, sentence) {                                                       \
    prepare;                                                                    \
    if (!start() && variant().uring) BP_SKIP("io_uring is not available here"); \
    body;                                                                       \
  }
