// Networks that a service provides to others, by their names.
#include "apps/services/datagram_networks.h"

#include "tests/apps/boot/service_rig.h"
#include "transport/sockets/datagram_network.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct SilentNetwork final : DatagramNetwork {
  Result<void> plan_socket(uint32_t, const DatagramShape&) override { return {}; }
  Result<DatagramSocket*> make_socket(uint32_t, const DatagramShape&) override { return Error{}; }
};

}  // namespace

TEST_GROUP(DatagramNetworks) {
  SilentNetwork network;
  service_rig::TestService relay{"relay"};
  service_rig::TestService cache{"cache"};
  Configuration configuration;

  void setup() override {
    relay.network = &network;
    configuration.services = {&relay, &cache};
  }
};

TEST(DatagramNetworks, AreFoundByTheServicesThatDoNotProvideThem) {
  CHECK(find_datagram_network(configuration, cache, "wan") == &network);
  CHECK(find_datagram_network(configuration, cache, "lan") == nullptr);
  CHECK(find_datagram_network(configuration, relay, "wan") == nullptr);
}

TEST(DatagramNetworks, AreOnAllShardsUnlessTheySayOtherwise) {
  CHECK(network.is_on(0) && network.is_on(63));
}
