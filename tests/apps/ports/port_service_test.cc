// Ports in a configuration: their keys, the plan for them and for the sockets on them, and their
// errors. tests/system/ports_test.py runs ports.
#include "apps/ports/port_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "apps/ports/port_settings.h"
#include "apps/services/service_plan.h"
#include "pinned_pool/boot_segment.h"
#include "transport/dpdk/eal/eal.h"
#include "transport/dpdk/port/port.h"
#include "transport/sockets/datagram_network.h"

#include "CppUTest/TestHarness.h"
#include "apps/boot/loaded_configuration.h"

using namespace bedplate;

namespace {

// A service with sockets on a port.
struct SocketUser final : Service {
  const char* name() const noexcept override { return "user"; }
  void describe(ConfigurationTable& table) override {
    table.integer("sockets", &socket_count, 0, 100).help("How many.");
    table.integer("buffers", &buffer_count, 1, 1U << 20).help("Of each.");
    table.shard("shard", &shard).help("Where.");
  }
  Result<void> plan(ServicePlan& plan) override {
    for (uint32_t i = 0; i < socket_count; ++i) {
      const std::string socket = "s" + std::to_string(i);
      plan.datagram_socket(shard, socket.c_str(), {.buffer_count = buffer_count}, "wan");
    }
    return {};
  }

  uint32_t socket_count = 0;
  uint32_t buffer_count = 64;
  uint32_t shard = 0;
};

}  // namespace

TEST_GROUP(PortService) {
  DpdkService dpdk;
  std::optional<PortService> ports;
  SocketUser user;
  std::optional<Configuration> configuration;
  char text[1024];

  // Reads a configuration. Returns the first problem; "": none.
  std::string read(const std::string& tables) {
    ports.emplace(dpdk);
    user = {};
    Service* const services[] = {&dpdk, &*ports, &user};
    std::vector<Error> problems;
    configuration = parse_configuration("[appliance]\nname = \"a\"\n[pool]\nbytes = \"512 MiB\"\n"
                                        "pages = \"4 KiB\"\n"
                                        "[[shard]]\nname = \"main\"\ncpu = 0\n"
                                        "[[shard]]\nname = \"other\"\ncpu = 1\n" +
                                            tables,
                                        "f", services, &problems);
    return problems.empty() ? "" : format_error(problems[0], text, sizeof text);
  }
  // Returns the plan of a valid configuration.
  AppliancePlan plan(const std::string& tables) {
    STRCMP_EQUAL("", read(tables).c_str());
    configuration->pool.bytes = boot_segment_bytes() + 512 * kMiB;
    auto made = plan_appliance(*configuration);
    CHECK_TEXT(made.ok(), made.ok() ? "" : made.error().answer);
    return made.take();
  }
  std::string refusal(const std::string& tables) {
    STRCMP_EQUAL("", read(tables).c_str());
    const auto made = plan_appliance(*configuration);
    CHECK_FALSE(made.ok());
    return format_error(made.error(), text, sizeof text);
  }
  static uint64_t bytes_of(const AppliancePlan& plan, const char* owner) {
    for (const SegmentPlan& segment : plan.pool.segments) {
      if (segment.owner == OwnerName(owner)) return segment.carves.at(0).bytes;
    }
    return 0;
  }
};

TEST(PortService, ReadsEachPort) {
  STRCMP_EQUAL("", read("[[port]]\nname = \"wan\"\ndevice = \"null\"\n"
                        "addresses = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\n"
                        "gateways = [\"192.0.2.254\", \"fe80::1\"]\nshards = [\"other\"]\n"
                        "vlan = 7\nmtu = 9000\nrouter_advertisements = true\n"
                        "[[port]]\nname = \"lan\"\ndevice = \"memif:/run/x\"\nrole = \"server\"\n"
                        "[dpdk]\nheap_bytes = \"4 MiB\"\ntelemetry = true\n")
                       .c_str());
  LONGS_EQUAL(2, configuration->services.size());  // [dpdk] and both [[port]]
  CHECK(ports->datagram_network("wan") != nullptr);
  CHECK(ports->datagram_network("lan") != nullptr);
  CHECK(ports->datagram_network("dmz") == nullptr);
  CHECK_EQUAL(4 * kMiB, dpdk.settings().heap_bytes);
  CHECK(dpdk.settings().has_telemetry);
}

