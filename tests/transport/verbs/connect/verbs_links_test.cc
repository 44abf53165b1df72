// Connections that are made and ended (link_connector), and the log about them: both sides dial at
// once, a connected peer says hello again, a peer that was cut off comes back as another, a host
// falls silent, a link breaks as soon as it is up.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <sys/resource.h>

#include "tests/support/death_test.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/shm/group_rig.h"
#include "tests/transport/verbs/verbs_rig.h"
#include "tests/transport/verbs/verbs_stranger.h"
#include "transport/verbs/connect/verbs_link.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

// A greeting of another service: shorter than a record.
constexpr char kBanner[] = "SSH-2.0-OpenSSH_9.2p1\r\n";

TEST_GROUP(VerbsLinks) {
  std::unique_ptr<VerbsRig> rig;
  uint32_t heard = 0;

  void teardown() override { Stranger::release_all(); }
  void start(const VerbsRigOptions& options) {
    rig = std::make_unique<VerbsRig>(options);
    for (VerbsSide* side : {&rig->a, &rig->b}) {
      if (!side->messenger) continue;
      side->messenger->set_handler(
          kHeard,
          {[](void* count, const Message&) noexcept { ++*static_cast<uint32_t*>(count); }, &heard});
    }
  }
  StrangerOptions stranger(const char* name, const char* suffix = "") {
    return {.device = &rig->device(),
            .keys = &rig->keys(),
            .address = parse_socket_address(rig->address() + suffix).take(),
            .name = name,
            .meanwhile = [this] { rig->poll(); }};
  }
  // Sends one message from a to b.
  void check_that_a_reaches_b() {
    const uint32_t before = heard;
    CHECK(rig->poll_until([&] { return rig->a.to("b").am_send(kHeard, {}) == SendStatus::kDone; }));
    CHECK(rig->poll_until([&] { return heard == before + 1; }));
  }
  // Listens in place of b, which a dials, or in place of a, which b dials.
  Fd listen_as(const char* name) {
    const bool is_b = *name == 'b';
    const std::string address = rig->address() + (is_b ? "" : "-a");
    Fd listener = listen_at(parse_socket_address(address).take()).take();
    set_blocking(listener.number(), false);
    if (is_b) rig->a.to("b");
    else rig->b.to("a");
    return listener;
  }
  // How often the connector threads of this process have waited.
  static uint64_t naps_of_connectors() {
    uint64_t count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream status(task.path() / "status");
      std::string word;
      status >> word >> word;
      if (word != "verbs-connect") continue;
      while (status >> word && word != "voluntary_ctxt_switches:") {
      }
      uint64_t of_it = 0;
      status >> of_it;
      count += of_it;
    }
    return count;
  }
  static uint64_t count_of(const std::string& text, const std::string& part) {
    uint64_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++count;
    }
    return count;
  }
};

TEST(VerbsLinks, ALinkGoesToAndFroUntilItIsLost) {
  VerbsLink link;
  for (const LinkState down : {LinkState::kDown, LinkState::kCutOff, LinkState::kLost}) {
    CHECK(link.is_connectors());
    link.hand_over(LinkState::kUp);
    CHECK_FALSE(link.is_connectors());
    link.hand_over(down);
  }
  CHECK_FALSE(link.is_connectors());
#if BP_DEBUG
  BP_CHECK_DIES("can_follow(", link.hand_over(LinkState::kUp));
  BP_CHECK_DIES("can_follow(", link.hand_over(LinkState::kDown));
  VerbsLink other;
  BP_CHECK_DIES("can_follow(", other.hand_over(LinkState::kCutOff));
#endif
}

TEST(VerbsLinks, BothMayDialAtOnce) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  for (int i = 0; i < 20; ++i) {
    start({.both_dial = true});
    CHECK(rig->connect());
    check_that_a_reaches_b();
    LONGS_EQUAL(0, rig->a.counters.broken.read() + rig->b.counters.broken.read());
  }
}

