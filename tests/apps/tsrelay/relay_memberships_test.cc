// Memberships and interfaces for multicast follow the interfaces' names while their numbers change,
// on a simulated network.
#include "apps/tsrelay/relay_memberships.h"

#include <cerrno>
#include <map>
#include <string>
#include <vector>

#include "tests/apps/tsrelay/relay_rig.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

struct FakeNetwork final : InterfaceNumbers {
  std::map<std::string, uint32_t> by_name;
  uint32_t toward = 0;

  uint32_t index_of(const std::string& name) noexcept override {
    const auto found = by_name.find(name);
    return found == by_name.end() ? 0 : found->second;
  }
  uint32_t index_toward(const IpAddress&) noexcept override { return toward; }
  bool is_there(uint32_t index) noexcept override {
    return std::any_of(by_name.begin(), by_name.end(),
                       [index](const auto& each) { return each.second == index; });
  }
};

}  // namespace

TEST_GROUP(RelayMemberships) {
  FakeNetwork network;
  FakeSocket socket;
  Memberships memberships;
  uint64_t now = 100 * kSecond;
  bool is_silent = false;
  std::string told;

  void setup() override { network.by_name["eth0"] = 3; }
  void join(const char* interface) {
    memberships.add_group(0, socket, at("239.1.1.1:0").ip, {}, interface, network);
  }
  // Returns the requests to the socket after this time: "3>5": leaves 3 and joins 5; ">5": sends
  // over 5.
  std::string look(bool has_changed, uint64_t after_ns = kSecond / 2) {
    socket.asked.clear();
    now += after_ns;
    told.clear();
    memberships.look(
        network, has_changed, now, [this](uint32_t) { return is_silent; },
        [this](const Memberships::One& one) {
          told += (one.is_group ? "group " : "out ") + one.interface + " " +
                  std::to_string(one.at) + " " + std::to_string(one.error_number);
        });
    return socket.asked;
  }
  void expect(const char* asked, const std::string& was) { STRCMP_EQUAL(asked, was.c_str()); }
};

TEST(RelayMemberships, AnInterfaceThatIsMadeAnewIsJoinedByItsNewNumber) {
  join("eth0");
  expect("", look(true));
  network.by_name.clear();
  expect("3>0", look(true));
  STRCMP_EQUAL("group eth0 0 0", told.c_str());
  expect("", look(true));
  STRCMP_EQUAL("", told.c_str());
  network.by_name["eth0"] = 9;
  expect("0>9", look(true));
  STRCMP_EQUAL("group eth0 9 0", told.c_str());
  expect("", look(false));
}

TEST(RelayMemberships, BetweenTwoLooksItMayGoAndComeBack) {
  join("eth0");
  network.by_name["eth0"] = 9;
  expect("3>9", look(true));
}

TEST(RelayMemberships, WhatCannotBeJoinedIsTriedAgain) {
  join("eth0");
  network.by_name["eth0"] = 9;
  socket.join_error = ENOBUFS;
  expect("3>9", look(true));
  STRCMP_EQUAL(("group eth0 0 " + std::to_string(ENOBUFS)).c_str(), told.c_str());
  expect("0>9", look(false));
  STRCMP_EQUAL("", told.c_str());
  socket.join_error = 0;
  expect("0>9", look(false));
  STRCMP_EQUAL("group eth0 9 0", told.c_str());
}

TEST(RelayMemberships, ASilentLegJoinsNowAndThen) {
  join("eth0");
  expect("", look(false));
  is_silent = true;
  expect("", look(false, Memberships::kAgainNs - 1));
  expect("3>3", look(false, 1));
  STRCMP_EQUAL("", told.c_str());
  expect("", look(false, Memberships::kAgainNs - 1));
  expect("3>3", look(false, 1));
  // It joins sooner if the network has changed, but not with each change.
  expect("3>3", look(true, Memberships::kAgainChangedNs));
  expect("", look(true, Memberships::kAgainChangedNs - 1));
  is_silent = false;
  expect("", look(true, Memberships::kAgainNs));
}

TEST(RelayMemberships, WithoutANameTheRoutesSay) {
  network.toward = 3;
  join("");
  expect("", look(true));
  network.toward = 4;
  expect("3>4", look(true));
  // The loss of a route changes nothing while the interface is there.
  network.toward = 0;
  network.by_name["eth1"] = 4;
  expect("", look(true));
  network.by_name.clear();
  expect("4>0", look(true));
  network.toward = 7;
  expect("0>7", look(true));
}

TEST(RelayMemberships, MulticastIsSentByTheNewNumber) {
  memberships.add_sender(socket, "eth0", network);
  expect("", look(true));
  network.by_name.clear();
  expect("", look(true));  // there is no interface to send over
  STRCMP_EQUAL("out eth0 0 0", told.c_str());
  network.by_name["eth0"] = 9;
  expect(">9", look(true));
  STRCMP_EQUAL("out eth0 9 0", told.c_str());
  is_silent = true;
  expect("", look(false, Memberships::kAgainNs));
}
