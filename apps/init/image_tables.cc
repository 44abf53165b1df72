// The tables of an image's first process: the name of each key, its values, the variable that gets
// them, and its meaning; then the rules between keys.
#include <algorithm>
#include <span>

#include <sys/socket.h>

#include "apps/boot/messages_plan.h"
#include "apps/configuration/configuration_part.h"
#include "apps/configuration/configuration_words.h"
#include "apps/configuration/read_table.h"
#include "apps/init/image_settings.h"
#include "pinned_pool/layout.h"
#include "platform/assert.h"
#include "platform/text.h"
#include "transport/sockets/ip_address.h"

namespace bedplate {
namespace {

using Type = ConfigurationKey::Type;

// The kernel's core_pattern has 127 bytes, and contains more than this path (core_dump.cc).
constexpr uint64_t kDumpDeviceMax = 80;

constexpr Choice<MachineEnd> kMachineEnds[] = {{"reboot", MachineEnd::kReboot},
                                               {"power-off", MachineEnd::kPowerOff},
                                               {"halt", MachineEnd::kHalt}};
constexpr Choice<CrashDump> kCrashDumps[] = {
    {"none", CrashDump::kNone}, {"metadata", CrashDump::kMetadata}, {"owners", CrashDump::kOwners}};

void check_crash(ReadTable& table, const CrashSettings& crash) {
  if (table.was_refused("dump") || table.was_refused("owners")) return;
  if (crash.dump != CrashDump::kOwners && !crash.owners.empty()) {
    table.refuse_keys({"owners"}, "is only for dump = \"owners\"",
                      "leave it out, or set dump to \"owners\"");
  } else if (crash.dump == CrashDump::kOwners && crash.owners.empty()) {
    table.refuse("\"owners\" is missing in [crash]",
                 "expected list of owners: the segments that the dump keeps");
  }
  if (table.was_refused("device")) return;
  if (crash.dump == CrashDump::kNone) {
    table.refuse_keys({"device"}, "is only for a dump", "leave it out, or set \"dump\"");
  } else if (!table.has("device")) {
    table.refuse("\"device\" is missing in [crash]",
                 "expected path: the block device that a dump is written to; or dump = \"none\"");
  } else if (crash.device.find_first_of(" \t%") != std::string::npos) {
    // The kernel splits the command at blanks, and interprets %.
    table.refuse_value(
        "device",
        "\"device\" is " + quoted(crash.device) + ", which the kernel would not read as one word",
        "expected a path without blanks or %");
  }
}

}  // namespace

static void describe(ConfigurationTable& table, InitSettings& settings) {
  table.choice("on_terminate", &settings.on_terminate, kMachineEnds)
      .help("How the machine ends after SIGTERM to its first process, once it has drained.");
  table.choice("on_ctrl_alt_del", &settings.on_ctrl_alt_del, kMachineEnds)
      .help("The same after ctrl-alt-del (SIGINT).");
}

static void describe(ConfigurationTable& table, NetworkSettings& settings) {
  table.text("interface", &settings.interface, 1, kInterfaceNameMax)
      .required()
      .unique()
      .help("The interface's name; without udev that is the kernel's own: `eth0`, `eth1`.");
  table.ip_prefix("address", &settings.address)
      .otherwise("no address")
      .unique()
      .help("Its address and network: `\"192.0.2.10/24\"`.");
  table.ip_address("gateway", &settings.gateway)
      .otherwise("no gateway")
      .help("The router to all other networks.");
  table.integer("mtu", &settings.mtu, 68, 65535)
      .otherwise("the device's own")
      .help("The largest packet.");
  table.text("driver", &settings.driver, 1, kModuleNameMax)
      .help("The kernel module of the device; the image holds it and its dependencies.");
}

static void describe(ConfigurationTable& table, WatchdogSettings& settings) {
  table.path("device", &settings.device, 1, 255)
      .help("The watchdog device that is started and fed.");
  table.integer("timeout_s", &settings.timeout_s, 2, 3600)
      .help("The watchdog resets the machine when it is not fed for this long.");
  table.boolean("required", &settings.required)
      .help("Refuses to boot without the watchdog; if false, a line in the log says so.");
  table.text("driver", &settings.driver, 1, kModuleNameMax)
      .otherwise("part of the kernel")
      .help("The kernel module of the device.");
}

static void describe(ConfigurationTable& table, CrashSettings& settings) {
  table.choice("action", &settings.action, kMachineEnds)
      .help("How the machine ends after a crash, or when it cannot boot.");
  table.integer("delay_s", &settings.delay_s, 0, 3600)
      .help("How long the console shows the crash before that.");
  table.choice("dump", &settings.dump, kCrashDumps)
      .help("The part of the pool that is dumped: nothing, segment `boot` alone, or the "
            "segments in `owners`.");
  table.texts("owners", Type::kOwners, &settings.owners, kSegmentCountMax)
      .help("The segments that are dumped.");
  table.path("device", &settings.device, 1, kDumpDeviceMax)
      .otherwise("required for a dump")
      .help("The block device that a dump is written to, from its first byte on.");
  table.texts("drivers", Type::kModules, &settings.drivers, 8)
      .help(
          "The kernel modules of the block device and of pstore: `[\"virtio_blk\", \"ramoops\"]`.");
  table.check([&settings](ReadTable& read) { check_crash(read, settings); });
}

static void describe_image(ConfigurationTable& file, Configuration& all) {
  auto& settings = all.make_part<ImageSettings>(kImagePart);
  file.table("init", &settings.init);
  file.tables("network", &settings.networks, 0, 16);
  file.table("watchdog", &settings.watchdog, false, &settings.watchdog.enabled);
  file.table("crash", &settings.crash);
}

namespace {

// Checks the last of `all`, which is the [[network]] at `node`, against the earlier ones.
void check_network(ReadTable& file, const TomlNode& node, std::span<const NetworkSettings> all) {
  const TomlNode* gateway = find_child(node, "gateway");
  if (gateway == nullptr) return;
  const NetworkSettings& network = all.back();
  const auto address = parse_ip_prefix(network.address);
  const auto router = parse_ip_address(network.gateway);
  BP_ASSERT(router.has_value());  // the key takes only valid addresses
  // A link-local gateway can be reached from any address.
  const IpPrefix link_local = {{AF_INET6, {0xfe, 0x80}}, 10};
  const bool is_of_family = address && router->family == address->family;
  if (!is_of_family || !(address->contains(*router) || link_local.contains(*router))) {
    const std::string wrong = !address        ? "no address"
                              : !is_of_family ? "an address of the other family"
                                              : "the address " + quoted(network.address);
    return file.refuse_at(
        gateway->position,
        "\"gateway\" is " + quoted(network.gateway) + ", but the interface has " + wrong,
        "expected an \"address\" from which the gateway can be reached");
  }
  for (const NetworkSettings& other : all.first(all.size() - 1)) {
    const auto other_router = parse_ip_address(other.gateway);
    if (!other_router || other_router->family != router->family) continue;
    file.refuse_at(gateway->position,
                   "\"gateway\" " + quoted(network.gateway) +
                       " is the second of its address family: " + other.interface +
                       " has one already",
                   "expected one gateway for IPv4 and one for IPv6: leave out the others");
  }
}

void check_networks(ReadTable& file, const Configuration& configuration) {
  const std::vector<NetworkSettings>& all = image_settings(configuration).networks;
  if (file.was_refused("network.address") || file.was_refused("network.gateway")) return;
  const TomlNode* networks = find_child(file.node(), "network");
  if (networks == nullptr || networks->children.size() != all.size()) return;
  for (size_t i = 0; i < all.size(); ++i) {
    check_network(file, networks->children[i], std::span(all).first(i + 1));
  }
}

// Checks that the segments that a dump keeps exist.
Result<void> check_dump_owners(const Configuration& all,
                               const std::vector<SegmentRequest>& segments) {
  for (const std::string& text : image_settings(all).crash.owners) {
    const auto is_named = [&text](const SegmentRequest& segment) {
      return names_segment(text, segment.owner);
    };
    if (std::any_of(segments.begin(), segments.end(), is_named)) continue;
    std::string names;
    for (const SegmentRequest& segment : segments) add_word(&names, segment.owner.view());
    return configuration_error_while("keeping %s in a dump", text.c_str())
        .set_answer("this configuration has no such segment")
        .set_cure("owners in [crash] may name: %s", names.c_str());
  }
  return {};
}

}  // namespace
}  // namespace bedplate

extern "C" const bedplate::ConfigurationPart bedplate_init_tables;
const bedplate::ConfigurationPart bedplate_init_tables = {
    &bedplate::describe_image, &bedplate::check_networks, &bedplate::check_dump_owners};
