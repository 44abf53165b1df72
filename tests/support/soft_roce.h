// A soft RoCE device on the loopback interface, and the kernel's counts of its resources.
//
// If the kernel has no RDMA (most build machines), tests skip; the guest has the modules
// (tests/guest). This file sends the netlink messages of `rdma link add` and `rdma resource show`.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <rdma/rdma_netlink.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "platform/file.h"
#include "transport/verbs/device/verbs_ports.h"

namespace bedplate::test {

// One request to the kernel's RDMA part, and its answers.
class RdmaNetlink {
 public:
  explicit RdmaNetlink(uint16_t command, uint16_t flags) {
    header().nlmsg_type = static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
    header().nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    header().nlmsg_len = NLMSG_LENGTH(0);
  }
  void add(uint16_t type, const void* value, size_t bytes) {
    auto* attribute = reinterpret_cast<nlattr*>(request_ + NLMSG_ALIGN(header().nlmsg_len));
    attribute->nla_type = type;
    attribute->nla_len = static_cast<uint16_t>(NLA_HDRLEN + bytes);
    std::memcpy(reinterpret_cast<char*>(attribute) + NLA_HDRLEN, value, bytes);
    header().nlmsg_len =
        static_cast<uint32_t>(NLMSG_ALIGN(header().nlmsg_len) + NLA_ALIGN(NLA_HDRLEN + bytes));
  }
  void add(uint16_t type, const char* text) { add(type, text, std::strlen(text) + 1); }

  // Calls `attribute(type, data, bytes)` for each attribute of each answer, also of nested ones.
  // Returns whether the kernel accepted the request.
  template <typename Function>
  bool ask(Function attribute) {
    Fd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
    if (!fd.is_open()) return false;
    if (send(fd.number(), request_, header().nlmsg_len, 0) < 0) return false;
    static char answer[65536];
    const ssize_t bytes = recv(fd.number(), answer, sizeof answer, 0);
    if (bytes < static_cast<ssize_t>(sizeof(nlmsghdr))) return false;
    const auto* reply = reinterpret_cast<const nlmsghdr*>(answer);
    if (reply->nlmsg_type == NLMSG_ERROR) {
      return reinterpret_cast<const nlmsgerr*>(answer + NLMSG_HDRLEN)->error == 0;
    }
    walk(answer + NLMSG_HDRLEN, static_cast<size_t>(bytes) - NLMSG_HDRLEN, attribute);
    return true;
  }

 private:
  nlmsghdr& header() { return *reinterpret_cast<nlmsghdr*>(request_); }

  template <typename Function>
  static void walk(const char* data, size_t bytes, Function& function) {
    while (bytes >= NLA_HDRLEN) {
      const auto* attribute = reinterpret_cast<const nlattr*>(data);
      if (attribute->nla_len < NLA_HDRLEN || attribute->nla_len > bytes) return;
      const uint16_t type = attribute->nla_type & NLA_TYPE_MASK;
      const size_t length = attribute->nla_len - NLA_HDRLEN;
      if (type == RDMA_NLDEV_ATTR_RES_SUMMARY || type == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY) {
        walk(data + NLA_HDRLEN, length, function);
      } else {
        function(type, data + NLA_HDRLEN, length);
      }
      const size_t step = std::min<size_t>(bytes, NLA_ALIGN(attribute->nla_len));
      data += step;
      bytes -= step;
    }
  }