TEST(PortService, WhatMakesNoSenseIsRefusedWithItsPosition) {
  const std::string port = "[[port]]\nname = \"wan\"\n";
  STRCMP_CONTAINS("f:14:10: \"device\" is \"eth0\": this kind of device does not exist; expected "
                  "\"0000:03:00.0\"",
                  read(port + "device = \"eth0\"\n").c_str());
  STRCMP_CONTAINS("f:15:1: \"role\" is for a device \"memif:/PATH\"; leave it out",
                  read(port + "device = \"null\"\nrole = \"server\"\n").c_str());
  STRCMP_CONTAINS("\"192.0.3.1\" is not in the network of any address",
                  read(port + "device = \"null\"\naddresses = [\"192.0.2.1/24\"]\n"
                              "gateways = [\"192.0.3.1\"]\n")
                      .c_str());
  STRCMP_CONTAINS("\"192.0.2.3\" is the second of its family",
                  read(port + "device = \"null\"\naddresses = [\"192.0.2.1/24\"]\n"
                              "gateways = [\"192.0.2.2\", \"192.0.2.3\"]\n")
                      .c_str());
  STRCMP_CONTAINS("\"name\" \"wan\" is already used",
                  read(port + "device = \"null\"\n" + port + "device = \"ring:a\"\n").c_str());
}

TEST(PortService, ARingHasTwoPortsAndOtherDevicesOne) {
  const auto several = [](const std::string& device, int count) {
    std::string tables;
    for (int i = 0; i < count; ++i) {
      tables += "[[port]]\nname = \"p" + std::to_string(i) + "\"\ndevice = \"" + device + "\"\n";
    }
    return tables;
  };
  plan(several("ring:a", 2));
  plan(several("null", 3));
  STRCMP_CONTAINS("the device ring:a: 3 ports use it, p0 is the first of them; use it for two only",
                  refusal(several("ring:a", 3)).c_str());
  STRCMP_CONTAINS(
      "the device tap:x: 2 ports use it, p0 is the first of them; use it for one [[port]] only",
      refusal(several("tap:x", 2)).c_str());
}

TEST(PortService, ADeviceWithoutAnAddressHasTheSameAtEachStart) {
  PortSettings first, second;
  first.name = "wan";
  second.name = "lan";
  const rte_ether_addr one = port_mac(first, "a");
  CHECK(rte_is_valid_assigned_ether_addr(&one) != 0);
  CHECK(rte_is_local_admin_ether_addr(&one) != 0);
  const rte_ether_addr again = port_mac(first, "a");
  CHECK(rte_is_same_ether_addr(&one, &again) != 0);
  for (const rte_ether_addr& other : {port_mac(second, "a"), port_mac(first, "b")}) {
    CHECK(rte_is_same_ether_addr(&one, &other) == 0);
  }
  first.mac = "02:00:00:00:00:07";
  CHECK_EQUAL(7, port_mac(first, "a").addr_bytes[5]);
  const std::string port = "[[port]]\nname = \"wan\"\n";
  STRCMP_EQUAL("", read(port + "device = \"tap:x\"\nmac = \"02:00:00:00:00:07\"\n").c_str());
  for (const char* wrong : {"02:00:00:00:00", "01:00:00:00:00:07", "00:00:00:00:00:00"}) {
    STRCMP_CONTAINS("; expected a unicast address, such as 02:00:00:00:00:01",
                    read(port + "device = \"null\"\nmac = \"" + wrong + "\"\n").c_str());
  }
  STRCMP_CONTAINS(
      "\"mac\" is for a device that has none of its own; leave it out",
      read(port + "device = \"af_packet:eth0\"\nmac = \"02:00:00:00:00:07\"\n").c_str());
}

TEST(PortService, APortForwardsToAnotherThatIsThere) {
  const std::string first = "[[port]]\nname = \"wan\"\ndevice = \"null\"\n";
  const std::string second = "[[port]]\nname = \"lan\"\ndevice = \"ring:a\"\n";
  const auto made = plan(first + "forward_to = \"lan\"\n" + second);
  const auto has_packet_layer = [&](const char* instance) {
    const std::vector<CounterSet> sets = made.counters();
    return std::any_of(sets.begin(), sets.end(), [&](const CounterSet& set) {
      return set.name == "net" && set.instance == instance;
    });
  };
  CHECK_FALSE(has_packet_layer("wan/main"));
  CHECK(has_packet_layer("lan/main"));
  plan(first + "forward_to = \"lan\"\n" + second + "forward_to = \"wan\"\n");
  STRCMP_CONTAINS("the port wan: forward_to is \"lan\", which is not a port; name another [[port]]",
                  refusal(first + "forward_to = \"lan\"\n").c_str());
  STRCMP_CONTAINS("forward_to is \"wan\", the port itself",
                  refusal(first + "forward_to = \"wan\"\n").c_str());
  STRCMP_CONTAINS(
      "the second has no queue on a shard of the first",
      refusal(first + "forward_to = \"lan\"\n" + second + "shards = [\"main\"]\n").c_str());
  STRCMP_CONTAINS(
      "its port forwards all received frames to the port lan",
      refusal(first + "forward_to = \"lan\"\n" + second + "[user]\nsockets = 1\n").c_str());
  STRCMP_CONTAINS(
      "\"addresses\" is for a port that does not forward",
      read(first + "forward_to = \"lan\"\naddresses = [\"192.0.2.1/24\"]\n" + second).c_str());
}

