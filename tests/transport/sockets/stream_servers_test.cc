// A server on two shards, each a thread with sockets: clients are spread, a full shard gives them
// to the other one, and both drain as one, whatever is between them.
#include "transport/sockets/stream_servers.h"

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include "platform/file.h"
#include "tests/support/fake_root.h"
#include "tests/support/patience.h"
#include "tests/transport/sockets/stream_memory.h"
#include "transport/sockets/socket_address.h"
#include "transport/sockets/socket_thread.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Answers each line with the name of its shard.
class Named final : public StreamSession {
 public:
  explicit Named(const char& name) noexcept : StreamSession(input_, output_), name_(name) {}

 private:
  StreamStep work(uint64_t) noexcept override {
    const std::string_view line = arrived_line();
    if (line.empty()) return StreamStep::kStarved;
    say({&name_, 1});
    say("\n");
    take(line.size());
    return StreamStep::kTaken;
  }

  const char& name_;
  char input_[256];
  char output_[2 * StreamSession::kStepTextBytes];
};

// A shard, and a call that keeps it busy.
struct Shard {
  explicit Shard(char its_name) : name(its_name) {}

  const char name;
  SocketThread thread;
  StreamServer* server = nullptr;
  StreamServerCounters counters;
  MoveCounters moves;
  std::unique_ptr<StreamMemory> memory;
  std::atomic<bool> is_held{false};
  LoopCall holding = {.function =
                          [](void* self) noexcept {
                            auto& its = *static_cast<Shard*>(self);
                            its.is_held.store(true);
                            while (its.is_held.load()) sched_yield();
                          },
                      .context = this};

  void hold() {
    thread.loop().submit(holding);
    CHECK(test::eventually([&] { return is_held.load(); }));
  }
  void release() { is_held.store(false); }
  uint64_t open() const { return counters.connections_open.read(); }
};

}  // namespace

TEST_GROUP(StreamServers) {
  static constexpr uint32_t kSocketsMax = 128;

  test::FakeRoot root;
  SocketAddress address;
  Fd listener;
  StreamServers servers;
  std::vector<std::unique_ptr<Shard>> shards;
  StreamRefusals refusals;

  void teardown() override {
    for (const auto& shard : shards) shard->release();
    for (const auto& shard : shards) shard->thread.stop();
    servers.end();
    shards.clear();
  }
  // A shard for each place count. The first one listens: at a Unix socket, or at a TCP port that
  // it could share.
  void serve(const std::vector<uint64_t>& place_counts, bool is_unix = true) {
    if (is_unix) {
      address.kind = SocketAddress::Kind::kUnix;
      address.path = root.path() + "/socket";
      listener = listen_at(address).take();
    } else {
      address.host = "127.0.0.1";
      auto both = listen_together(address, 2);
      CHECK(both.ok());
      listener = std::move(both.value()[0]);
    }
    for (const uint64_t count : place_counts) {
      shards.push_back(std::make_unique<Shard>(static_cast<char>('a' + shards.size())));
      create(*shards.back(), count, place_counts.size() > 1);
    }
    POINTERS_EQUAL(shards.back()->server, &servers.at(servers.count() - 1));
    servers.at(0).add_listener(listener.number());
    for (const auto& shard : shards) shard->thread.begin();
  }
  void create(Shard & shard, uint64_t place_count, bool is_one_of_several) {
    SocketThreadOptions options;
    options.name = "test";
    options.socket_count_max = kSocketsMax;
    options.begin = [](void* its) noexcept { static_cast<Shard*>(its)->server->start(); };
    options.end = [](void* its) noexcept { static_cast<Shard*>(its)->server->end(); };
    options.context = &shard;
    shard.memory = std::make_unique<StreamMemory>(StreamServers::bytes_for<Named>(place_count));
    CHECK(shard.thread.create(options).ok());
    shard.server = &servers.add<Named>({.name = "test",
                                        .loop = &shard.thread.loop(),
                                        .sockets = &shard.thread.sockets(),
                                        .counters = &shard.counters,
                                        .refusals = refusals},
                                       is_one_of_several ? &shard.moves : nullptr,
                                       shard.memory->aligned(), shard.name);
  }
  Shard& a() { return *shards[0]; }
  Shard& b() { return *shards[1]; }

  Fd connect() {
    SocketAddress there = address;
    if (there.kind != SocketAddress::Kind::kUnix) {
      sockaddr_in bound = {};
      socklen_t bytes = sizeof bound;
      LONGS_EQUAL(0, getsockname(listener.number(), reinterpret_cast<sockaddr*>(&bound), &bytes));
      there.port = ntohs(bound.sin_port);
    }
    auto connected = start_connecting(there);
    CHECK(connected.ok());
    set_blocking(connected.value().number(), true);
    return connected.take();
  }
  // Returns all up to the end of a line, or of the connection.
  static std::string heard(const Fd& fd) {
    std::string line;
    char byte = 0;
    while (!line.ends_with('\n')) {
      CHECK(test::has_input(fd.number()));
      if (recv(fd.number(), &byte, 1, 0) <= 0) break;
      line += byte;
    }
    return line;
  }
  static std::string ask(const Fd& fd) {
    LONGS_EQUAL(1, send(fd.number(), "\n", 1, MSG_NOSIGNAL));
    return heard(fd);
  }
  static bool is_closed(const Fd& fd) { return heard(fd).empty(); }
};

