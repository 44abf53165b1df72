#include "apps/services/datagram_networks.h"

#include "apps/configuration/configuration.h"
#include "apps/services/service.h"

namespace bedplate {

DatagramNetwork* find_datagram_network(const Configuration& configuration, const Service& user,
                                       std::string_view name) {
  for (Service* service : configuration.services) {
    if (service == &user) continue;
    if (DatagramNetwork* network = service->datagram_network(name)) return network;
  }
  return nullptr;
}

}  // namespace bedplate
