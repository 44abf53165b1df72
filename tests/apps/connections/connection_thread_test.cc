// Connections served by one thread, with sessions that echo lines: connections beyond the number of
// sessions, clients that may not ask, answers made by other threads, and ends.
// tests/system/http_test.py has the slow tests.
#include "apps/connections/connection_thread.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/death_test.h"
#include "tests/support/patience.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// Echoes each line. It ends after "end", and answers "wait" once may_answer is set. The beginning
// of a line is an incomplete request.
class LineEcho final : public ConnectionSession {
 public:
  std::atomic<int> open_count{0};  // how often it was opened
  std::atomic<bool> is_open{false};
  std::atomic<bool> is_there{false};  // it has received "wait"
  std::atomic<bool> may_answer{false};
  std::atomic<bool> holds{false};

  void open(int) noexcept override {
    said_.clear();
    bytes_ = 0;
    is_ended_ = waits_ = false;
    is_open = true;
    ++open_count;
  }
  void closed() noexcept override { is_open = false; }
  std::span<char> room() noexcept override {
    return is_ended_ || !said_.empty() ? std::span<char>() : std::span(heard_).subspan(bytes_);
  }
  void received(size_t bytes) noexcept override {
    bytes_ += bytes;
    const std::string_view heard(heard_, bytes_);
    if (!heard.ends_with('\n')) return;
    if (heard == "wait\n") return wait();
    is_ended_ = heard == "end\n";
    said_.assign(heard);
    bytes_ = 0;
  }
  std::string_view output() const noexcept override { return said_; }
  void sent(size_t bytes) noexcept override { said_.erase(0, bytes); }
  bool is_over() const noexcept override { return is_ended_; }
  bool is_in_request() const noexcept override { return bytes_ > 0 && !waits_; }
  void time_out() noexcept override { is_ended_ = true; }
  bool is_waiting() const noexcept override { return waits_; }
  void look(uint64_t) noexcept override {
    if (!may_answer) return;
    waits_ = false;
    bytes_ = 0;
    said_ = "answered\n";
  }
  bool is_held() const noexcept override { return holds; }

 private:
  void wait() noexcept {
    waits_ = true;
    is_there = true;
  }

  char heard_[64];
  size_t bytes_ = 0;
  std::string said_;
  bool is_ended_ = false;
  bool waits_ = false;
};

std::string_view too_many_words(void*, std::span<char>) noexcept { return "too many\n"; }

}  // namespace

TEST_GROUP(ConnectionThread) {
  static constexpr size_t kSlotCount = 2;

  char root[64] = "/tmp/bedplate-connections-XXXXXX";
  ServedCounters counters;
  std::vector<Fd> listeners;
  LineEcho sessions[kSlotCount];
  std::vector<ConnectionSession*> slots;
  std::unique_ptr<ConnectionThread> thread = std::make_unique<ConnectionThread>();
  bool refuses = false;

  void setup() override {
    CHECK(mkdtemp(root) != nullptr);
    listeners.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un there = address();
    LONGS_EQUAL(
        0, bind(listeners[0].number(), reinterpret_cast<const sockaddr*>(&there), sizeof there));
    LONGS_EQUAL(0, listen(listeners[0].number(), 8));
    for (LineEcho& session : sessions) slots.push_back(&session);
  }
  void teardown() override {
    thread.reset();
    unlink(address().sun_path);
    LONGS_EQUAL(0, rmdir(root));
  }
  sockaddr_un address() {
    sockaddr_un there = {};
    there.sun_family = AF_UNIX;
    std::snprintf(there.sun_path, sizeof there.sun_path, "%s/s", root);
    return there;
  }
  ConnectionThread::Options options() {
    return {.name = "test",
            .counters = &counters,
            .too_many = &too_many_words,
            .refusal = [](void* context, int, std::span<char>) noexcept -> std::string_view {
              return *static_cast<bool*>(context) ? "not you\n" : "";
            },
            .context = &refuses};
  }
  void serve() {
    CHECK(thread->create(options(), listeners, slots).ok());
    thread->begin();
  }
  Fd connected() {
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un there = address();
    LONGS_EQUAL(0, connect(fd.number(), reinterpret_cast<const sockaddr*>(&there), sizeof there));
    return fd;
  }
  void say(const Fd& fd, std::string_view words) {
    LONGS_EQUAL(words.size(), send(fd.number(), words.data(), words.size(), MSG_NOSIGNAL));
  }
  // Returns the next line; empty: the other end sends nothing more.
  std::string heard(const Fd& fd) {
    std::string line;
    char byte = 0;
    while (!line.ends_with('\n')) {
      CHECK(has_input(fd.number()));
      if (recv(fd.number(), &byte, 1, 0) <= 0) break;
      line += byte;
    }
    return line;
  }
  // Checks that the client gets `word` and an orderly end although it sends a request. If the
  // thread closed without reading the request, the kernel would reset the connection, and `word`
  // might be lost.
  void expect_told_though_it_asks(const Fd& fd, const char* word) {
    say(fd, std::string(3000, 'x'));
    STRCMP_EQUAL(word, heard(fd).c_str());
    char byte = 0;
    CHECK(has_input(fd.number()));
    LONGS_EQUAL(0, recv(fd.number(), &byte, 1, 0));  // the end, and no error
  }
  std::string asked(const Fd& fd, std::string_view words) {
    say(fd, words);
    return heard(fd);
  }
};

