#include "transport/dpdk/port/port_device.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include <fcntl.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "platform/file.h"
#include "transport/dpdk/eal/drivers.h"
#include "transport/dpdk/eal/pci_drivers.h"
#include "transport/vfio/pci_device.h"

namespace bedplate {
namespace {

using Kind = PortDevice::Kind;

struct KindWord {
  Kind kind;
  const char* word;  // before the colon
  const char* driver;
  size_t argument_max;  // bytes; 0: no argument
};
constexpr size_t kInterfaceMax = IFNAMSIZ - 1;
constexpr KindWord kWords[] = {{Kind::kAfPacket, "af_packet", "af_packet", kInterfaceMax},
                               {Kind::kAfXdp, "af_xdp", "af_xdp", kInterfaceMax},
                               {Kind::kTap, "tap", "tap", kInterfaceMax},
                               {Kind::kMemif, "memif", "memif", 107},  // sun_path
                               {Kind::kRing, "ring", "ring", 16},
                               {Kind::kNull, "null", "null", 0}};

const KindWord* word_of(Kind kind) noexcept {
  const auto* found = std::find_if(std::begin(kWords), std::end(kWords),
                                   [kind](const KindWord& word) { return word.kind == kind; });
  return found == std::end(kWords) ? nullptr : found;
}

Error refused(std::string_view text, const char* answer) {
  return configuration_error_while(
             "device \"%.*s\"", static_cast<int>(std::min(text.size(), size_t{120})), text.data())
      .set_answer("%s", answer)
      .set_cure(
          "expected \"0000:03:00.0\" (domain, bus, device and function of PCI), "
          "\"af_packet:eth0\", \"af_xdp:eth0\", \"tap:NAME\", \"memif:/PATH\", \"ring:NAME\" or "
          "\"null\"");
}

Error problem_of(const std::string& port, const PortDevice& device) {
  return error_while("looking for the device %s of the port %s", device.text().c_str(),
                     port.c_str());
}

// The runtime checks for all services that the device exists and which driver has it
// (ServicePlan::vfio_device).
void look_at_pci(const std::string& port, const PortDevice& device, std::vector<Error>* problems,
                 const std::string& root) {
  auto identity = read_pci_identity(device.argument, root);
  if (!identity.ok() || has_pci_driver(identity.value())) return;
  problems->push_back(
      problem_of(port, device)
          .set_answer("it is a %04x:%04x, for which no driver is linked in; linked in are: %s",
                      identity.value().vendor, identity.value().device, dpdk_drivers())
          .set_cure("build with its driver in DRIVERS, if DPDK has one"));
}

void look_at_interface(const std::string& port, const PortDevice& device,
                       std::vector<Error>* problems) {
  Error problem = problem_of(port, device);
  const char* name = device.argument.c_str();
  if (if_nametoindex(name) == 0) {
    problems->push_back(problem.set_answer("there is no such network interface")
                            .set_cure("name one that `ip link` lists"));
    return;
  }
  const Fd socket_fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!socket_fd.is_open()) {
    problems->push_back(problem.set_answer_errno(errno).set_cure(
        "run as root, or with the capabilities CAP_NET_RAW and CAP_NET_ADMIN"));
    return;
  }
  ifreq request = {};
  device.argument.copy(request.ifr_name, kInterfaceMax);
  if (ioctl(socket_fd.number(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) == 0) {
    problems->push_back(problem.set_answer("the network interface %s is down", name)
                            .set_cure("ip link set %s up", name));
  }
}

}  // namespace

const char* PortDevice::driver() const noexcept {
  const KindWord* word = word_of(kind);
  return word == nullptr ? "" : word->driver;
}

std::string PortDevice::text() const {
  const KindWord* word = word_of(kind);
  if (word == nullptr) return argument;
  return argument.empty() ? word->word : std::string(word->word) + ":" + argument;
}

Result<PortDevice> parse_port_device(std::string_view text) {
  if (is_pci_address(text)) return PortDevice{Kind::kPci, std::string(text)};
  const size_t colon = text.find(':');
  const std::string_view head = text.substr(0, colon);
  const auto* word = std::find_if(std::begin(kWords), std::end(kWords),
                                  [head](const KindWord& one) { return one.word == head; });
  if (word == std::end(kWords)) return refused(text, "this kind of device does not exist");
  const bool has_argument = colon != std::string_view::npos;
  const std::string_view argument = has_argument ? text.substr(colon + 1) : "";
  if (has_argument != (word->argument_max > 0)) {
    return refused(text, has_argument ? "this kind of device has no name or path"
                                      : "its name or path is missing");
  }
  if (has_argument && (argument.empty() || argument.size() > word->argument_max)) {
    return refused(text, argument.empty() ? "its name or path is missing" : "it is too long");
  }
  // These characters have a meaning to DPDK or the kernel.
  if (argument.find_first_of(", =[]\"'\t") != std::string_view::npos) {
    return refused(text, "it contains a space, a comma or a similar character");
  }
  if (word->kind == Kind::kMemif ? !argument.starts_with('/')
                                 : argument.find('/') != std::string_view::npos) {
    return refused(text, word->kind == Kind::kMemif ? "the path does not begin with /"
                                                    : "a name must not contain /");
  }
  return PortDevice{word->kind, std::string(argument)};
}

void look_at_port_device(const std::string& port, const PortDevice& device, bool is_memif_server,
                         std::vector<Error>* problems, const std::string& root) {
  const char* driver = device.driver();
  if (driver[0] != '\0' && !has_dpdk_driver(driver)) {
    problems->push_back(
        problem_of(port, device)
            .set_answer("the driver %s is not linked in; linked in are: %s", driver, dpdk_drivers())
            .set_cure("build with %s in DRIVERS", driver));
    return;
  }
  switch (device.kind) {
    case Kind::kPci: return look_at_pci(port, device, problems, root);
    case Kind::kAfPacket:
    case Kind::kAfXdp: return look_at_interface(port, device, problems);
    case Kind::kTap: {
      const Fd node(open("/dev/net/tun", O_RDWR | O_CLOEXEC));
      if (node.is_open()) return;
      problems->push_back(
          problem_of(port, device)
              .set_answer_errno(errno)
              .set_cure("modprobe tun, and let the appliance's user open /dev/net/tun"));
      return;
    }
    case Kind::kMemif: {
      // A server makes its socket in the folder; a client connects to one there.
      const std::string folder = device.argument.substr(0, device.argument.rfind('/') + 1);
      if (access(folder.c_str(), is_memif_server ? W_OK | X_OK : X_OK) == 0) return;
      problems->push_back(problem_of(port, device)
                              .set_answer_errno(errno)
                              .set_cure("mkdir -p %s, and let the user of the appliance %s it",
                                        folder.c_str(), is_memif_server ? "write to" : "enter"));
      return;
    }
    case Kind::kRing:
    case Kind::kNull: return;
  }
}

}  // namespace bedplate
