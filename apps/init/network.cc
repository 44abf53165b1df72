#include "apps/init/network.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <net/if.h>

#include "apps/init/netlink.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// A driver may find its devices after its module was loaded.
constexpr uint64_t kInterfaceWaitNs = 5 * kNsPerSecond;
constexpr long kInterfacePollNs = 5 * static_cast<long>(kNsPerMs);

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
  const uint64_t deadline_ns = monotonic_ns() + kInterfaceWaitNs;
  for (;;) {
    const uint32_t index = if_nametoindex(network.interface.c_str());
    if (index != 0) return index;
    if (monotonic_ns() >= deadline_ns) break;
    const timespec pause = {0, kInterfacePollNs};
    nanosleep(&pause, nullptr);
  }
  Error error;
  error.set_doing("looking for the interface %s", network.interface.c_str());
  error.set_answer("there is none of this name; there are: %s", interface_names().c_str());
  return error.set_cure("correct interface or driver (now %s) in [[network]]",
                        network.driver.c_str());
}

Result<void> told(int outcome, const NetworkSettings& network, const char* what,
                  const std::string& value) {
  if (outcome == 0) return {};
  Error error;
  error.set_doing("%s %s of the interface %s", what, value.c_str(), network.interface.c_str());
  error.set_answer_errno(outcome);
  return error.set_cure("correct its table [[network]]");
}

Result<void> bring_up(NetlinkSocket& kernel, const NetworkSettings& network) {
  auto found = wait_for_interface(network);
  BP_TRY(found);
  const uint32_t index = found.value();
  NetlinkMessage link = link_up_message(index, network.mtu);
  BP_TRY(told(kernel.request(link), network, "bringing up the link, MTU",
              network.mtu == 0 ? "as it is," : std::to_string(network.mtu)));
  // The parser let pass what these can read.
  if (const auto address = parse_ip_prefix(network.address)) {
    NetlinkMessage message = address_message(index, *address);
    BP_TRY(told(kernel.request(message), network, "setting the address", network.address));
  }
  if (const auto gateway = parse_ip_address(network.gateway)) {
    NetlinkMessage message = default_route_message(index, *gateway);
    BP_TRY(told(kernel.request(message), network, "setting the gateway", network.gateway));
  }
  BP_LOG_INFO("%s: up, %s%s%s", network.interface.c_str(),
              network.address.empty() ? "no address" : network.address.c_str(),
              network.gateway.empty() ? "" : " by way of ", network.gateway.c_str());
  return {};
}

}  // namespace

Result<void> bring_networks_up(const std::vector<NetworkSettings>& networks) {
  NetlinkSocket kernel;
  BP_TRY(kernel.create());
  NetworkSettings loopback;
  loopback.interface = "lo";
  NetlinkMessage up = link_up_message(if_nametoindex("lo"), 0);
  BP_TRY(told(kernel.request(up), loopback, "bringing up the link, MTU", "as it is,"));
  for (const NetworkSettings& network : networks) BP_TRY(bring_up(kernel, network));
  return {};
}

}  // namespace bedplate