TEST(ConnectionThread, AnswersOneAfterTheOtherAndEnds) {
  serve();
  const Fd client = connected();
  STRCMP_EQUAL("one\n", asked(client, "one\n").c_str());
  STRCMP_EQUAL("two\n", asked(client, "two\n").c_str());
  STRCMP_EQUAL("end\n", asked(client, "end\n").c_str());
  STRCMP_EQUAL("", heard(client).c_str());
  // The thread drops this line; the send fails if the connection is already closed.
  (void)!send(client.number(), "late\n", 5, MSG_NOSIGNAL);
  CHECK(eventually([&] { return !sessions[0].is_open; }));  // the connection lingers for a second
  LONGS_EQUAL(12, counters.sent_bytes.read());
  LONGS_EQUAL(1, counters.connections_peak.read());
  CHECK(eventually([&] { return counters.connections.read() == 0; }));
  LONGS_EQUAL(0, counters.timeouts.read());
}

TEST(ConnectionThread, AnswersNothingBeforeItBegins) {
  CHECK(thread->create(options(), listeners, slots).ok());
  const Fd client = connected();
  say(client, "one\n");
  thread->wake();
  thread->wake();
  LONGS_EQUAL(0, sessions[0].open_count);
  thread->begin();
  STRCMP_EQUAL("one\n", heard(client).c_str());
}

TEST(ConnectionThread, TheSlotOfASilentOneIsANewOnes) {
  serve();
  const Fd first = connected();
  STRCMP_EQUAL("a\n", asked(first, "a\n").c_str());
  const Fd second = connected();
  STRCMP_EQUAL("b\n", asked(second, "b\n").c_str());
  const Fd third = connected();
  STRCMP_EQUAL("c\n", asked(third, "c\n").c_str());
  STRCMP_EQUAL("", heard(first).c_str());
  STRCMP_EQUAL("b\n", asked(second, "b\n").c_str());
  LONGS_EQUAL(1, counters.turned_away.read());
  LONGS_EQUAL(2, counters.connections_peak.read());
}

TEST(ConnectionThread, OneTooManyIsTold) {
  serve();
  const Fd first = connected();
  const Fd second = connected();
  // Both have begun a request.
  say(first, "wait\n");
  CHECK(eventually([&] { return sessions[0].is_there.load(); }));
  say(second, "wait\n");
  CHECK(eventually([&] { return sessions[1].is_there.load(); }));
  const Fd third = connected();
  expect_told_though_it_asks(third, "too many\n");
  LONGS_EQUAL(1, counters.turned_away.read());
  // More clients than the thread still reads from after it has turned them away.
  std::vector<Fd> others;
  for (uint32_t i = 0; i < ConnectionThread::kLeavingMax + 2; ++i) others.push_back(connected());
  for (const Fd& other : others) {
    STRCMP_EQUAL("too many\n", heard(other).c_str());
    STRCMP_EQUAL("", heard(other).c_str());
  }
}

TEST(ConnectionThread, OneThatMayNotAskIsToldAndHasNoSlot) {
  refuses = true;
  serve();
  const Fd client = connected();
  expect_told_though_it_asks(client, "not you\n");
  LONGS_EQUAL(0, sessions[0].open_count);
  LONGS_EQUAL(0, counters.turned_away.read());
}

TEST(ConnectionThread, AnAnswerMadeElsewhereIsSentWhenItIsWoken) {
  serve();
  const Fd client = connected();
  say(client, "wait\n");
  CHECK(eventually([&] { return sessions[0].is_there.load(); }));
  sessions[0].may_answer = true;
  thread->wake();
  STRCMP_EQUAL("answered\n", heard(client).c_str());
  STRCMP_EQUAL("more\n", asked(client, "more\n").c_str());
}

TEST(ConnectionThread, ASlotThatIsHeldIsNobodys) {
  sessions[0].holds = true;
  serve();
  const Fd client = connected();
  STRCMP_EQUAL("a\n", asked(client, "a\n").c_str());
  LONGS_EQUAL(0, sessions[0].open_count);
  LONGS_EQUAL(1, sessions[1].open_count);
}

TEST(ConnectionThread, AnEndClosesWhatIsOpen) {
  serve();
  const Fd client = connected();
  STRCMP_EQUAL("a\n", asked(client, "a\n").c_str());
  thread->stop();
  thread->stop();  // the thread has already ended
  CHECK_FALSE(sessions[0].is_open);
  STRCMP_EQUAL("", heard(client).c_str());
}

#if BP_DEBUG
TEST(ConnectionThread, NobodyWakesOneThatIsNotThere) {
  BP_CHECK_DIES("wake_.is_open()", thread->wake());
}
#endif
