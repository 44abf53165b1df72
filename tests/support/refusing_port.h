// A port of 127.0.0.1 that refuses connections while this object exists. A port that was merely
// closed can be taken by any process, or by the connecting socket itself, which then connects to
// itself.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "platform/file.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

class RefusingPort {
 public:
  // `type`: SOCK_STREAM: nobody listens. SOCK_DGRAM: the socket takes only datagrams from itself.
  explicit RefusingPort(int type) : fd_(socket(AF_INET, type | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const address = reinterpret_cast<sockaddr*>(&address_);
    socklen_t bytes = sizeof address_;
    CHECK(bind(fd_.number(), address, bytes) == 0);
    CHECK(getsockname(fd_.number(), address, &bytes) == 0);
    if (type == SOCK_DGRAM) CHECK(connect(fd_.number(), address, bytes) == 0);
  }

  const sockaddr_in& address() const noexcept { return address_; }
  uint16_t number() const noexcept { return ntohs(address_.sin_port); }

 private:
  Fd fd_;
  sockaddr_in address_ = {};
};

}  // namespace bedplate::test