TEST(VerbsLinks, WhenBothHaveSaidHelloTheFirstNameGoesOn) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.both_dial = true;
  options.has_b = false;
  start(options);
  {
    const Fd listener = listen_as("b");
    Stranger called(stranger("b")), calling(stranger("b", "-a"));
    CHECK(called.pick_up(listener).has_value());
    calling.dial();
    const HandshakeRecord hello = calling.hello();
    calling.say(&hello, sizeof hello);
    const auto answer = calling.answer();
    CHECK(answer.has_value());
    CHECK(check_record(*answer, HandshakeKind::kRefusal) == Refusal::kNone);
    LONGS_EQUAL(Refusal::kCrossing, static_cast<Refusal>(answer->refusal));
    LONGS_EQUAL(0, rig->a.verbs->refused_count());  // nobody's fault
  }
  unlink(rig->address().c_str() + 5);
  options.has_b = true;
  options.has_a = false;
  rig.reset();
  start(options);
  const Fd listener = listen_as("a");
  Stranger called(stranger("a")), calling(stranger("a"));
  CHECK(called.pick_up(listener).has_value());
  CHECK(calling.connect());
  CHECK_FALSE(called.answer().has_value());  // b has given up that call
  CHECK(rig->poll_until([&] { return VerbsProvider::is_connected(rig->b.to("a")); }));
}

TEST(VerbsLinks, WhoSaysHelloAgainHasLostTheConnection) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  start({.has_c = true});
  CHECK(rig->connect());
  Stranger first(stranger("c"));
  CHECK(first.connect());
  CHECK(rig->poll_until([&] { return VerbsProvider::is_connected(rig->b.to("c")); }));
  Stranger second(stranger("c"));  // the same instance, which does not know that the link is up
  CHECK(second.connect());
  CHECK(rig->poll_until([&] { return rig->b.counters.connected.read() == 3; }));
  LONGS_EQUAL(1, rig->b.counters.broken.read());
  check_that_a_reaches_b();
}

TEST(VerbsLinks, AHelloThatWaitsCannotBeSaidAnew) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  start({.has_c = true});
  CHECK(rig->connect());
  Stranger first(stranger("c"));
  CHECK(first.connect());
  CHECK(rig->poll_until([&] { return VerbsProvider::is_connected(rig->b.to("c")); }));
  Stranger second(stranger("c"));
  struct {
    HandshakeRecord hello;
    char more[127];
  } said = {second.hello(), {}};
  // A hello waits until the link is down, and is not checked again then. So no bytes may follow it.
  std::memcpy(said.more, kHandshakeMagic, sizeof kHandshakeMagic);
  second.dial();
  second.say(&said, sizeof said.hello + sizeof said.more);
  const auto answer = second.answer();
  CHECK(answer.has_value());
  CHECK(check_record(*answer, HandshakeKind::kRefusal) == Refusal::kNone);
  LONGS_EQUAL(Refusal::kMalformed, static_cast<Refusal>(answer->refusal));
  LONGS_EQUAL(2, rig->b.counters.connected.read());
  check_that_a_reaches_b();
}

// The link is hung up, too: its queue pair no longer reaches memory of b.
TEST(VerbsLinks, WhoIsNotReadyAfterItsWelcomeIsHungUpOn) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  auto* exported = static_cast<std::byte*>(std::aligned_alloc(4096, 4096));
  start({.exported = {exported, 4096}, .has_c = true});
  CHECK(rig->connect());
  const uint32_t key = rig->device().find_export(exported, 4096, kRead)->remote_key;
  const auto read_from = [&](Stranger& stranger) {
    return stranger.access(IBV_WR_RDMA_READ, reinterpret_cast<uintptr_t>(exported), key, 8);
  };
  for (const size_t bytes : {sizeof(HandshakeRecord), sizeof kBanner, size_t{0}}) {
    Stranger stranger(this->stranger("c"));
    stranger.dial();
    const HandshakeRecord hello = stranger.hello();
    stranger.say(&hello, sizeof hello);
    CHECK(stranger.be_welcomed());
    LONGS_EQUAL(IBV_WC_SUCCESS, read_from(stranger));
    if (bytes == sizeof hello) stranger.say(&hello, bytes);
    else if (bytes > 0) stranger.say(kBanner, bytes);
    else stranger.hang_up();
    if (bytes > 0) CHECK_FALSE(stranger.answer().has_value());
    CHECK(rig->poll_until([&] { return read_from(stranger) != IBV_WC_SUCCESS; }));
    CHECK_FALSE(VerbsProvider::is_connected(rig->b.to("c")));
  }
  {
    Stranger good(stranger("c"));
    CHECK(good.connect());
    CHECK(rig->poll_until([&] { return VerbsProvider::is_connected(rig->b.to("c")); }));
    check_that_a_reaches_b();
  }
  rig.reset();
  std::free(exported);
}

