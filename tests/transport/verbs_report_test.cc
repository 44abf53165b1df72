// What can be said of verbs from outside: how far each connection is, what the device tells.
#include "tests/support/skip.h"
#include "tests/transport/verbs_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(VerbsReport) {};

TEST(VerbsReport, StatesOfAPeer) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.timing.give_up_ns = 100'000'000;
  options.timing.backoff_ns_max = 1;  // as soon as it is up, what was before is forgotten
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
  CHECK(set_loopback(false));
  CHECK(set_loopback(true));
  uint32_t count = 0;  // down, up; the kernel tells a moment later
  const uint64_t deadline_ns = monotonic_ns() + 10 * kNsPerSecond;
  while (count < 2 && monotonic_ns() < deadline_ns) count += device->take_events();
  LONGS_EQUAL(2, count);
  LONGS_EQUAL(0, device->take_events());
}
