#include "apps/ports/port_settings.h"

#include <algorithm>

#include <sys/socket.h>
#include <rte_ether.h>

#include "apps/configuration/configuration.h"
#include "apps/configuration/configuration_table.h"
#include "apps/configuration/configuration_words.h"
#include "apps/configuration/read_table.h"
#include "platform/assert.h"
#include "transport/dpdk/port/mbuf_pool.h"
#include "transport/sockets/ip_address.h"

namespace bedplate {
namespace {

constexpr Choice<MemifRole> kRoles[] = {{"client", MemifRole::kClient},
                                        {"server", MemifRole::kServer}};

void check_device(ReadTable& table, PortSettings& settings) {
  if (table.was_refused("device")) return;
  auto device = parse_port_device(settings.device_text);
  if (!device.ok()) {
    return table.refuse_value(
        "device", "\"device\" is " + quoted(settings.device_text) + ": " + device.error().answer,
        device.error().cure);
  }
  settings.device = device.take();
  if (settings.device.kind != PortDevice::Kind::kMemif) {
    table.refuse_keys({"role"}, "is for a device \"memif:/PATH\"", "leave it out");
  }
}

// Checks that each family has at most one gateway, and that it is in the network of an address.
void check_gateways(ReadTable& table, const PortSettings& settings) {
  if (table.was_refused("gateways") || table.was_refused("addresses")) return;
  const IpPrefix link_local = {{AF_INET6, {0xfe, 0x80}}, 10};
  int known = 0;
  for (const std::string& text : settings.gateways) {
    const auto gateway = parse_ip_address(text);
    BP_ASSERT(gateway.has_value());  // the key accepts only valid addresses
    if (gateway->family == known) {
      return table.refuse_value("gateways", quoted(text) + " is the second of its family",
                                "expected one for IPv4 and one for IPv6");
    }
    known = gateway->family;
    const bool is_near =
        (link_local.contains(*gateway)) ||
        std::any_of(settings.addresses.begin(), settings.addresses.end(), [&](const auto& one) {
          const auto prefix = parse_ip_prefix(one);
          BP_ASSERT(prefix.has_value());
          return prefix->family == gateway->family && prefix->contains(*gateway);
        });
    if (is_near) continue;
    table.refuse_value("gateways", quoted(text) + " is not in the network of any address",
                       "expected one that can be reached from an address of the port");
  }
}

void check_mac(ReadTable& table, const PortSettings& settings) {
  if (settings.mac.empty() || table.was_refused("device")) return;
  if (settings.device.has_address()) {
    return table.refuse_keys({"mac"}, "is for a device that has none of its own", "leave it out");
  }
  rte_ether_addr mac = {};
  if (rte_ether_unformat_addr(settings.mac.c_str(), &mac) == 0 &&
      rte_is_valid_assigned_ether_addr(&mac) != 0) {
    return;
  }
  table.refuse_value("mac", "\"mac\" is " + quoted(settings.mac),
                     "expected a unicast address, such as 02:00:00:00:00:01");
}

}  // namespace

// Stable across starts and different for each port: 40 bits of a hash (FNV-1a) of the names.
rte_ether_addr port_mac(const PortSettings& settings, const std::string& appliance) {
  rte_ether_addr mac = {};
  if (!settings.mac.empty()) {
    const bool is_read = rte_ether_unformat_addr(settings.mac.c_str(), &mac) == 0;
    BP_ASSERT(is_read);  // check_mac() refuses invalid text
    return mac;
  }
  uint64_t hash = 0xcbf29ce484222325;
  for (const char one : appliance + "/" + settings.name) {
    hash = (hash ^ static_cast<unsigned char>(one)) * 0x100000001b3;
  }
  mac.addr_bytes[0] = 2;  // locally administered
  for (size_t i = 1; i < sizeof mac.addr_bytes; ++i) {
    mac.addr_bytes[i] = static_cast<uint8_t>(hash >> (8 * i));
  }
  return mac;
}

void describe(ConfigurationTable& table, PortSettings& settings) {
  table.name("name", &settings.name, 1, PortSettings::kNameMax)
      .required()
      .unique()
      .help("The port's name, in `network = ...` of services and in counters.");
  table.text("device", &settings.device_text, 1, 128)
      .required()
      .help("`0000:03:00.0` (PCI, bound to vfio-pci), `af_packet:INTERFACE`, "
            "`af_xdp:INTERFACE`, `tap:NAME`, `memif:/PATH`, `ring:NAME` (two ports of one name "
            "send to one another) or `null`; any other device is for one port only. See "
            "[Devices](ports.md#devices).");
  table.choice("role", &settings.role, Choices<MemifRole>(kRoles))
      .help("With memif: the side that listens at the path.");
  table.shards("shards", &settings.shards, kShardCountMax)
      .otherwise("all shards")
      .help("The shards that use the port; each has a queue of its own.");
  table
      .texts("addresses", ConfigurationKey::Type::kIpPrefixes, &settings.addresses,
             PortSettings::kAddressesMax)
      .help("Its addresses and their networks: `[\"192.0.2.10/24\", \"2001:db8::10/64\"]`. It "
            "has a link-local address (fe80::) by itself.");
  table.texts("gateways", ConfigurationKey::Type::kIpAddresses, &settings.gateways, 2)
      .help("The routers to all other networks, one of each family.");
  table.text("mac", &settings.mac, 0, 17)
      .otherwise("the device's, or one made from the names of appliance and port")
      .help("Its Ethernet address, if the device has none of its own.");
  table.boolean("router_advertisements", &settings.takes_routers)
      .help("Accepts IPv6 routers that announce themselves, if no gateway is named.");
  table.integer("vlan", &settings.vlan, 0, 4094).help("The VLAN tag of all its frames. 0: none.");
  table.integer("mtu", &settings.mtu_bytes, 1280, 9600)
      .help("The longest packet; each buffer holds a frame of this size.");
  table.integer("buffers", &settings.buffer_count, 64, kMbufCountMax)
      .otherwise("what its queues and sockets need")
      .help("The number of its buffers, including those that services hold.");
  table.integer("descriptors", &settings.descriptor_count, 64, 8192)
      .rule(ConfigurationKey::Rule::kPowerOfTwo)
      .help("The number of frames in each queue, in each direction. A device may have its own "
            "limits.");
  table.integer("waiting_datagrams", &settings.waiting_count, 8, 16384)
      .help("The most datagrams on each shard that wait for the Ethernet address of their "
            "destination; beyond that the oldest are dropped.");
  table.integer("idle_poll_us", &settings.idle_poll_us, 10, 100'000)
      .help("The longest sleep of an idle shard between two polls of the port, if the device "
            "cannot wake it.");
  table.text("forward_to", &settings.forwards_to, 0, PortSettings::kNameMax)
      .help("Another port, which sends all frames that this one receives, without a copy; this "
            "port then has no addresses and no sockets.");
  table.check([&settings](ReadTable& read) {
    check_device(read, settings);
    check_gateways(read, settings);
    check_mac(read, settings);
    if (settings.forwards_to.empty()) return;
    read.refuse_keys(
        {"addresses", "gateways", "router_advertisements", "vlan", "waiting_datagrams"},
        "is for a port that does not forward", "leave it out, or forward_to");
  });
}

void describe(ConfigurationTable& table, DpdkSettings& settings) {
  table.size("heap_bytes", &settings.heap_bytes, 0, kGiB)
      .rule(ConfigurationKey::Rule::kMultipleOf4KiB)
      .help("Additional memory for DPDK, for drivers that need more than is planned for ports.");
  table.boolean("telemetry", &settings.has_telemetry)
      .help("Enables DPDK's own telemetry: a socket in its directory in /run/dpdk, a thread for "
            "it, and one for each client.");
}

}  // namespace bedplate
