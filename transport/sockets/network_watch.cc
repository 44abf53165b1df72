#include "transport/sockets/network_watch.h"

#include <cerrno>
#include <cstring>

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace bedplate {
namespace {

constexpr uint32_t kNews =
    RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE;

}  // namespace

Result<void> NetworkWatch::create() noexcept {
  names_ = Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!names_.is_open()) return error_from_errno("opening a socket");
  BP_TRY(questions_.create());
  can_ask_ = true;
  Fd news(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  sockaddr_nl name = {};
  name.nl_family = AF_NETLINK;
  name.nl_groups = kNews;
  if (!news.is_open() ||
      bind(news.number(), reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) {
    return error_from_errno("listening for network changes")
        .set_cure("allow this process AF_NETLINK sockets");
  }
  news_ = std::move(news);
  return {};
}

// Drops the messages unread, since callers look everything up anew. An overflow of the socket's
// queue (ENOBUFS) counts as a change, too.
bool NetworkWatch::has_changed() noexcept {
  if (!news_.is_open()) return true;
  bool has_news = false;
  char word[8192];
  for (;;) {
    if (recv(news_.number(), word, sizeof word, MSG_TRUNC) < 0) {
      if (errno == EINTR) continue;
      if (errno != ENOBUFS) return has_news;
    }
    has_news = true;
  }
}

uint32_t NetworkWatch::index_of(const std::string& interface) noexcept {
  ifreq request = {};
  if (interface.size() >= sizeof request.ifr_name) return 0;
  std::memcpy(request.ifr_name, interface.data(), interface.size());
  if (ioctl(names_.number(), SIOCGIFINDEX, &request) != 0) return 0;
  return static_cast<uint32_t>(request.ifr_ifindex);
}

uint32_t NetworkWatch::index_toward(const IpAddress& address) noexcept {
  return can_ask_ ? questions_.interface_toward(address) : 0;
}

bool NetworkWatch::is_there(uint32_t index) noexcept {
  ifreq request = {};
  request.ifr_ifindex = static_cast<int>(index);
  return ioctl(names_.number(), SIOCGIFNAME, &request) == 0;
}

}  // namespace bedplate
