// Reports about verbs: the state of each connection, and the device's events.
#include <string>

#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/verbs/verbs_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(VerbsReport){};

TEST(VerbsReport, StatesOfAPeer) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.timing.give_up_ns = 100'000'000;
  options.timing.backoff_ns_max = 1;  // a new connection forgets all earlier failures
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

// The log has the peer's address and the cure, repeatedly and less and less often.
TEST(VerbsReport, APeerThatDoesNotAnswerIsToldOfNowAndThen) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.has_b = false;
  options.address = "tcp:127.0.0.1:1";  // nobody listens there
  options.timing.backoff_ns_min = options.timing.backoff_ns_max = kNsPerMs;
  const std::string line = "verbs: connecting to b at tcp:127.0.0.1:1: Connection refused; still "
                           "trying; check that it runs and listens there";
  const auto count_in = [&line](const std::string& text) {
    uint32_t count = 0;
    for (size_t at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) {
      ++count;
    }
    return count;
  };
  options.timing.tell_ns_min = 10 * kNsPerMs;
  StderrCapture log;
  VerbsRig rig(options);
  rig.a.to("b");
  const uint64_t began_ns = monotonic_ns();
  CHECK(rig.poll_until([&] { return count_in(log.text()) >= 4; }));
  CHECK(monotonic_ns() - began_ns >= (10 + 20 + 40) * kNsPerMs);
}

TEST(VerbsReport, TheDevicesEventsAreTaken) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  auto device = VerbsDevice::open({}).take();
  if (!device->port().device.starts_with("rxe")) BP_SKIP("the device is not on lo");
  LONGS_EQUAL(0, device->take_events());
  CHECK(set_loopback(false));
  CHECK(set_loopback(true));
  uint32_t count = 0;  // down and up; the kernel reports them a moment later
  const uint64_t deadline_ns = monotonic_ns() + test::kPatienceNs;
  while (count < 2 && monotonic_ns() < deadline_ns) count += device->take_events();
  LONGS_EQUAL(2, count);
  LONGS_EQUAL(0, device->take_events());
}
