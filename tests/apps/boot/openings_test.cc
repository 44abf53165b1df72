// Datagram sockets are opened before any memory is taken. Each failure is reported with its cause.
#include "apps/boot/openings.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include "apps/services/planned_datagrams.h"
#include "tests/apps/boot/service_rig.h"
#include "transport/udp/udp_socket.h"

using namespace bedplate;

namespace {

class OpeningsBodies : public service_rig::ServiceBodies {
 public:
  std::vector<std::pair<std::string, DatagramOpening>> wanted;
  std::vector<std::vector<Fd>> opened;
  std::vector<Error> problems;

  static DatagramOpening at(const char* address, bool shares_port = false) {
    DatagramOpening made;
    made.what = std::string("what is at ") + address;
    made.options.local = parse_datagram_address(address).value();
    made.options.shares_port = shares_port;
    return made;
  }
  // Opens `all`. Returns the problems, one a line.
  std::string open(const std::vector<DatagramOpening>& all) {
    opened.clear();
    problems.clear();
    cache.to_plan = [&all](ServicePlan& asked) {
      for (size_t i = 0; i < all.size(); ++i) {
        const std::string name = "s" + std::to_string(i);
        asked.datagram_socket(0, name.c_str(), {.buffer_count = 1, .buffer_bytes = 64}, "", all[i]);
      }
      return Result<void>{};
    };
    auto made = plan_appliance(configuration);
    CHECK(made.ok());
    opened = open_datagrams(made.value().services, &problems);
    std::string said;
    for (const Error& each : problems) {
      said += format_error(each, text, sizeof text) + std::string("\n");
    }
    return said;
  }
  uint16_t port_of(int fd) {
    sockaddr_in name = {};
    socklen_t bytes = sizeof name;
    LONGS_EQUAL(0, getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bytes));
    return ntohs(name.sin_port);
  }
};

}  // namespace

TEST_GROUP_BASE(Openings, OpeningsBodies){};

TEST(Openings, OpensAndBindsWhatIsPlanned) {
  STRCMP_EQUAL("", open({at("127.0.0.1:0"), at("127.0.0.1:0")}).c_str());
  LONGS_EQUAL(2, opened[0].size());
  CHECK(opened[0][0].is_open() && port_of(opened[0][0].number()) != 0);
}

TEST(Openings, NamesWhatItsOwnConfigurationHasThere) {
  STRCMP_EQUAL("", open({at("127.0.0.1:0")}).c_str());
  const std::string port = std::to_string(port_of(opened[0][0].number()));
  const std::string here = "127.0.0.1:" + port;
  const std::string all = "0.0.0.0:" + port;
  opened.clear();
  for (const std::string& first : {here, all}) {
    STRCMP_EQUAL(
        ("cache: opening what is at " + here + " at " + here +
         ": this configuration already uses it for what is at " + first + "; choose another port\n")
            .c_str(),
        open({at(first.c_str()), at(here.c_str())}).c_str());
  }
  STRCMP_EQUAL("", open({at(here.c_str(), true), at(here.c_str(), true)}).c_str());
}

TEST(Openings, SaysWhatTheSystemRefuses) {
  STRCMP_EQUAL("", open({at("127.0.0.1:0")}).c_str());
  const Fd taken = std::move(opened[0][0]);
  const std::string here = "127.0.0.1:" + std::to_string(port_of(taken.number()));
  STRCMP_CONTAINS(("cache: binding a datagram socket to " + here + ", for what is at " + here +
                   ": Address already in use; stop the program")
                      .c_str(),
                  open({at(here.c_str())}).c_str());
  DatagramOpening over = at("127.0.0.1:0");
  over.multicast_interface = "nope0";
  STRCMP_CONTAINS("sending multicast over nope0", open({over}).c_str());
  DatagramOpening group = at("239.1.2.3:0", true);
  group.memberships = {{group.options.local.ip, {}, "nope0"}};
  STRCMP_CONTAINS("joining the group 239.1.2.3", open({group}).c_str());
}

// Each group is joined as a check, and left again, so that no datagram arrives before the service
// runs.
TEST(Openings, LeavesTheGroupsThatItHasTried) {
  DatagramOpening group = at("239.1.2.3:0", true);
  group.memberships = {{group.options.local.ip, {}, "lo"}};
  STRCMP_EQUAL("", open({group}).c_str());
  CHECK(change_membership(opened[0][0].number(), true, group.options.local.ip, {}, "lo").ok());
}

TEST(Openings, OpensATcpAddressForEachShardThatListens) {
  SocketAddress any;
  any.host = "127.0.0.1";
  cache.to_plan = [any](ServicePlan& asked) {
    asked.listen("listen", {any}, {}, {.shards = {1, 0}});
    return Result<void>{};
  };
  auto made = plan_appliance(configuration);
  CHECK(made.ok());
  LONGS_EQUAL(1, made.value().services[0].descriptors);  // of the second socket
  const auto all = open_listeners(made.value().services, true, &problems);
  LONGS_EQUAL(0, problems.size());
  const Listeners& listeners = all[0][0];
  LONGS_EQUAL(1, listeners.sockets(0).size());
  LONGS_EQUAL(1, listeners.sockets(1).size());
  LONGS_EQUAL(port_of(listeners.sockets(0)[0].number()), port_of(listeners.sockets(1)[0].number()));
}

TEST(Openings, RefusesToListenTwiceOnAShardOrOnNone) {
  const auto refused = [this](std::vector<uint32_t> shards) {
    return std::string(refusal([shards](ServicePlan& asked) {
      asked.listen("listen", {parse_socket_address("unix:/s").take()}, {}, {.shards = shards});
    }));
  };
  STRCMP_EQUAL("", refused({0, 1}).c_str());
  STRCMP_EQUAL(
      "cache: planning the addresses of listen: a shard appears twice; this is a defect of "
      "the service",
      refused({1, 1}).c_str());
  STRCMP_EQUAL("cache: planning listeners on shard number 2: the configuration has 2; this is a "
               "defect of the service: it must take the index from a key of the type shard",
               refused({0, 2}).c_str());
}
