#include "transport/verbs/device/verbs_ports.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/auxv.h>
#include <unistd.h>

// Registers the drivers with rdma-core and returns their names (verbs_drivers.cc). nullptr: the
// program was linked without them.
extern "C" [[gnu::weak]] const char* bedplate_static_drivers() noexcept;

namespace bedplate {
namespace {

// The first entry of a folder of sysfs, or "".
std::string first_entry(const char* path) {
  DIR* folder = opendir(path);
  if (folder == nullptr) return "";
  std::string name;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') {
      name = entry->d_name;
      break;
    }
  }
  closedir(folder);
  return name;
}

// Says why rdma-core finds no device.
Error no_device() {
  Error error = error_while("looking for RDMA devices");
  const std::string device = first_entry("/sys/class/infiniband");
  if (device.empty()) {
    const bool has_core = access("/sys/class/infiniband", F_OK) == 0;
    error.set_answer(
        "%s", has_core ? "the kernel has none" : "the kernel's module ib_core is not loaded");
    return error.set_cure("load the device's module (for soft RoCE rdma_rxe, then `rdma link add "
                          "rxe0 type rxe netdev eth0`), or do without verbs");
  }
  if (access("/sys/class/infiniband_verbs", F_OK) != 0) {
    error.set_answer("the kernel has %s, but its module ib_uverbs is not loaded", device.c_str());
    return error.set_cure("modprobe ib_uverbs");
  }
  error.set_answer("the kernel has %s, but none of the drivers in this program supports it",
                   device.c_str());
  return error.set_cure("use a device of these drivers (%s); /dev/infiniband must be readable",
                        verbs_drivers());
}

constexpr size_t kGidCountMax = 64;

// Ranks an address: RoCE v2 is routable if the IP address is; an IPv4 address was assigned by an
// administrator.
int rank(const ibv_gid_entry& entry) noexcept {
  if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) return entry.gid_type == IBV_GID_TYPE_IB ? 2 : 0;
  in6_addr address;
  std::memcpy(&address, entry.gid.raw, sizeof address);
  if (IN6_IS_ADDR_LINKLOCAL(&address)) return 1;
  return IN6_IS_ADDR_V4MAPPED(&address) ? 4 : 3;
}

// Whether an interface of this machine has the IP address of `gid`. For RoCE the kernel also lists
// an address that it derives from the hardware's: nothing can be sent from that address.
bool is_assigned(const ibv_gid& gid) noexcept {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return true;
  bool is_found = false;
  for (const ifaddrs* one = all; one != nullptr && !is_found; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    in6_addr address = {};
    if (one->ifa_addr->sa_family == AF_INET6) {
      address = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr;
    } else if (one->ifa_addr->sa_family == AF_INET) {
      address.s6_addr[10] = address.s6_addr[11] = 0xff;
      std::memcpy(&address.s6_addr[12],
                  &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, sizeof(in_addr));
    }
    is_found = std::memcmp(&address, gid.raw, sizeof address) == 0;
  }
  freeifaddrs(all);
  return is_found;
}

void find_gid(ibv_context* context, VerbsPort* port) {
  ibv_gid_entry entries[kGidCountMax];
  const ssize_t count = ibv_query_gid_table(context, entries, std::size(entries), 0);
  int best = -1;
  for (ssize_t i = 0; i < count; ++i) {
    if (entries[i].port_num != port->port || rank(entries[i]) <= best) continue;
    if (port->is_ethernet && !is_assigned(entries[i].gid)) continue;
    BP_DCHECK(entries[i].gid_index <= UINT8_MAX);  // the address handle has a byte for it
    best = rank(entries[i]);
    port->gid = entries[i].gid;
    port->gid_index = static_cast<uint8_t>(entries[i].gid_index);
    port->has_gid = true;
  }
}

