// A flood of connections: it delays no other work, displaces no other user, and does not fill the
// log.
//
// The test connects again on each refusal that the server reports, so that a connection always
// waits to be accepted, however slow the machine is. It counts the connections that are refused
// before another event is served. kFloodMax ends a test that hangs.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <arpa/inet.h>
#include <grp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "pinned_pool/join/join_connections.h"
#include "pinned_pool/join/join_reports.h"
#include "pinned_pool/join/join_socket.h"
#include "pinned_pool/join/join_strangers.h"
#include "tests/pinned_pool/join/join_rig.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"

using namespace bedplate;
using bedplate::test::Child;
using bedplate::test::JoinRig;
using bedplate::test::StderrCapture;
using Kind = JoinEvent::Kind;

namespace {

constexpr uint32_t kFloodMax = 2'000'000;
// The most strangers that the server serves before an event that is ready when the count is read:
// the rest of the current turn, and the next turn.
constexpr uint32_t kTwoTurns = 2 * JoinStrangers::kPerTurn;

constexpr uid_t kOtherUser = 65534;

void become_other_user() {
  BP_PROBE_CHECK(setgroups(0, nullptr) == 0 && setresgid(kOtherUser, kOtherUser, kOtherUser) == 0 &&
                 setresuid(kOtherUser, kOtherUser, kOtherUser) == 0);
}

Fd connect_raw(const char* path) {
  return connect_to_owner(path, monotonic_ns() + JoinRig::kPatienceNs).take();
}

join::Request request_of(const char* process) {
  join::Request request;
  request.pool_base = test::kTestPoolBase;
  request.process = MemberName(process);
  return request;
}

}  // namespace

TEST_GROUP(JoinFlood) {
  StderrCapture capture;  // of the log's lines about the flood
  JoinRig rig;
  std::function<void(const JoinEvent&)> keep = rig.options.on_event;
  std::atomic<bool> floods{true};
  char other_path[96] = {};
  std::atomic<uint32_t> refused{0};
  std::atomic<uint32_t> refused_at_death{0};  // `refused` when the death was reported

  void setup() override {
    rig.options.on_event = [this](const JoinEvent& event) {
      if (event.kind == Kind::kRefused && is_babble(event)) {
        if (++refused < kFloodMax && floods) babble();
        return;
      }
      if (event.kind == Kind::kDied) refused_at_death = refused.load();
      keep(event);
    };
  }
  void teardown() override {
    floods = false;
    unlink(other_path);
  }

  static bool is_babble(const JoinEvent& event) {
    return std::strcmp(event.error.answer, "the other end is not Bedplate") == 0;
  }
  void babble() {
    auto socket = connect_to_owner(other_path, 0);
    if (socket.ok()) join::send_packet(socket.value().number(), "hello", 5);
  }
  // Begins the flood, and waits until it is under way.
  void flood() {
    std::snprintf(other_path, sizeof other_path, "%s.flood", rig.path);
    LONGS_EQUAL(0, link(rig.path, other_path));  // a server that stops removes its own path
    for (int i = 0; i < 4; ++i) babble();
    CHECK(JoinRig::becomes([&] { return refused > 4 * kTwoTurns; }));
  }
  // Whether the flood goes on, so that the awaited event came during the flood.
  bool goes_on() const { return refused < kFloodMax; }

  static size_t count_of(const std::string& text, const char* words) {
    size_t count = 0;
    for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
      ++count;
    }
    return count;
  }
};

TEST(JoinFlood, DelaysNoDeathByMoreThanATurn) {
  rig.start();
  Child child = rig.start_joiner();
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
  flood();
  child.kill_and_wait();  // now its pidfd is readable
  const uint32_t at_death = refused;
  LONGS_EQUAL(1, rig.wait_for(Kind::kDied));
  CHECK(goes_on());
  CHECK(refused_at_death <= at_death + kTwoTurns);
  LONGS_EQUAL(1, rig.wait_for(Kind::kFreed));
  CHECK(goes_on());
}

TEST(JoinFlood, DelaysNobodyWhoIsReadyOrLeaves) {
  rig.start();
  flood();
  Child child = rig.fork_joiner([](JoinOptions& options) {
    JoinedPool joined = JoinedPool::join(options).take();
    BP_PROBE_CHECK(joined.ready().ok());
    joined.leave();
    pause();
  });
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
  LONGS_EQUAL(1, rig.wait_for(Kind::kLeft));
  CHECK(goes_on());
}

TEST(JoinFlood, DelaysNoDeadline) {
  rig.options.request_timeout_ns = 20 * kNsPerMs;
  rig.options.ready_timeout_ns = 20 * kNsPerMs;
  rig.start();
  flood();
  const Fd silent = connect_raw(rig.path);
  LONGS_EQUAL(1, rig.wait_for(Kind::kRefused));
  STRCMP_EQUAL("it sent no request in time", rig.last(Kind::kRefused).error.answer);
  Child child = rig.fork_joiner([](JoinOptions& options) {
    auto joined = JoinedPool::join(options);
    pause();
  });
  LONGS_EQUAL(1, rig.wait_for(Kind::kFailed));
  CHECK(goes_on());
}

TEST(JoinFlood, DelaysNoStop) {
  rig.start();
  flood();
  rig.server->stop();
  CHECK(goes_on());
}