  alignas(8) char request_[1024] = {};
};

// Makes `device` on `interface`. Returns whether the kernel has made it and it can be used.
inline bool make_soft_roce(const char* device, const char* interface) {
  RdmaNetlink request(RDMA_NLDEV_CMD_NEWLINK, NLM_F_ACK);
  request.add(RDMA_NLDEV_ATTR_DEV_NAME, device);
  request.add(RDMA_NLDEV_ATTR_LINK_TYPE, "rxe");
  request.add(RDMA_NLDEV_ATTR_NDEV_NAME, interface);
  return request.ask([](uint16_t, const char*, size_t) {}) && choose_verbs_port(device, 0).ok();
}

// Whether there is a device. Makes rxe0 on `interface` if there is none.
inline bool has_verbs_device(const char* interface = "lo") {
  return choose_verbs_port("", 0).ok() || make_soft_roce("rxe0", interface);
}

// The number of objects of a kind ("mr", "qp", "cq") that the kernel holds for a device, as
// `rdma resource show` prints it.
inline uint64_t kernel_resource_count(const char* kind, uint32_t device_index = 0) {
  RdmaNetlink request(RDMA_NLDEV_CMD_RES_GET, 0);
  request.add(RDMA_NLDEV_ATTR_DEV_INDEX, &device_index, sizeof device_index);
  std::string name;
  uint64_t count = UINT64_MAX;
  request.ask([&](uint16_t type, const char* data, size_t bytes) {
    if (type == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME) name = data;
    if (type == RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR && name == kind) {
      std::memcpy(&count, data, std::min(bytes, sizeof count));
    }
  });
  return count;
}

// Sets an interface, and with it its device, up or down. Returns false if that is not allowed.
inline bool set_interface(const char* name, bool is_up) {
  const Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  std::strcpy(request.ifr_name, name);
  if (ioctl(fd.number(), SIOCGIFFLAGS, &request) != 0) return false;
  request.ifr_flags =
      static_cast<short>(is_up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
  return ioctl(fd.number(), SIOCSIFFLAGS, &request) == 0;
}
inline bool set_loopback(bool is_up) { return set_interface("lo", is_up); }

// Sets the MTU of lo, which limits the packets of its device. Returns false if that is not allowed.
inline bool set_loopback_mtu(int bytes) {
  const Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_mtu = bytes;
  return ioctl(fd.number(), SIOCSIFMTU, &request) == 0;
}

// The RDMA connection manager does not support lo: it needs an Ethernet interface, which the module
// dummy provides.
inline constexpr char kManagedDevice[] = "rxe1";
inline constexpr char kManagedInterface[] = "dummy0";
inline constexpr char kManagedAddress[] = "10.77.0.1";
inline constexpr char kNoManager[] = "no RDMA connection manager, or no interface dummy0 for it";

inline bool has_managed_device() {
  if (access("/dev/infiniband/rdma_cm", R_OK | W_OK) != 0) return false;
  if (choose_verbs_port(kManagedDevice, 0).ok()) return true;
  const Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  std::strcpy(request.ifr_name, kManagedInterface);
  auto* address = reinterpret_cast<sockaddr_in*>(&request.ifr_addr);
  address->sin_family = AF_INET;
  inet_pton(AF_INET, kManagedAddress, &address->sin_addr);
  if (ioctl(fd.number(), SIOCSIFADDR, &request) != 0) return false;
  if (!set_interface(kManagedInterface, true)) return false;
  return choose_verbs_port(kManagedDevice, 0).ok() ||
         make_soft_roce(kManagedDevice, kManagedInterface);
}

// Tests of connections use sockets. With BEDPLATE_VERBS_CONNECT=rdma_cm in the environment they use
// the connection manager, which must then exist.
inline constexpr char kConnectVariable[] = "BEDPLATE_VERBS_CONNECT";
inline bool is_by_manager() {
  const char* method = std::getenv(kConnectVariable);
  return method != nullptr && std::strcmp(method, "rdma_cm") == 0;
}

// Call this at the end of a test that needs the managed device: other tests rely on lo, but take
// the first usable device, which would be the managed one.
inline void rest_managed_device() {
  if (is_by_manager() || !choose_verbs_port(kManagedDevice, 0).ok()) return;
  set_interface(kManagedInterface, false);
}

inline constexpr char kNoVerbs[] = "no RDMA device, and no soft RoCE in this kernel";

}  // namespace bedplate::test