void list_ports(ibv_context* context, const char* device, std::vector<VerbsPort>* ports) {
  ibv_device_attr attributes = {};
  if (ibv_query_device(context, &attributes) != 0) return;
  for (uint8_t number = 1; number <= attributes.phys_port_cnt; ++number) {
    ibv_port_attr state = {};
    if (ibv_query_port(context, number, &state) != 0) continue;
    VerbsPort port;
    port.device = device;
    port.port = number;
    port.is_active = state.state == IBV_PORT_ACTIVE;
    port.is_ethernet = state.link_layer == IBV_LINK_LAYER_ETHERNET;
    port.lid = state.lid;
    port.mtu = state.active_mtu;
    port.transfer_bytes_max = state.max_msg_sz;
    find_gid(context, &port);
    ports->push_back(port);
  }
}

}  // namespace

const char* verbs_drivers() noexcept {
  if (bedplate_static_drivers != nullptr) return bedplate_static_drivers();
  // A program without a dynamic linker cannot load drivers.
  const bool is_static = getauxval(AT_BASE) == 0;
  return is_static ? "none, link with -Wl,-u,bedplate_static_drivers" : "those of the system";
}

uint8_t find_gid_index(ibv_context* context, const VerbsPort& port) noexcept {
  ibv_gid_entry entries[kGidCountMax];
  const ssize_t count = ibv_query_gid_table(context, entries, std::size(entries), 0);
  for (ssize_t i = 0; i < count; ++i) {
    const bool is_same = entries[i].port_num == port.port &&
                         std::memcmp(&entries[i].gid, &port.gid, sizeof port.gid) == 0;
    if (is_same && entries[i].gid_type != IBV_GID_TYPE_ROCE_V1) {
      return static_cast<uint8_t>(entries[i].gid_index);
    }
  }
  return port.gid_index;
}

ibv_mtu active_mtu(ibv_context* context, const VerbsPort& port) noexcept {
  ibv_port_attr state = {};
  return ibv_query_port(context, port.port, &state) == 0 ? state.active_mtu : port.mtu;
}

std::string VerbsPort::text() const {
  char address[INET6_ADDRSTRLEN] = "no address";
  if (has_gid) inet_ntop(AF_INET6, gid.raw, address, sizeof address);
  char text[160];
  std::snprintf(text, sizeof text, "%s port %u, %s, MTU %u%s", device.c_str(), port, address,
                mtu_bytes(mtu), is_active ? "" : ", down");
  return text;
}

Result<std::vector<VerbsPort>> list_verbs_ports() {
  (void)verbs_drivers();  // registers the drivers with rdma-core
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  std::vector<VerbsPort> ports;
  for (int i = 0; i < count; ++i) {
    ibv_context* context = ibv_open_device(devices[i]);
    if (context == nullptr) continue;
    list_ports(context, ibv_get_device_name(devices[i]), &ports);
    ibv_close_device(context);
  }
  if (devices != nullptr) ibv_free_device_list(devices);
  if (ports.empty()) return no_device();
  return ports;
}

Result<VerbsPort> choose_verbs_port(const std::string& device, uint8_t port) {
  auto ports = list_verbs_ports();
  if (!ports.ok()) return ports.error();
  const VerbsPort* near_miss = nullptr;
  std::string names;
  for (const VerbsPort& candidate : ports.value()) {
    names += (names.empty() ? "" : "; ") + candidate.text();
    if (!device.empty() && candidate.device != device) continue;
    if (port != 0 && candidate.port != port) continue;
    if (candidate.is_usable()) return candidate;
    near_miss = &candidate;
  }
  Error error;
  if (near_miss == nullptr) {
    if (device.empty()) error.set_doing("looking for an RDMA device with a port %u", port);
    else if (port == 0) error.set_doing("looking for the RDMA device %s", device.c_str());
    else error.set_doing("looking for the RDMA device %s, port %u", device.c_str(), port);
    error.set_answer("there are: %s", names.c_str());
    return error.set_cure("name one of these, or none to use the first that is usable");
  }
  error.set_doing("using the RDMA device %s, port %u", near_miss->device.c_str(), near_miss->port);
  if (!near_miss->is_active) {
    error.set_answer("the port is down");
    return error.set_cure("bring the link up (for RoCE: ip link set ... up)");
  }
  error.set_answer("it has no address");
  return error.set_cure("give its network interface an IP address (for InfiniBand: start a subnet "
                        "manager)");
}

}  // namespace bedplate
