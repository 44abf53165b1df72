// The address of a datagram's sender or receiver: IPv4 or IPv6, and a port.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/result.h"
#include "transport/sockets/ip_address.h"

namespace bedplate {

struct DatagramAddress {
  IpAddress ip;       // family 0: none
  uint16_t port = 0;  // host byte order
  // The interface, if the address is valid on one link alone (fe80::...); else 0.
  uint32_t interface_index = 0;

  bool is_there() const noexcept { return ip.family != 0; }
  bool operator==(const DatagramAddress&) const noexcept = default;
  // In the form that parse_datagram_address() reads, without the interface; "none:" and the port if
  // there is no address. Allocates.
  std::string text() const;
};

// "192.0.2.1:5004" or "[2001:db8::1]:5004"; with port 0 the system chooses. Numeric addresses only.
// An interface ("fe80::1%eth0") is refused. Threads: any. Errors (kConfiguration): the fault of
// `text`, and the expected form.
Result<DatagramAddress> parse_datagram_address(std::string_view text);

}  // namespace bedplate
