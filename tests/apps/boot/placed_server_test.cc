// A service that is placed on the shards that its configuration names, or on all: what it plans,
// who serves its clients, its counters, and its drain.
#include "apps/boot/placed_server.h"

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/services/service.h"
#include "apps/testing/test_appliance.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::TestAppliance;
using bedplate::testing::TestClient;

namespace {

struct LineCounters {
  StreamServerCounters clients;
  Counter lines;
};
void describe(CounterTable& table, LineCounters& counters) {
  describe(table, counters.clients, "max_connections");
  table.counter("lines", counters.lines, "lines", "Lines.");
}

// The state that the sessions of a shard share.
struct Site {
  char name = 'a';
  LineCounters* counters = nullptr;
};

// Answers each line with the name of its shard.
class Named final : public StreamSession {
 public:
  explicit Named(Site& site) noexcept : StreamSession(input_, output_), site_(site) {}

 private:
  StreamStep work(uint64_t) noexcept override {
    const std::string_view line = arrived_line();
    if (line.empty()) return StreamStep::kStarved;
    site_.counters->lines.add(1);
    say({&site_.name, 1});
    say("\n");
    take(line.size());
    return StreamStep::kTaken;
  }

  Site& site_;
  char input_[256];
  char output_[2 * StreamSession::kStepTextBytes];
};

class Lines final : public Service {
 public:
  const char* name() const noexcept override { return "lines"; }
  void describe(ConfigurationTable& table) override {
    table.addresses("listen", &listen_, 1, 4).required().help("Where it listens.");
    table.shards_or_all("shards", &shards).help("The shards of its clients.");
    table.integer("max_connections", &max_connections_, 1, 1024).help("How many, on all shards.");
  }
  Result<void> plan(ServicePlan& plan) override {
    server.plan<Named, LineCounters>(plan, {.service = "lines",
                                            .shards = shards,
                                            .connection_count = max_connections_,
                                            .connection_key = "max_connections",
                                            .addresses = listen_,
                                            .carves = carves});
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    for (size_t i = 0; i < shards.size(); ++i) {
      sites[i].name = static_cast<char>('a' + shards[i]);
      BP_TRY_ASSIGN(sites[i].counters, context.shard_counters<LineCounters>("lines", shards[i]));
    }
    return server.create<Named, LineCounters>(context, {.name = "lines"}, sites);
  }
  void start(uint32_t shard) noexcept override { server.start(shard); }
  void request_drain() noexcept override { server.request_drain(); }
  bool is_drained() const noexcept override { return server.is_drained(); }
  bool stopped() noexcept override {
    server.end();
    return true;
  }

  std::vector<uint32_t> shards;
  std::vector<std::vector<CarvePlan>> carves;
  std::array<Site, 3> sites;
  PlacedServer server;

 private:
  std::vector<SocketAddress> listen_;
  uint32_t max_connections_ = 8;
};

constexpr char kShards[] =
    "[[shard]]\nname = \"main\"\ncpu = 0\n[[shard]]\nname = \"other\"\ncpu = 1\n"
    "[[shard]]\nname = \"third\"\ncpu = 2\n";

}  // namespace

TEST_GROUP(PlacedServer) {
  Lines lines;
  std::unique_ptr<TestAppliance> appliance =
      std::make_unique<TestAppliance>(std::vector<Service*>{&lines});
  std::vector<TestClient> clients;

  void teardown() override {
    clients.clear();
    appliance.reset();
  }
  static std::string tables(const std::string& keys) {
    return std::string("[lines]\nlisten = [\"tcp:127.0.0.1:7\"]\n") + keys + kShards;
  }
  void boot(const std::string& keys) { STRCMP_EQUAL("", appliance->boot(tables(keys)).c_str()); }
  // A new client, which stays connected. Returns the name of the shard that serves it; empty: it is
  // refused.
  std::string connect() {
    clients.push_back(appliance->connect("lines", "listen"));
    clients.back().send("\n");
    return clients.back().receive(2).substr(0, 1);
  }
  std::string connect(int count) {
    std::string told;
    for (int i = 0; i < count; ++i) told += connect();
    return told;
  }
  uint64_t counted(const char* name, const char* instance = "") {
    appliance->run();
    return appliance->counter("lines", name, instance).value();
  }
  std::string segments() {
    std::string told;
    for (const SegmentRequest& segment : appliance->needs(lines).segments) {
      told += std::string(segment.owner.view()) + ":";
      for (const CarvePlan& carve : segment.carves) told += " " + std::string(carve.owner.view());
      told += "\n";
    }
    return told;
  }
};

TEST(PlacedServer, IsOnAllShardsUnlessTheConfigurationNamesSome) {
  boot("");
  CHECK((lines.shards == std::vector<uint32_t>{0, 1, 2}));
  STRCMP_EQUAL("abcabc", connect(6).c_str());
  CHECK_EQUAL(6, counted("connections_open"));
  CHECK_EQUAL(6, counted("lines"));
  for (const char* shard : {"main", "other", "third"}) {
    CHECK_EQUAL(2, counted("connections_open", shard));
    CHECK_EQUAL(2, counted("lines", shard));
  }
  CHECK_EQUAL(4, counted("connections_moved"));
  CHECK_EQUAL(4, counted("connections_moved", "main"));
  CHECK_EQUAL(0, counted("connections_moving"));
}