TEST(PortService, MemoryOfEachPortIsInThePlan) {
  const AppliancePlan made =
      plan("[[port]]\nname = \"wan\"\ndevice = \"null\"\nbuffers = 16384\n"
           "[[port]]\nname = \"lan\"\ndevice = \"ring:a\"\nshards = [\"other\"]\n");
  CHECK_EQUAL(mbuf_shape(1500, 16384).bytes(), bytes_of(made, "buffers:wan"));
  CHECK(bytes_of(made, "buffers:lan") > 0);
  CHECK(bytes_of(made, "dpdk") >= eal_memory_bytes(8 * kMiB));
  LONGS_EQUAL(1, made.needs_on(0).sources);
  LONGS_EQUAL(2, made.needs_on(1).sources);
}

TEST(PortService, SocketsOnAPortHaveTheirBuffersThere) {
  const std::string port = "[[port]]\nname = \"wan\"\ndevice = \"null\"\n";
  const uint64_t alone = bytes_of(plan(port + "[user]\n"), "buffers:wan");
  const AppliancePlan made = plan(port + "[user]\nsockets = 3\nbuffers = 1000\n");
  const uint64_t with_sockets = bytes_of(made, "buffers:wan");
  CHECK_EQUAL(3000 * mbuf_shape(1500, 64).stride_bytes(), with_sockets - alone);
  // A second plan is the same.
  auto again = plan_appliance(*configuration);
  CHECK(again.ok());
  CHECK_EQUAL(with_sockets, bytes_of(again.value(), "buffers:wan"));
}

TEST(PortService, FewerBuffersThanAreNeededAreRefused) {
  STRCMP_CONTAINS("the port wan: it has 6000 buffers; set buffers to 8680 or more",
                  refusal("[[port]]\nname = \"wan\"\ndevice = \"null\"\nshards = [\"main\"]\n"
                          "buffers = 6000\n[user]\nsockets = 1\nbuffers = 3560\n")
                      .c_str());
}

TEST(PortService, ASocketWhereThePortHasNoQueueIsRefused) {
  STRCMP_CONTAINS("user: planning the datagram socket s0: the port wan has no queue on that shard; "
                  "add the shard to shards of the [[port]], or leave shards out",
                  refusal("[[port]]\nname = \"wan\"\ndevice = \"null\"\nshards = [\"main\"]\n"
                          "[user]\nsockets = 1\nshard = \"other\"\n")
                      .c_str());
}

TEST(PortService, APortSaysOnWhichShardsItIs) {
  plan("[[port]]\nname = \"wan\"\ndevice = \"null\"\nshards = [\"other\"]\n"
       "[[port]]\nname = \"lan\"\ndevice = \"ring:a\"\n");
  const DatagramNetwork& named = *ports->datagram_network("wan");
  CHECK(!named.is_on(0) && named.is_on(1));
  const DatagramNetwork& all = *ports->datagram_network("lan");
  CHECK(all.is_on(0) && all.is_on(1));
}

TEST(PortService, PortsOfTheKernelKeepTheRightToOpenThem) {
  CHECK_EQUAL(0, plan("[[port]]\nname = \"wan\"\ndevice = \"null\"\n").capabilities());
  CHECK(plan("[[port]]\nname = \"wan\"\ndevice = \"tap:x\"\n").capabilities() != 0);
}

TEST(PortService, EachPortSaysWhatStandsAgainstIt) {
  STRCMP_EQUAL("", read("[[port]]\nname = \"wan\"\ndevice = \"af_packet:no-such-if\"\n"
                        "[[port]]\nname = \"lan\"\ndevice = \"memif:/no/such/folder/a.sock\"\n"
                        "[[port]]\nname = \"dmz\"\ndevice = \"null\"\n")
                       .c_str());
  std::vector<Error> problems;
  ports->preflight(&problems);
  LONGS_EQUAL(2, problems.size());
  STRCMP_CONTAINS("of the port wan", problems[0].doing);
  STRCMP_CONTAINS("of the port lan", problems[1].doing);
}