TEST(StreamServers, ASocketOfOneShardServesBothEvenly) {
  serve({4, 4});
  std::string told;
  std::vector<Fd> clients;
  for (int i = 0; i < 6; ++i) {
    clients.push_back(connect());
    told += ask(clients.back());
  }
  STRCMP_EQUAL("a\nb\na\nb\na\nb\n", told.c_str());
  CHECK_EQUAL(3, a().open());
  CHECK_EQUAL(3, b().open());
  CHECK(test::eventually([&] { return a().moves.connections_moving.read() == 0; }));
  CHECK_EQUAL(3, a().moves.connections_moved.read());
  CHECK_EQUAL(0, b().moves.connections_moved.read());
}

TEST(StreamServers, AFullShardGivesItsClientsToTheOther) {
  serve({2, 1}, false);
  std::string told;
  std::vector<Fd> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(connect());
    told += ask(clients.back());
  }
  STRCMP_EQUAL("a\na\nb\n", told.c_str());
  CHECK(is_closed(connect()));  // nobody has room
  CHECK(test::eventually([&] { return a().counters.connections_refused.read() == 1; }));
  CHECK_EQUAL(0, b().counters.connections_refused.read());
  clients[2].close();
  CHECK(test::eventually([&] { return b().open() == 0; }));
  clients.push_back(connect());
  STRCMP_EQUAL("b\n", ask(clients.back()).c_str());
  CHECK_EQUAL(2, a().moves.connections_moved.read());
}

TEST(StreamServers, AClientThatNobodyHasRoomForHearsWhy) {
  refusals.too_many = [](void*, std::span<char>) noexcept { return std::string_view("full\n"); };
  serve({1, 1});
  const Fd one = connect(), two = connect();
  STRCMP_EQUAL("a\n", ask(one).c_str());
  STRCMP_EQUAL("b\n", ask(two).c_str());
  STRCMP_EQUAL("full\n", heard(connect()).c_str());
}

TEST(StreamServers, OneShardIsAServerAsEver) {
  serve({2});
  const Fd one = connect(), two = connect();
  STRCMP_EQUAL("a\n", ask(one).c_str());
  STRCMP_EQUAL("a\n", ask(two).c_str());
  CHECK(is_closed(connect()));
  CHECK_EQUAL(0, a().moves.connections_moved.read());
  servers.request_drain();
  CHECK(test::eventually([&] { return servers.is_drained(); }));
}

TEST(StreamServers, DrainsAsOne) {
  serve({2, 2});
  std::vector<Fd> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(connect());
    ask(clients.back());
  }
  CHECK_FALSE(servers.is_drained());
  servers.request_drain();
  for (const Fd& client : clients) CHECK(is_closed(client));
  clients.clear();
  CHECK(test::eventually([&] { return servers.is_drained(); }));
  CHECK_EQUAL(0, a().open());
  CHECK_EQUAL(0, b().open());
}

// It is not drained while a client is between its shards, and that client hears the end.
TEST(StreamServers, ADrainWaitsForClientsOnTheirWay) {
  serve({2, 2});
  Fd first = connect();
  STRCMP_EQUAL("a\n", ask(first).c_str());
  b().hold();
  const Fd second = connect();
  CHECK(test::eventually([&] { return a().moves.connections_moving.read() == 1; }));
  servers.request_drain();
  CHECK(is_closed(first));
  first.close();
  CHECK(test::eventually([&] { return a().open() == 0; }));
  CHECK_FALSE(servers.is_drained());
  CHECK_EQUAL(1, a().moves.connections_moving.read());
  b().release();
  CHECK(is_closed(second));
  CHECK(test::eventually([&] { return servers.is_drained(); }));
  CHECK_EQUAL(0, a().moves.connections_moving.read());
}

// While a shard stands still, the other one serves: a bounded number of clients waits.
TEST(StreamServers, AShardThatStandsStillHoldsFewClients) {
  constexpr uint64_t kClients = 40;
  serve({kClients, kClients});
  b().hold();
  std::vector<Fd> clients;
  for (uint64_t i = 0; i < kClients; ++i) clients.push_back(connect());
  CHECK(test::eventually(
      [&] { return a().open() + a().moves.connections_moving.read() == kClients; }));
  CHECK_EQUAL(ClientMoves::kSlotCount, a().moves.connections_moving.read());
  STRCMP_EQUAL("a\n", ask(clients.back()).c_str());
  b().release();
  CHECK(test::eventually([&] { return b().open() == ClientMoves::kSlotCount; }));
  CHECK(test::eventually([&] { return a().moves.connections_moving.read() == 0; }));
}

// The threads end before the client has arrived.
TEST(StreamServers, TheEndClosesClientsOnTheirWay) {
  serve({2, 2});
  const Fd first = connect();
  STRCMP_EQUAL("a\n", ask(first).c_str());
  b().hold();
  const Fd second = connect();
  CHECK(test::eventually([&] { return a().moves.connections_moving.read() == 1; }));
  a().thread.stop();
  b().thread.loop().stop();
  b().release();
  b().thread.stop();
  servers.end();
  CHECK(is_closed(second));
}