TEST(VerbsLinks, AClaimThatIsFalseIsCutOffAtOnce) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  start({.has_c = true});
  CHECK(rig->connect());
  const uint64_t begin_ns = monotonic_ns();
  for (uint64_t i = 1; i <= 20; ++i) {
    Stranger stranger(this->stranger("c"));
    stranger.instance = 100 + i;
    CHECK(stranger.connect());
    stranger.hang_up();
    HandshakeRecord claim = stranger.hello();
    claim.known_instance = stranger.peer_instance;
    claim.received = 5;  // but nothing was sent
    finish_record(claim);
    stranger.dial();
    stranger.say(&claim, sizeof claim);
    CHECK(rig->poll_until([&] { return rig->b.counters.cut_off.read() == i; }));
    stranger.hang_up();
    stranger.instance += 1000;
    CHECK(stranger.connect());
  }
  // Each queue pair was returned, and not only after the limit for a device that has stopped.
  CHECK(monotonic_ns() - begin_ns < 20 * LinkTiming{}.stall_ns_max / 2);
  check_that_a_reaches_b();
}

TEST(VerbsLinks, WhoWasCutOffIsDialedOnUntilItIsAnother) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.has_b = false;
  options.timing.backoff_ns_max = 100 * kNsPerMs;
  start(options);
  const Fd listener = listen_as("b");
  {
    Stranger stranger(this->stranger("b"));
    CHECK(stranger.be_called(listener));
    stranger.post(stranger.header(VerbsMessageKind{77}), "", 0);
    CHECK(rig->poll_until([&] { return rig->a.counters.cut_off.read() == 1; }));
    CHECK(rig->poll_until([&] { return rig->a.to("b").am_send(kHeard, {}) == SendStatus::kGone; }));
  }
  {
    Stranger stranger(this->stranger("b"));  // the same instance
    CHECK_FALSE(stranger.be_called(listener));
    CHECK(rig->a.to("b").am_send(kHeard, {}) == SendStatus::kGone);
  }
  Stranger repaired(stranger("b"));
  repaired.instance = 4712;
  CHECK(repaired.be_called(listener));
  repaired.post(repaired.header(), "", 0);
  CHECK(rig->poll_until([&] { return heard == 1; }));
  unlink(rig->address().c_str() + 5);
}

TEST(VerbsLinks, ADeviceThatEndsNothingIsNotWaitedForWithoutEnd) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.has_c = true;
  options.timing.retry = {.timeout_log2 = 14, .count = 7};  // soft RoCE retries without end
  options.timing.stall_ns_max = 2 * kNsPerSecond;
  start(options);
  CHECK(rig->connect());
  Stranger silent(stranger("c"));
  CHECK(silent.connect());
  CHECK(rig->poll_until([&] { return VerbsProvider::is_connected(rig->b.to("c")); }));
  StderrCapture log;
  silent.fall_silent();
  CHECK(rig->b.to("c").am_send(kHeard, {}) == SendStatus::kDone);
  CHECK(rig->poll_until([&] { return rig->b.counters.broken.read() == 1; }));
  STRCMP_CONTAINS("verbs: lost the connection to c at a local socket: its device, or this one, "
                  "does not complete posted requests",
                  log.finish().c_str());
  LONGS_EQUAL(1, rig->b.counters.kicks.read());
  LONGS_EQUAL(0, rig->a.counters.broken.read());
  check_that_a_reaches_b();
}