// A TCP socket that lingers: its last close waits for unsent data, which nobody reads.
TEST(JoinFlood, CannotMakeTheServerCloseWhatLingers) {
  rig.create_server();
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  CHECK(bind(listener.number(), reinterpret_cast<sockaddr*>(&address), bytes) == 0);
  CHECK(listen(listener.number(), 1) == 0);
  getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &bytes);
  Fd lingers(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(::connect(lingers.number(), reinterpret_cast<sockaddr*>(&address), bytes) == 0);
  set_blocking(lingers.number(), false);
  static char data[65536];
  while (send(lingers.number(), data, sizeof data, MSG_NOSIGNAL) > 0) {
  }
  const linger linger_on = {1, 2 * static_cast<int>(JoinRig::kPatienceNs / kNsPerSecond)};
  setsockopt(lingers.number(), SOL_SOCKET, SO_LINGER, &linger_on, sizeof linger_on);
  const Fd socket = connect_raw(rig.path);
  const join::Request request = request_of("nobody");
  const int descriptor = lingers.number();
  const int sent = join::send_packet(socket.number(), &request, sizeof request, {&descriptor, 1});
  const linger linger_off = {0, 0};
  if (sent == 0) lingers.close();  // before Linux 6.16: the packet holds the last reference
  else LONGS_EQUAL(EPERM, sent);
  rig.start_server();
  Child child = rig.start_joiner();
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
  // stop() is not delayed either.
  rig.server->stop();
  if (sent == 0) return;
  setsockopt(lingers.number(), SOL_SOCKET, SO_LINGER, &linger_off, sizeof linger_off);
}

TEST(JoinFlood, PushesOutNobodyOfAnotherUser) {
  if (getuid() != 0) BP_SKIP("only root can become another user");
  rig.options.request_timeout_ns = 2 * JoinRig::kPatienceNs;
  rig.start();
  const Fd ours = connect_raw(rig.path);
  int ends[2];
  CHECK(pipe(ends) == 0);
  Child other = rig.fork_joiner([&](JoinOptions&) {
    become_other_user();
    constexpr uint32_t kCount = 3 * JoinConnections::kSilentCountMax;
    static int sockets[kCount];
    for (int& socket : sockets) socket = connect_raw(rig.path).release();
    // This user's oldest connections are refused, until kSilentCountMax remain, ours included.
    for (uint32_t i = 0; i < kCount - (JoinConnections::kSilentCountMax - 1); ++i) {
      join::Explained refusal;
      BP_PROBE_CHECK(join::receive_packet(sockets[i], &refusal, sizeof refusal) == sizeof refusal);
      BP_PROBE_CHECK(std::strstr(join::told(refusal).answer,
                                 "129 connections have sent nothing, 12") != nullptr);
    }
    BP_PROBE_CHECK(write(ends[1], "1", 1) == 1);
    pause();
  });
  ::close(ends[1]);
  char said = 0;
  CHECK(read(ends[0], &said, 1) == 1);
  ::close(ends[0]);
  const join::Request request = request_of("relay");
  LONGS_EQUAL(0, join::send_packet(ours.number(), &request, sizeof request));
  join::Accepted accepted;
  LONGS_EQUAL(
      join::PacketKind::kAccepted,
      (join::receive_packet(ours.number(), &accepted, sizeof accepted), accepted.head.kind));
  Child another = rig.start_joiner();
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
}

TEST(JoinFlood, FillsNoLogAndHidesNobody) {
  rig.options.log_period_ns = 3600 * kNsPerSecond;
  rig.start();
  Child child = rig.start_joiner();
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
  flood();
  child.kill_and_wait();
  LONGS_EQUAL(1, rig.wait_for(Kind::kDied));
  // These requests have the joined process's name and user, for which there is a separate log
  // limit.
  for (int i = 0; i < 100; ++i) {
    const Fd socket = connect_raw(rig.path);
    join::Request request = request_of("relay");
    request.member_count = 4;
    join::send_packet(socket.number(), &request, sizeof request);
  }
  LONGS_EQUAL(100, rig.wait_for(Kind::kRefused, 100));
  const std::string text = capture.text();
  LONGS_EQUAL(JoinReports::kLinesOfStrangers, count_of(text, "is not Bedplate"));
  CHECK(count_of(text, "serving the joined process relay: it") == 1);
  constexpr uint32_t kLines = JoinReports::kLinesOfGrant + 2 * JoinReports::kLinesOfProcess;
  CHECK(count_of(text, "it asks for 4 members") >= kLines - 8);
  CHECK(count_of(text, "it asks for 4 members") <= kLines);
}

TEST(JoinFlood, SaysAnothersNameInVain) {
  rig.options.log_period_ns = 3600 * kNsPerSecond;
  rig.options.grants[0].uid = kOtherUser;
  rig.start();
  for (int i = 0; i < 100; ++i) {
    const Fd socket = connect_raw(rig.path);
    const join::Request request = request_of("relay");
    join::send_packet(socket.number(), &request, sizeof request);
  }
  LONGS_EQUAL(100, rig.wait_for(Kind::kRefused, 100));
  LONGS_EQUAL(JoinReports::kLinesOfStrangers,
              count_of(capture.text(), "joining the pool as relay"));
}

TEST(JoinFlood, IsCountedInTheLog) {
  // Even a slow machine refuses more connections in this period than the log takes.
  rig.options.log_period_ns = kNsPerSecond;
  rig.start();
  flood();
  floods = false;
  // No more connections come: the control thread logs the count by itself.
  CHECK(JoinRig::becomes([&] {
    return capture.text().find(" more messages about unknown processes within 1 s "
                               "were not logged\n") != std::string::npos;
  }));
}
