// What can be said of verbs from outside: how far each connection is, what the device tells.
#include <cstring>

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "tests/support/skip.h"
#include "tests/transport/verbs_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// Takes the interface below soft RoCE down, or up again.
void set_loopback(bool is_up) {
  const Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  std::strcpy(request.ifr_name, "lo");
  LONGS_EQUAL(0, ioctl(fd.number(), SIOCGIFFLAGS, &request));
  const int flags = is_up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP;
  request.ifr_flags = static_cast<short>(flags);
  LONGS_EQUAL(0, ioctl(fd.number(), SIOCSIFFLAGS, &request));
}

}  // namespace

TEST_GROUP(VerbsReport) {};

TEST(VerbsReport, StatesOfAPeer) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.timing.give_up_ns = 100'000'000;
  VerbsRig rig(options);
  const auto state_of_b = [&] { return rig.a.verbs->peer_state(0); };
  CHECK(state_of_b() == PeerState::kWaiting);  // nobody has asked for it
  CHECK(rig.b.verbs->peer_state(0) == PeerState::kWaiting);
  CHECK(rig.connect());
  CHECK(state_of_b() == PeerState::kConnected);
  CHECK(rig.b.verbs->peer_state(0) == PeerState::kConnected);
  rig.b.verbs.reset();
  CHECK(rig.poll_until([&] { return state_of_b() == PeerState::kDialing; }));
  CHECK(rig.poll_until([&] { return state_of_b() == PeerState::kGivenUp; }));
  for (const PeerState state : {PeerState::kWaiting, PeerState::kDialing, PeerState::kConnected,
                                PeerState::kGivenUp, PeerState::kCutOff}) {
    CHECK(to_text(state)[0] != '\0');
  }
}

TEST(VerbsReport, TheDevicesEventsAreTaken) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  auto device = VerbsDevice::open({}).take();
  if (!device->port().device.starts_with("rxe")) BP_SKIP("the device is not on lo");
  LONGS_EQUAL(0, device->take_events());
  set_loopback(false);
  set_loopback(true);
  LONGS_EQUAL(2, device->take_events());  // down, up
  LONGS_EQUAL(0, device->take_events());
}
