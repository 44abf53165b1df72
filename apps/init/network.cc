#include "apps/init/network.h"

#include <cerrno>
#include <net/if.h>

#include "apps/init/machine.h"
#include "platform/assert.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/text_words.h"
#include "transport/sockets/netlink.h"

namespace bedplate {
namespace {

std::string interface_names() {
  std::string names;
  struct if_nameindex* all = if_nameindex();
  for (auto* each = all; each != nullptr && each->if_index != 0; ++each) {
    names += (names.empty() ? "" : ", ") + std::string(each->if_name);
  }
  if_freenameindex(all);
  return names;
}

Result<uint32_t> wait_for_interface(const NetworkSettings& network) {
  uint32_t index = 0;
  const auto find = [&] { return (index = if_nametoindex(network.interface.c_str())) != 0; };
  if (wait_for_device(network.interface.c_str(), find)) return index;
  return error_while("looking for the interface %s", network.interface.c_str())
      .set_answer("it does not exist; there are: %s", interface_names().c_str())
      .set_cure("correct interface or driver (now %s) in [[network]]", network.driver.c_str());
}

const char* network_cure(int error_number) noexcept {
  switch (error_number) {
    case EINVAL:
    case ERANGE: return "set an mtu in [[network]] that the device accepts, or none";
    case EADDRNOTAVAIL: return "set an address in [[network]] that an interface may have";
    case EEXIST: return "give each [[network]] an address, and a gateway, of its own";
    case ENETUNREACH:
    case EHOSTUNREACH: return "name a gateway that lies in the address's network";
    case EPERM: return kGiveAllRights;
    default: return "see the kernel's messages above";
  }
}

Result<void> told(int outcome, const NetworkSettings& network, const char* what,
                  const std::string& value) {
  if (outcome == 0) return {};
  return error_while("%s %s of the interface %s", what, value.c_str(), network.interface.c_str())
      .set_answer_errno(outcome)
      .set_cure("%s", network_cure(outcome));
}

// Whether the link has a carrier. A NIC may take seconds to detect it after the link comes up, so a
// missing carrier is no error.
bool has_carrier(const NetworkSettings& network) {
  const std::string path = "/sys/class/net/" + network.interface + "/carrier";
  return read_number_file(path.c_str()) == 1;
}

Result<void> bring_up(NetlinkSocket& kernel, const NetworkSettings& network) {
  BP_TRY_ASSIGN(const uint32_t index, wait_for_interface(network));
  NetlinkMessage link = link_up_message(index, network.mtu);
  BP_TRY(told(kernel.request(link), network, "bringing up the link, MTU",
              network.mtu == 0 ? "unchanged," : std::to_string(network.mtu)));
  // The configuration accepts only texts that these functions can parse.
  const auto address = parse_ip_prefix(network.address);
  BP_ASSERT(address || network.address.empty());
  if (address) {
    NetlinkMessage message = address_message(index, *address);
    BP_TRY(told(kernel.request(message), network, "setting the address", network.address));
  }
  const auto gateway = parse_ip_address(network.gateway);
  BP_ASSERT(gateway || network.gateway.empty());
  if (gateway) {
    NetlinkMessage message = default_route_message(index, *gateway);
    BP_TRY(told(kernel.request(message), network, "setting the gateway", network.gateway));
  }
  BP_LOG_INFO("%s: up, %s%s%s%s", network.interface.c_str(),
              network.address.empty() ? "no address" : network.address.c_str(),
              network.gateway.empty() ? "" : ", gateway ", network.gateway.c_str(),
              has_carrier(network) ? "" : "; no carrier yet");
  return {};
}

// A line of /proc/net/tcp (proc(5)): number, both addresses, the state, and two queues. The queues
// of a listening socket count connections, not bytes.
void add_unsent(const char* line, void* into) noexcept {
  constexpr unsigned kListens = 0x0A;
  std::string_view rest(line);
  for (int i = 0; i < 3; ++i) take_word(&rest);
  if (take_number(&rest, kListens, 16) == kListens) return;
  *static_cast<uint64_t*>(into) += take_number<uint64_t>(&rest, 0, 16);
}

}  // namespace

uint64_t unsent_bytes() noexcept {
  uint64_t bytes = 0;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    [[maybe_unused]] const auto read = read_lines(path, &add_unsent, &bytes);
  }
  return bytes;
}

Result<void> bring_networks_up(const std::vector<NetworkSettings>& networks) {
  NetlinkSocket kernel;
  BP_TRY(kernel.create());
  NetworkSettings loopback;
  loopback.interface = "lo";
  NetlinkMessage up = link_up_message(if_nametoindex("lo"), 0);
  BP_TRY(told(kernel.request(up), loopback, "bringing up the link, MTU", "unchanged,"));
  for (const NetworkSettings& network : networks) BP_TRY(bring_up(kernel, network));
  return {};
}

}  // namespace bedplate