TEST(VerbsLinks, WhoAnswersUnderAnotherNameIsToldWithBoth) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.has_b = false;
  start(options);
  const Fd listener = listen_as("b");
  StderrCapture log;
  {
    Stranger stranger(this->stranger("x"));
    CHECK_FALSE(stranger.be_called(listener));
  }
  STRCMP_CONTAINS(
      ("verbs: connecting to b at " + rig->address() +
       ": it calls itself x; still trying; correct the address of this peer, or its name")
          .c_str(),
      log.finish().c_str());
  Stranger right(stranger("b"));
  CHECK(right.be_called(listener));
  unlink(rig->address().c_str() + 5);
}

// Without a back-off, a would dial the service as fast as it answers.
TEST(VerbsLinks, AnotherServiceThatAnswersIsBackedOffFrom) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.has_b = false;
  start(options);
  const Fd listener = listen_as("b");
  StderrCapture log;
  for (int i = 0; i < 3; ++i) {
    Stranger service(stranger("b"));
    CHECK(service.pick_up(listener).has_value());
    service.say(kBanner, sizeof kBanner);
    CHECK_FALSE(service.answer().has_value());
    CHECK(service.is_hung_up_on);
  }
  STRCMP_CONTAINS(
      ("verbs: connecting to b at " + rig->address() + ": a malformed answer; still trying")
          .c_str(),
      log.finish().c_str());
  Stranger right(stranger("b"));
  CHECK(right.be_called(listener));
  unlink(rig->address().c_str() + 5);
}

TEST(VerbsLinks, WhoIsOutOfDescriptorsSaysSoOnceWaitsAndGoesOn) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  start({.has_c = true});
  CHECK(rig->connect());
  StderrCapture log;
  rlimit before;
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  const int next = dup(STDERR_FILENO);  // the lowest that is free: the stranger gets it, b none
  close(next);
  low.rlim_cur = static_cast<rlim_t>(next) + 1;
  LONGS_EQUAL(0, setrlimit(RLIMIT_NOFILE, &low));
  Stranger stranger(this->stranger("c"));
  stranger.dial();
  const HandshakeRecord hello = stranger.hello();
  stranger.say(&hello, sizeof hello);
  const std::string line =
      "accepting a connection of verbs, which is retried: Too many open files; raise ";
  CHECK(rig->poll_until([&] { return count_of(log.text(), line) == 1; }));
  check_that_a_reaches_b();
  // For longer than the log holds a line back. No thread spins meanwhile.
  rusage begin, end;
  getrusage(RUSAGE_SELF, &begin);
  usleep(1'300'000);
  getrusage(RUSAGE_SELF, &end);
  const auto used_us = [](const rusage& usage) {
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(used_us(end) - used_us(begin) < 650'000);
  CHECK(stranger.go_on(hello));
  CHECK(rig->poll_until([&] { return VerbsProvider::is_connected(rig->b.to("c")); }));
  LONGS_EQUAL(1, count_of(log.finish(), line));
  check_that_a_reaches_b();
}

TEST(VerbsLinks, WhoHangsUpBeforeItsAnswerIsNobodysFault) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  start({.has_c = true});
  CHECK(rig->connect());
  StderrCapture log;
  for (int i = 0; i < 10; ++i) {
    Stranger stranger(this->stranger("c"));
    stranger.dial();
    const HandshakeRecord hello = stranger.hello();
    stranger.say(&hello, sizeof hello);
    stranger.hang_up();
    for (int k = 0; k < 100; ++k) rig->poll();
  }
  Stranger good(stranger("c"));
  CHECK(good.connect());
  CHECK(rig->poll_until([&] { return VerbsProvider::is_connected(rig->b.to("c")); }));
  LONGS_EQUAL(0, rig->b.verbs->refused_count());
  LONGS_EQUAL(0, count_of(log.finish(), "refusing a handshake"));
}

TEST(VerbsLinks, HalfARecordIsToldThoughNothingIsHungUp) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  start({.has_c = true});
  CHECK(rig->connect());
  StderrCapture log;
  Stranger stranger(this->stranger("c"));
  stranger.dial();
  stranger.say(kHandshakeMagic, sizeof kHandshakeMagic);
  CHECK_FALSE(stranger.answer().has_value());
  CHECK(stranger.is_hung_up_on);
  STRCMP_CONTAINS("verbs: refusing a handshake with a local socket: an incomplete record",
                  log.finish().c_str());
}

