#include "transport/sockets/datagram_address.h"

#include <arpa/inet.h>

#include "platform/text_words.h"

namespace bedplate {

std::string DatagramAddress::text() const {
  char host[INET6_ADDRSTRLEN] = "none";
  if (is_there()) inet_ntop(ip.family, ip.bytes, host, sizeof host);
  const std::string bare = host;
  return (ip.family == AF_INET6 ? "[" + bare + "]" : bare) + ":" + std::to_string(port);
}

Result<DatagramAddress> parse_datagram_address(std::string_view text) {
  const auto refuse = [&](const char* what) {
    Error error;
    error.kind = ErrorKind::kConfiguration;
    error.set_answer("\"%.*s\" is not an address for datagrams: %s", static_cast<int>(text.size()),
                     text.data(), what);
    return error.set_cure("write \"ADDRESS:PORT\" with a numeric address ([...] around IPv6)");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse("the port is missing");
  DatagramAddress address;
  if (!parse_number(text.substr(colon + 1), &address.port)) {
    return refuse("the port is not a number from 0 to 65535");
  }
  std::string_view host = text.substr(0, colon);
  const bool has_brackets = host.starts_with('[') && host.ends_with(']');
  if (has_brackets) host = host.substr(1, host.size() - 2);
  const auto ip = parse_ip_address(std::string(host));
  if (!ip || has_brackets != (ip->family == AF_INET6)) return refuse("the address is not numeric");
  address.ip = *ip;
  return address;
}

}  // namespace bedplate
