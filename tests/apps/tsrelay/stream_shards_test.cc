// The choice of the shard that serves a stream, and the refusal of streams that no shard can serve.
#include "apps/tsrelay/stream_shards.h"

#include <string>
#include <vector>

#include "apps/boot/loaded_configuration.h"
#include "apps/tsrelay/relay_service.h"
#include "tests/apps/boot/service_rig.h"
#include "transport/sockets/datagram_network.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

using Chosen = std::vector<uint32_t>;

// A network for sockets on the last of four shards.
struct LastShardNetwork final : DatagramNetwork {
  Result<void> plan_socket(uint32_t, const DatagramShape&) override { return {}; }
  Result<DatagramSocket*> make_socket(uint32_t, const DatagramShape&) override { return Error{}; }
  bool is_on(uint32_t shard) const noexcept override { return shard == 3; }
};

}  // namespace

TEST_GROUP(StreamShards) {
  LastShardNetwork network;
  service_rig::TestService port{"port"};
  RelayService relay;
  Configuration configuration;
  RelaySettings settings;

  void setup() override {
    port.network = &network;
    configuration.shards = {{"a", 0}, {"b", 1}, {"c", 2}, {"d", 3}};
    configuration.services = {&port, &relay};
  }
  // A stream with one leg and so many outputs.
  RelayStreamSettings& add(uint64_t rate_bytes, size_t output_count) {
    RelayStreamSettings& stream = settings.streams.emplace_back();
    stream.name = "s" + std::to_string(settings.streams.size());
    stream.rate_bytes = rate_bytes;
    stream.legs.push_back({.address = "127.0.0.1:5004"});
    for (size_t i = 0; i < output_count; ++i) stream.outputs.push_back({.to = "127.0.0.1:6004"});
    return stream;
  }
  Chosen chosen() {
    auto made = choose_stream_shards(settings, configuration, relay);
    CHECK_TEXT(made.ok(), made.ok() ? "" : made.error().answer);
    return made.take();
  }
  std::string refusal() {
    const auto made = choose_stream_shards(settings, configuration, relay);
    if (made.ok()) return "";
    CHECK(made.error().kind == ErrorKind::kConfiguration);
    char text[1024];
    return format_error(made.error(), text, sizeof text);
  }
  // Reads a file with these lines in [tsrelay], and `shards` into the settings. Returns the first
  // problem; "": none.
  std::string problem(const std::string& lines, const std::string& stream_lines = "") {
    RelayService reader;
    Service* const services[] = {&reader};
    std::vector<Error> problems;
    (void)parse_configuration("[appliance]\nname = \"a\"\n[pool]\nbytes = \"256 MiB\"\n"
                              "[[shard]]\nname = \"a\"\ncpu = 0\n[[shard]]\nname = \"b\"\ncpu = 1\n"
                              "[tsrelay]\n" +
                                  lines + "[[tsrelay.stream]]\nname = \"news\"\n" + stream_lines +
                                  "[[tsrelay.stream.leg]]\naddress = \"127.0.0.1:5004\"\n",
                              "f", services, &problems);
    settings.shards = reader.settings().shards;
    char text[1024];
    return problems.empty() ? "" : format_error(problems[0], text, sizeof text);
  }
};

TEST(StreamShards, LoadIsTheBytesThatComeAndGo) {
  RelayStreamSettings& stream = add(1000, 3);
  CHECK_EQUAL(4000, stream.load_bytes());
  stream.legs.push_back({.address = "127.0.0.1:5006"});
  stream.recordings.emplace_back();
  stream.readers = 2;
  CHECK_EQUAL(8000, stream.load_bytes());
}

TEST(StreamShards, StreamsAreSpreadByLoad) {
  settings.shards = {2, 1};
  add(1000, 1);
  add(1000, 9);
  add(4000, 1);
  CHECK((chosen() == Chosen{1, 2, 1}));
  CHECK(chosen() == chosen());
}

TEST(StreamShards, AllShardsServeUnlessSomeAreNamed) {
  for (int i = 0; i < 5; ++i) add(1000, 1);
  CHECK((chosen() == Chosen{0, 1, 2, 3, 0}));
  configuration.shards.resize(1);
  CHECK((chosen() == Chosen{0, 0, 0, 0, 0}));
}

TEST(StreamShards, AStreamMayNameAShard) {
  settings.shards = {0, 1};
  add(1000, 1).shard = 0;
  add(1000, 1).shard = 2;
  add(1000, 1);
  CHECK((chosen() == Chosen{0, 2, 1}));
}

TEST(StreamShards, StreamsWithReadersAreWhereProcessesReachThem) {
  add(1000, 1);
  add(1000, 1).readers = 1;
  CHECK((chosen() == Chosen{1, 0}));
  settings.shards = {1, 2};
  STRCMP_EQUAL("checking readers of the stream s2 in [tsrelay]: processes reach the first shard "
               "alone, and shards in [tsrelay] lacks it; add it there, or set shard in the "
               "[[tsrelay.stream]]",
               refusal().c_str());
  settings.streams[1].shard = 2;  // for services on other shards
  CHECK((chosen() == Chosen{1, 2}));
}

TEST(StreamShards, AStreamIsWhereItsNetworksAre) {
  add(1000, 1).legs[0].network = "wan";
  add(1000, 1).outputs[0].network = "wan";
  add(1000, 1).legs[0].network = "unknown";
  CHECK((chosen() == Chosen{3, 3, 0}));
  settings.shards = {0, 1};
  STRCMP_EQUAL("checking network of the stream s1 in [tsrelay]: no shard that may serve it has "
               "queues of all its networks; add such a shard to shards of each [[port]] that it "
               "names",
               refusal().c_str());
  settings.streams[0].shard = settings.streams[1].shard = 3;
  CHECK((chosen() == Chosen{3, 3, 0}));
  settings.streams[1].shard = 1;
  STRCMP_EQUAL("checking shard = \"b\" of the stream s2 in [tsrelay]: its network wan has no queue "
               "on this shard; add it to shards of the [[port]] wan, or choose another",
               refusal().c_str());
}

TEST(StreamShards, ShardsThatMakeNoSenseAreRefused) {
  STRCMP_EQUAL("", problem("").c_str());
  STRCMP_EQUAL("", problem("shards = \"all\"\n").c_str());
  STRCMP_EQUAL("", problem("shards = [\"b\", \"a\"]\n", "shard = \"b\"\n").c_str());
  CHECK((settings.shards == Chosen{1, 0}));
  STRCMP_CONTAINS("no shard has the name \"c\"; expected one of: a, b",
                  problem("shards = [\"a\", \"c\"]\n").c_str());
  STRCMP_CONTAINS("element 2 of \"shards\" appears twice",
                  problem("shards = [\"a\", \"a\"]\n").c_str());
  STRCMP_CONTAINS("no shard has the name \"c\"", problem("", "shard = \"c\"\n").c_str());
  STRCMP_CONTAINS("\"rate_bytes\"", problem("", "rate_bytes = 0\n").c_str());
}