TEST(VerbsLinks, WhatCannotBeConnectedIsToldWithItsReason) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.has_b = false;
  start(options);
  const Fd listener = listen_as("b");
  StderrCapture log;
  Stranger stranger(this->stranger("b"));
  CHECK(stranger.pick_up(listener).has_value());
  HandshakeRecord record = stranger.hello();
  record.kind = static_cast<uint16_t>(HandshakeKind::kWelcome);
  std::memset(record.gid, 0, sizeof record.gid);  // an address that nobody has
  finish_record(record);
  stranger.say(&record, sizeof record);
  CHECK_FALSE(stranger.answer().has_value());
  const std::string text = log.finish();
  STRCMP_CONTAINS(("verbs: connecting to b at " + rig->address() + ": bringing a queue pair of " +
                   rig->device().kind().name + " to RTR (ready to receive): ")
                      .c_str(),
                  text.c_str());
  STRCMP_CONTAINS("; still trying; check that this device's address has a route to the peer's; ",
                  text.c_str());
  unlink(rig->address().c_str() + 5);
}

TEST(VerbsLinks, WhoseDeviceIsLostHasNothingMoreToDo) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.timing.backoff_ns_max = 60 * kNsPerSecond;  // longer than the connection lasts
  start(options);
  CHECK(rig->connect());
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  CHECK(dup2(nothing, rig->device().context()->cmd_fd) >= 0);
  close(nothing);
  CHECK(rig->poll_until([&] {
    return rig->a.to("b").am_send(kHeard, {}) == SendStatus::kGone &&
           rig->b.to("a").am_send(kHeard, {}) == SendStatus::kGone;
  }));
  const uint64_t before = naps_of_connectors();
  usleep(500'000);
  CHECK(naps_of_connectors() - before < 50);
}

TEST(VerbsLinks, TheSmallerMtuIsUsedAndToldWithBoth) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  auto* exported = static_cast<std::byte*>(std::aligned_alloc(4096, 4096));
  start({.exported = {exported, 4096}, .has_c = true});
  CHECK(rig->connect());
  const VerbsExport* open = rig->device().find_export(exported, 4096, kWrite);
  for (const ibv_mtu mtu : {IBV_MTU_256, rig->device().port().mtu}) {
    StderrCapture log;
    Stranger stranger(this->stranger("c"));
    stranger.mtu = mtu;
    CHECK(stranger.connect());
    CHECK(rig->poll_until([&] { return VerbsProvider::is_connected(rig->b.to("c")); }));
    // Packets of another size than expected are refused by the device.
    LONGS_EQUAL(IBV_WC_SUCCESS,
                stranger.access(IBV_WR_RDMA_WRITE, reinterpret_cast<uintptr_t>(exported),
                                open->remote_key, 1000));
    const std::string line = "verbs: sending to c at a local socket: its MTU is 256, that of " +
                             rig->device().port().device + " is ";
    LONGS_EQUAL(mtu == IBV_MTU_256 ? 1 : 0, count_of(log.finish(), line));
    stranger.hang_up();
    CHECK(rig->poll_until([&] { return !VerbsProvider::is_connected(rig->b.to("c")); }));
  }
  rig.reset();
  std::free(exported);
}

TEST(VerbsLinks, AnMtuThatWasChangedCountsFromTheNextHandshakeOn) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  if (std::getenv("BEDPLATE_DISPOSABLE_MACHINE") == nullptr) {
    BP_SKIP("it changes lo, which only the guest may");
  }
  start({.has_c = true});
  CHECK(rig->connect());
  const auto told_mtu = [&] {
    Stranger stranger(this->stranger("c"));
    stranger.dial();
    const HandshakeRecord hello = stranger.hello();
    stranger.say(&hello, sizeof hello);
    const auto welcome = stranger.answer();
    return welcome.has_value() ? welcome->mtu : 0;
  };
  CHECK(set_loopback_mtu(1500));
  const int small = told_mtu();
  CHECK(set_loopback_mtu(65536));
  LONGS_EQUAL(IBV_MTU_1024, small);
  LONGS_EQUAL(rig->device().port().mtu, told_mtu());
  check_that_a_reaches_b();
}

