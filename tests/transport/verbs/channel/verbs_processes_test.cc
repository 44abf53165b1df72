// Verbs between processes: a peer that sleeps in its event loop, a peer that is killed, and a link
// that is down for a while.
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "tests/transport/loop/plain_sleeper.h"
#include "tests/transport/verbs/verbs_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr AmId kData = 3;
constexpr AmId kMemory = 5;  // the peer describes memory that it exports
constexpr char kAddressVariable[] = "BEDPLATE_VERBS_ADDRESS";
constexpr uint64_t kExportBytes = 4 * kMiB;

std::span<const std::byte> view(const std::string& text) { return std::as_bytes(std::span(text)); }

// Sends back each message, in order. Answers a message kMemory with the export's description.
struct Echo {
  std::span<std::byte> exported;
  Endpoint* to = nullptr;
  std::deque<std::pair<AmId, std::string>> answers = {};

  void listen(Messenger& messenger) {
    for (AmId id : {kData, kMemory}) {
      messenger.set_handler(id, {[](void* self, const Message& message) noexcept {
                                   static_cast<Echo*>(self)->answer(message);
                                 },
                                 this});
    }
  }
  void answer(const Message& message) {
    to = &message.from;
    RemoteMemory memory;
    std::span<const std::byte> payload = message.payload;
    if (message.id == kMemory) {
      memory = message.from.expose(exported).take();
      payload = std::as_bytes(std::span(&memory, 1));
    }
    answers.emplace_back(
        message.id, std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
    send();
  }
  // Sends answers as long as there is room.
  void send() {
    while (!answers.empty() &&
           to->am_send(answers.front().first, view(answers.front().second)) == SendStatus::kDone) {
      answers.pop_front();
    }
  }
};

// The appliance b in a process of its own, which may be killed.
class Peer {
 public:
  explicit Peer(const std::string& address)
      : variable_(std::string(kAddressVariable) + "=" + address),
        method_(std::string(kConnectVariable) + (is_by_manager() ? "=rdma_cm" : "=socket")) {
    char* words[] = {const_cast<char*>("bedplate-tests"), const_cast<char*>("--probe"),
                     const_cast<char*>("verbs_peer"), nullptr};
    char boot_bytes[] = "BEDPLATE_BOOT_BYTES=64 MiB";
    char* variables[] = {variable_.data(), method_.data(), boot_bytes, nullptr};
    process_ = fork();
    if (process_ == 0) {
      execve("/proc/self/exe", words, variables);
      _exit(1);
    }
  }
  ~Peer() { end(); }
  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  std::string variable_;  // stays: the child reads the parent's heap until it has called exec
  std::string method_;
  pid_t process_ = 0;
};

// The address at which a peer listens.
std::string address_of_peer() {
  if (is_by_manager()) return std::string("tcp:") + kManagedAddress + ":19999";
  return "unix:/tmp/bedplate-verbs-peer-" + std::to_string(getpid());
}

}  // namespace

BP_PROBE(verbs_peer) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  void* exported = std::malloc(kExportBytes);
  VerbsRig rig({.exported = {static_cast<std::byte*>(exported), kExportBytes},
                .has_a = false,
                .address = std::getenv(kAddressVariable)});
  Echo echo{{static_cast<std::byte*>(exported), kExportBytes}};
  echo.listen(*rig.b.messenger);
  for (;;) {
    const bool is_idle = rig.b.messenger->poll(64) == 0;
    echo.send();
    if (is_idle) rig.b.messenger->wait(echo.answers.empty() ? kNsPerSecond : kNsPerMs);
  }
}

TEST_GROUP(VerbsProcesses) {
  std::vector<std::string> answers;
  RemoteMemory memory;

  void listen(VerbsRig & rig) {
    const AmHandler handler = {
        [](void* self, const Message& message) noexcept {
          auto& test = *static_cast<decltype(this)>(self);
          if (message.id == kMemory) {
            std::memcpy(&test.memory, message.payload.data(), sizeof test.memory);
            return;
          }
          test.answers.emplace_back(reinterpret_cast<const char*>(message.payload.data()),
                                    message.payload.size());
        },
        this};
    rig.a.messenger->set_handler(kData, handler);
    rig.a.messenger->set_handler(kMemory, handler);
  }
  bool send(VerbsRig & rig, AmId id, const std::string& text) {
    return rig.poll_until(
        [&] { return rig.a.to("b").am_send(id, view(text)) == SendStatus::kDone; });
  }
  // One round trip.
  bool reaches(VerbsRig & rig, const std::string& text) {
    const size_t before = answers.size();
    if (!send(rig, kData, text)) return false;
    return rig.poll_until([&] { return answers.size() > before; }) && answers.back() == text;
  }
};

