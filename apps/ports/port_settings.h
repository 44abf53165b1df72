// [[port]] and [dpdk] of the configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rte_ether.h>

#include "transport/dpdk/port/port_device.h"

namespace bedplate {

enum class MemifRole : uint8_t { kClient, kServer };

struct PortSettings {
  static constexpr uint32_t kNameMax = 16;
  static constexpr uint32_t kAddressesMax = 8;

  std::string name;
  std::string device_text;
  PortDevice device;  // parsed from device_text
  MemifRole role = MemifRole::kClient;
  std::vector<uint32_t> shards;  // empty: all
  std::vector<std::string> addresses;
  std::vector<std::string> gateways;
  std::string mac;  // empty: the device's own, or generated from the names
  bool takes_routers = false;
  uint16_t vlan = 0;
  uint32_t mtu_bytes = 1500;
  std::optional<uint32_t> buffer_count;  // nothing: as many as queues and sockets need
  uint32_t descriptor_count = 1024;
  uint32_t waiting_count = 512;
  uint32_t idle_poll_us = 10000;
  std::string forwards_to;  // a port; empty: this port has a packet layer
};

struct DpdkSettings {
  uint64_t heap_bytes = 0;  // in addition to the computed need of ports
  bool has_telemetry = false;
};

// The address for a device without its own: settings.mac, or one generated from both names.
rte_ether_addr port_mac(const PortSettings& settings, const std::string& appliance);

class ConfigurationTable;
void describe(ConfigurationTable& table, PortSettings& settings);
void describe(ConfigurationTable& table, DpdkSettings& settings);

}  // namespace bedplate
