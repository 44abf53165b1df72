// How long a server waits for a peer: for a request, for its replies to be taken, for the next one.
#include "transport/sockets/session_patience.h"

#include <string_view>

#include "apps/testing/session_peer.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Takes whole lines, and answers none. After "wait" it waits.
class Silent final : public StreamSession {
 public:
  Silent() noexcept : StreamSession(input_, output_) {}
  void go_on() { resume(0); }

 private:
  StreamStep work(uint64_t) noexcept override {
    const std::string_view line = arrived_line();
    if (line.empty()) return StreamStep::kStarved;
    const bool waits = line == "wait\n";
    take(line.size());
    return waits ? StreamStep::kWaits : StreamStep::kTaken;
  }

  char input_[64];
  char output_[2 * StreamSession::kStepTextBytes];
};

}  // namespace

TEST_GROUP(SessionPatience) {
  Silent session;
  testing::SessionPeer peer{session};
  SessionPatience patience;
  PatienceLimits limits = {.slow_ns_max = 100, .idle_ns_max = 1000};
  SessionPatience::Connection connection;

  void setup() override { patience.begin(0); }
  void say_at(uint64_t now_ns, std::string_view text) {
    peer.now_ns = now_ns;
    peer.say(text);
  }
  void expect(PatienceVerdict verdict, uint64_t now_ns) {
    LONGS_EQUAL(static_cast<int>(verdict),
                static_cast<int>(patience.look(now_ns, limits, session, connection)));
  }
};

TEST(SessionPatience, TheTimeOfARequestCountsFromItsBeginning) {
  for (uint64_t now_ns = 10; now_ns < 110; now_ns += 10) {
    say_at(now_ns, "x");
    expect(PatienceVerdict::kPatient, now_ns);
  }
  expect(PatienceVerdict::kLate, 110);
}

TEST(SessionPatience, ARequestThatFollowsAnotherHasAllItsTime) {
  say_at(10, "one");
  expect(PatienceVerdict::kPatient, 10);
  say_at(100, " line\ntwo");  // between two looks one has ended, and the next has begun
  expect(PatienceVerdict::kPatient, 100);
  expect(PatienceVerdict::kPatient, 199);
  expect(PatienceVerdict::kLate, 200);
}

TEST(SessionPatience, AnIdleOneHasATimeOfItsOwn) {
  say_at(10, "line\n");
  expect(PatienceVerdict::kPatient, 10);
  expect(PatienceVerdict::kPatient, 1009);
  expect(PatienceVerdict::kIdle, 1010);
  limits.idle_ns_max = 0;
  expect(PatienceVerdict::kPatient, 100'000);
}

TEST(SessionPatience, RepliesThatAreTakenSlowlyAreTaken) {
  connection.is_sending = true;
  expect(PatienceVerdict::kPatient, 10);
  expect(PatienceVerdict::kPatient, 109);
  connection.taken_ns = 50;
  expect(PatienceVerdict::kPatient, 149);
  expect(PatienceVerdict::kSlow, 150);
}

// The layer limits its time.
TEST(SessionPatience, AHandshakeHasNoLimitHere) {
  connection.is_in_handshake = true;
  CHECK_FALSE(SessionPatience::is_idle(session, connection));
  expect(PatienceVerdict::kPatient, 10);
  connection.is_sending = true;  // the answer waits for its end
  expect(PatienceVerdict::kPatient, 100'000);
  connection.is_in_handshake = false;
  expect(PatienceVerdict::kPatient, 100'010);
  expect(PatienceVerdict::kPatient, 100'109);
  expect(PatienceVerdict::kSlow, 100'110);
}

TEST(SessionPatience, ASessionThatWaitsHasNoLimit) {
  say_at(10, "wait\nhalf");
  expect(PatienceVerdict::kPatient, 10);
  expect(PatienceVerdict::kPatient, 100'000);
  session.go_on();
  expect(PatienceVerdict::kPatient, 100'010);
  expect(PatienceVerdict::kPatient, 100'109);
  expect(PatienceVerdict::kLate, 100'110);
}

TEST(SessionPatience, KnowsWhoIsIdleAndSinceWhen) {
  patience.begin(5);
  CHECK(SessionPatience::is_idle(session, connection));
  CHECK_EQUAL(5, patience.heard_ns(session));
  say_at(10, "line\n");
  CHECK(SessionPatience::is_idle(session, connection));
  CHECK_EQUAL(10, patience.heard_ns(session));
  say_at(20, "half");
  CHECK_FALSE(SessionPatience::is_idle(session, connection));
}