TEST(VerbsProcesses, AKilledPeerIsNoticedAndItsSuccessorIsReached) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  const std::string address = address_of_peer();
  VerbsRig rig({.has_b = false, .address = address});
  listen(rig);
  for (int round = 0; round < 3; ++round) {
    Peer peer(address);
    CHECK(reaches(rig, "hello " + std::to_string(round)));
    CHECK(send(rig, kMemory, ""));
    CHECK(rig.poll_until([&] { return memory.bytes == kExportBytes; }));
    // Killed under traffic: each operation ends once.
    struct Put : Completion {
      uint32_t count = 0;
      Outcome outcome = Outcome::kDone;
    };
    std::vector<Put> puts(40);
    constexpr size_t kBeforeItsEnd = 10;
    void* block = std::malloc(kExportBytes);
    size_t begun = 0;
    for (Put& put : puts) {
      put.call = [](Completion& self, Outcome outcome) noexcept {
        ++static_cast<Put&>(self).count;
        static_cast<Put&>(self).outcome = outcome;
      };
      if (&put == &puts[kBeforeItsEnd]) peer.end();
      const SendStatus status =
          rig.a.to("b").put({static_cast<std::byte*>(block), 200'000}, memory, &put);
      if (status == SendStatus::kPending) ++begun;
      rig.poll();
    }
    CHECK(begun > kBeforeItsEnd);
    CHECK(rig.poll_until([&] {
      size_t ended = 0;
      for (const Put& put : puts) ended += put.count;
      return ended == begun && !VerbsProvider::is_connected(rig.a.to("b"));
    }));
    std::free(block);
    for (const Put& put : puts) {
      CHECK(put.count <= 1);
      // The peer was gone, so the put cannot be done.
      if (&put >= &puts[kBeforeItsEnd] && put.count == 1) CHECK(put.outcome != Outcome::kDone);
    }
    memory = {};
  }
  Peer successor(address);
  CHECK(reaches(rig, "and on"));
  LONGS_EQUAL(3, rig.a.counters.broken.read());
  unlink(address.c_str() + 5);
}

TEST(VerbsProcesses, ALinkThatWasDownLosesNothingAndBringsNothingTwice) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  if (std::getenv("BEDPLATE_DISPOSABLE_MACHINE") == nullptr) {
    BP_SKIP("it takes the network down, which only the guest may");
  }
  if (is_by_manager()) BP_SKIP("soft RoCE that was down has no connection manager any more");
  const std::string address = address_of_peer();
  VerbsRig rig({.has_b = false, .address = address});
  listen(rig);
  Peer peer(address);
  CHECK(reaches(rig, "hello"));
  answers.clear();
  size_t sent = 0;
  const auto traffic = [&](uint64_t duration_ns) {
    const uint64_t end_ns = monotonic_ns() + duration_ns;
    while (monotonic_ns() < end_ns) {
      if (rig.a.to("b").am_send(kData, view(std::to_string(sent))) == SendStatus::kDone) ++sent;
      rig.poll();
      usleep(500);
    }
  };
  for (uint64_t down_ns : {kNsPerSecond / 10, kNsPerSecond, 3 * kNsPerSecond}) {
    traffic(kNsPerSecond / 5);
    CHECK(set_loopback(false));
    traffic(down_ns);
    CHECK(set_loopback(true));
  }
  traffic(kNsPerSecond / 5);
  CHECK(rig.poll_until([&] { return answers.size() >= sent; }));
  for (int i = 0; i < 1000; ++i) rig.poll();
  LONGS_EQUAL(sent, answers.size());
  for (size_t i = 0; i < sent; ++i) STRCMP_EQUAL(std::to_string(i).c_str(), answers[i].c_str());
  CHECK(rig.a.counters.broken.read() > 0);
  std::printf("\nlink down three times: %zu messages there and back, %llu connections lost, "
              "%llu messages sent again\n",
              sent, static_cast<unsigned long long>(rig.a.counters.broken.read()),
              static_cast<unsigned long long>(rig.a.counters.resent.read()));
  unlink(address.c_str() + 5);
}

TEST(VerbsProcesses, AnEventLoopThatSleepsIsWokenByItsPeer) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  EventLoop loop;
  EventLoopCounters counters;
  CHECK(loop.create({.spin_ns = 100'000, .counters = &counters}).ok());
  PlainSleeper sleeper(loop);
  loop.set_sleeper(sleeper);
  VerbsRig rig({.loop_bell_of_b = &loop.doorbell()});
  Echo echo{};
  echo.listen(*rig.b.messenger);
  listen(rig);
  CHECK(rig.connect());
  loop.add_source(*rig.b.messenger, 64);
  std::thread shard([&] { loop.run(); });
  const auto poll_a = [&](const std::function<bool()>& is_done) {
    const uint64_t deadline_ns = monotonic_ns() + test::kPatienceNs;
    while (!is_done()) {
      if (monotonic_ns() > deadline_ns) return false;
      rig.a.messenger->poll(64);
      usleep(100);
    }
    return true;
  };
  uint64_t sleeps = 0;
  for (int i = 0; i < 10; ++i) {
    CHECK(eventually([&] { return counters.sleeps.read() > sleeps; }));
    sleeps = counters.sleeps.read();
    const std::string text = std::to_string(i);
    CHECK(poll_a([&] { return rig.a.to("b").am_send(kData, view(text)) == SendStatus::kDone; }));
    CHECK(poll_a([&] { return answers.size() == static_cast<size_t>(i) + 1; }));
  }
  loop.stop();
  shard.join();
  CHECK(sleeper.sleep_count >= 5);
  CHECK_FALSE(sleeper.overslept);
}