TEST(VerbsLinks, WhatBreaksAsSoonAsItIsUpIsDialedMoreAndMoreSeldom) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  VerbsRigOptions options;
  options.has_b = false;
  options.timing.give_up_ns = 500 * kNsPerMs;
  start(options);
  const Fd listener = listen_as("b");
  Stranger stranger(this->stranger("b"));
  const uint64_t begin_ns = monotonic_ns();
  for (int i = 0; i < 6; ++i) {
    stranger.be_called(listener);
    stranger.hang_up();
  }
  CHECK(monotonic_ns() - begin_ns >= (10 + 20 + 40 + 80 + 160) * kNsPerMs);
  // A peer that was connected only for moments is given up like a peer that never was.
  CHECK(rig->poll_until([&] { return rig->a.to("b").am_send(kHeard, {}) == SendStatus::kGone; }));
  unlink(rig->address().c_str() + 5);
}

TEST(VerbsLinks, AHostThatFallsSilentIsNoticedWithoutAWord) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  if (std::getenv("BEDPLATE_DISPOSABLE_MACHINE") == nullptr) {
    BP_SKIP("it takes the network down, which only the guest may");
  }
  VerbsRigOptions options;
  options.listens_by_tcp = true;
  options.timing.silence_ns_max = kNsPerSecond;
  start(options);
  CHECK(rig->connect());
  check_that_a_reaches_b();
  CHECK(set_loopback(false));
  const bool is_noticed = rig->poll_until(
      [&] { return rig->a.counters.broken.read() == 1 && rig->b.counters.broken.read() == 1; });
  CHECK(set_loopback(true));
  CHECK(is_noticed);
  CHECK(rig->connect());
  check_that_a_reaches_b();
}

TEST(VerbsLinks, WhoAsksForWhatItMayNotIsNamedByItsVictim) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  alignas(4096) static std::byte unused[1];
  auto* exported = static_cast<std::byte*>(std::aligned_alloc(4096, 8192));
  start({.exported = {exported, 4096}, .has_c = true});
  CHECK(rig->connect());
  const VerbsExport* open = rig->device().find_export(exported, 4096, kRead);
  CHECK(open != nullptr);
  struct {
    const void* address;
    uint32_t key;
  } const wrongs[] = {{exported, open->remote_key + 0x1000},
                      {exported + 4096, open->remote_key},
                      {unused, open->remote_key}};
  for (const auto& wrong : wrongs) {
    StderrCapture log;
    Stranger stranger(this->stranger("c"));
    CHECK(stranger.connect());
    CHECK(rig->poll_until([&] { return VerbsProvider::is_connected(rig->b.to("c")); }));
    const uint64_t before = rig->b.counters.broken.read();
    LONGS_EQUAL(IBV_WC_REM_ACCESS_ERR,
                stranger.write(reinterpret_cast<uintptr_t>(wrong.address), wrong.key));
    stranger.hang_up();  // soft RoCE has no event for it
    CHECK(rig->poll_until([&] { return rig->b.counters.broken.read() == before + 1; }));
    const std::string text = log.finish();
    LONGS_EQUAL(1, count_of(text, "verbs: lost the connection to c at a local socket: it asked for "
                                  "memory that it may not access"));
    CHECK(rig->poll_until([&] { return !VerbsProvider::is_connected(rig->b.to("c")); }));
    check_that_a_reaches_b();
  }
  LONGS_EQUAL(0, rig->a.counters.broken.read());
  rig.reset();
  std::free(exported);
}

TEST(VerbsLinks, TheBounceBuffersKeyIsToldToWhoBorrowsOnly) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  start({.has_c = true});
  CHECK(rig->connect());
  Stranger stranger(this->stranger("c"));
  stranger.dial();
  const HandshakeRecord hello = stranger.hello();
  stranger.say(&hello, sizeof hello);
  const auto welcome = stranger.answer();
  CHECK(welcome.has_value());
  const auto* flush_word = reinterpret_cast<const std::byte*>(welcome->flush_address);
  const VerbsExport* told = rig->device().find_export(flush_word, 8, kRead);
  CHECK(told != nullptr);
  LONGS_EQUAL(welcome->flush_key, told->remote_key);
  LONGS_EQUAL(4096, told->memory.size());  // its page, and nothing behind it
}