TEST(PlacedServer, IsOnTheShardsThatTheConfigurationNames) {
  boot("shards = [\"third\", \"main\"]\n");
  STRCMP_EQUAL("caca", connect(4).c_str());
  CHECK_EQUAL(2, counted("connections_open", "third"));
  CHECK_FALSE(appliance->counter("lines", "connections_open", "other").has_value());
  LONGS_EQUAL(0, appliance->needs(lines).shards[1].connections);
}

TEST(PlacedServer, DividesItsConnectionsAndRoundsThemUp) {
  boot("shards = [\"main\", \"other\"]\nmax_connections = 3\n");
  LONGS_EQUAL(2, appliance->needs(lines).shards[0].connections);
  LONGS_EQUAL(2, appliance->needs(lines).shards[1].connections);
  STRCMP_EQUAL("abab", connect(4).c_str());
  STRCMP_EQUAL("", connect().c_str());
  CHECK_EQUAL(1, counted("connections_refused"));
  clients[1].close();  // of the other shard, which alone has room now
  CHECK_EQUAL(3, counted("connections_open"));
  STRCMP_EQUAL("b", connect().c_str());
}

TEST(PlacedServer, HasMemoryForEachShard) {
  STRCMP_EQUAL("", appliance->plan(tables("shards = [\"main\", \"third\"]\n")).c_str());
  // Both shards are on one node in most machines; else each node has a segment.
  STRCMP_CONTAINS("lines: connections-0:lines", segments().c_str());
  STRCMP_CONTAINS("connections-2:lines", segments().c_str());
  LONGS_EQUAL(2, appliance->needs(lines).listens[0].shards.size());
}

TEST(PlacedServer, HasFurtherMemoryOfTheServiceBesideTheConnections) {
  lines.carves.resize(2);
  lines.carves[0].push_back({OwnerName("first", "lines"), 128});
  lines.carves[1].push_back({OwnerName("second", "lines"), 64});
  STRCMP_EQUAL("", appliance->plan(tables("shards = [\"main\", \"third\"]\n")).c_str());
  STRCMP_CONTAINS("lines: first:lines connections-0:lines", segments().c_str());
  STRCMP_CONTAINS(" second:lines connections-2:lines", segments().c_str());
}

TEST(PlacedServer, OnOneShardHasTheNamesOfAServiceOnOne) {
  boot("shards = [\"other\"]\nmax_connections = 2\n");
  STRCMP_EQUAL("lines: connections:lines\n", segments().c_str());
  STRCMP_EQUAL("bb", connect(2).c_str());
  STRCMP_EQUAL("", connect().c_str());
  CHECK_EQUAL(2, counted("connections_open"));
  CHECK_FALSE(appliance->counter("lines", "connections_open", "other").has_value());
  CHECK_FALSE(appliance->counter("lines", "connections_moved").has_value());
  LONGS_EQUAL(1, appliance->needs(lines).counters.size());
}

TEST(PlacedServer, ItsPartsAreHandedOutForItsShardsAlone) {
  boot("shards = [\"main\", \"third\"]\n");
  ServiceContext& context = appliance->context(lines);
  const auto answer = [](const Error& error) { return std::string(error.answer); };
  CHECK(context.listeners("listen", 0).ok());
  LONGS_EQUAL(0, context.listeners("listen", 2).value().size());  // the test's are Unix sockets
  STRCMP_EQUAL("they are not planned there",
               answer(context.listeners("listen", 1).error()).c_str());
  STRCMP_EQUAL("they are planned for several shards",
               answer(context.listeners("listen").error()).c_str());
  STRCMP_EQUAL("each shard has its own",
               answer(context.counters<LineCounters>("lines").error()).c_str());
  STRCMP_EQUAL("they are not planned",
               answer(context.shard_counters<LineCounters>("lines", 1).error()).c_str());
}

TEST(PlacedServer, DrainsAsOne) {
  boot("");
  STRCMP_EQUAL("abc", connect(3).c_str());
  CHECK(appliance->drain());
  for (TestClient& client : clients) CHECK(client.is_closed());
  CHECK_EQUAL(0, counted("connections_open"));
}

TEST(PlacedServer, AShardThatIsNotThereOrIsNamedTwiceIsRefusedWhereItStands) {
  STRCMP_CONTAINS("configuration:3:11: no shard has the name \"far\"; expected one of: main, other",
                  appliance->plan(tables("shards = [\"far\"]\n")).c_str());
  appliance = std::make_unique<TestAppliance>(std::vector<Service*>{&lines});
  STRCMP_CONTAINS("configuration:3:19: element 2 of \"shards\" appears twice",
                  appliance->plan(tables("shards = [\"main\", \"main\"]\n")).c_str());
}
