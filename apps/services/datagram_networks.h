// Finds the datagram networks that services provide to others, such as ports. Threads: the main
// thread.
#pragma once

#include <string_view>

namespace bedplate {

struct Configuration;
class DatagramNetwork;
class Service;

// The network `name` of a service other than `user`; nullptr: the configuration has none.
DatagramNetwork* find_datagram_network(const Configuration& configuration, const Service& user,
                                       std::string_view name);

}  // namespace bedplate
