// A stand-in for a Ceph monitor: it sends one text to each client, or nothing.
#pragma once

#include <string>
#include <thread>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "platform/file.h"
#include "transport/sockets/socket_address.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

inline SocketAddress address_of(const std::string& text) {
  auto address = parse_socket_address(text);
  CHECK(address.ok());
  return address.take();
}

class FakeMonitor {
 public:
  // With an empty `banner` it never calls accept() and sends nothing; the kernel still completes
  // the connections.
  explicit FakeMonitor(std::string banner) : banner_(std::move(banner)) {
    auto listener = listen_at(loopback(0));
    CHECK(listener.ok());
    listener_ = listener.take();
    sockaddr_in address{};
    socklen_t bytes = sizeof address;
    CHECK(getsockname(listener_.number(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
    port_ = ntohs(address.sin_port);
    if (!banner_.empty()) thread_ = std::thread([this] { serve(); });
  }
  FakeMonitor(const FakeMonitor&) = delete;
  FakeMonitor& operator=(const FakeMonitor&) = delete;
  ~FakeMonitor() {
    shutdown(listener_.number(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }

  SocketAddress address() const { return loopback(port_); }

 private:
  static SocketAddress loopback(uint16_t port) {
    SocketAddress address;
    address.host = "127.0.0.1";
    address.port = port;
    return address;
  }
  void serve() {
    for (;;) {
      const Fd client(accept(listener_.number(), nullptr, nullptr));
      if (!client.is_open()) return;
      // Sends the banner in two parts: TCP may split it anywhere.
      (void)!send(client.number(), banner_.data(), 3, MSG_NOSIGNAL);
      (void)!send(client.number(), banner_.data() + 3, banner_.size() - 3, MSG_NOSIGNAL);
      char none[64];
      while (read(client.number(), none, sizeof none) > 0) {
      }
    }
  }

  const std::string banner_;
  Fd listener_;
  uint16_t port_ = 0;
  std::thread thread_;
};

inline constexpr char kMonitorBanner[] = "ceph v027";

}  // namespace bedplate::test
