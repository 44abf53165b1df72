// A standing line with its sessions, on a loop of its own.
#include "transport/sockets/line_server.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/patience.h"
#include "transport/sockets/socket_thread.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Echoes each line. After "over" the session is over, and waits until `is_let_go`. "flood" is
// answered with more than a socket buffers.
class Echo final : public StreamSession {
 public:
  Echo(std::atomic<bool>& is_let_go, EventLoop& loop)
      : StreamSession(input_, output_), is_let_go_(is_let_go), loop_(loop) {
    loop.own_timers().reserve_more(1);
  }
  void late() noexcept override {
    take(arrived().size());
    say("late\n");
  }

 private:
  StreamStep work(uint64_t) noexcept override {
    const std::string_view line = arrived_line();
    if (line.empty()) return StreamStep::kStarved;
    must_wait_ = line == "over\n";
    if (line == "flood\n") {
      lend(flood_, this);
    } else {
      say(line);
    }
    if (must_wait_) end();
    take(line.size());
    return StreamStep::kTaken;
  }
  void left() noexcept override {
    if (!std::exchange(must_wait_, false) || is_let_go_) return;
    wait();
    look();
  }
  void look() noexcept {
    if (is_let_go_) return resume(loop_.now_ns());
    loop_.own_timers().arm(timer_, loop_.now_ns() + kNsPerMs);
  }

  const std::atomic<bool>& is_let_go_;
  EventLoop& loop_;
  bool must_wait_ = false;
  Timer timer_ = {.expired = [](void* self) noexcept { static_cast<Echo*>(self)->look(); },
                  .context = this};
  const std::string flood_ = std::string(16 << 20, 'f');
  char input_[64];
  char output_[2 * StreamSession::kStepTextBytes];
};

// A line over a socket pair; the test has its far end.
class FakeStandingLine final : public StandingLine {
 public:
  Fd open() noexcept override {
    const std::lock_guard lock(mutex_);
    ++opened_count;
    int ends[2];
    if (!is_there || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return Fd();
    set_blocking(ends[0], false);
    far_ = Fd(ends[1]);
    is_new_ = true;
    return Fd(ends[0]);
  }
  void lost(int error_number) noexcept override {
    last_error = error_number;
    ++lost_count;
  }
  void drop_output(int) noexcept override { ++dropped_count; }
  void close(Fd* fd) noexcept override {
    ++closed_count;
    fd->close();
  }

  // Waits until the line is opened, which the server tries once a second. Returns its far end.
  Fd take_far_end() {
    Fd far;
    test::eventually([&] {
      const std::lock_guard lock(mutex_);
      if (is_new_) far = std::move(far_);
      is_new_ = false;
      return far.is_open();
    });
    return far;
  }

  std::atomic<bool> is_there{true};
  std::atomic<int> opened_count{0};
  std::atomic<int> lost_count{0};
  std::atomic<int> last_error{-1};
  std::atomic<int> dropped_count{0};
  std::atomic<int> closed_count{0};

 private:
  std::mutex mutex_;
  Fd far_;
  bool is_new_ = false;
};

std::string heard_line(const Fd& fd) {
  std::string line;
  char byte = 0;
  while ((line.empty() || line.back() != '\n') && test::has_input(fd.number())) {
    if (read(fd.number(), &byte, 1) != 1) return line + "(end)";
    line += byte;
  }
  return line;
}

std::string echo_of(const Fd& fd, const std::string& line) {
  if (write(fd.number(), line.data(), line.size()) < 0) return "(not sent)";
  return heard_line(fd);
}

}  // namespace

TEST_GROUP(LineServer) {
  std::atomic<bool> is_let_go{false};
  FakeStandingLine line;
  Counter sent_bytes;
  Counter timed_out;
  std::vector<std::unique_ptr<Echo>> sessions;
  std::vector<StreamSession*> all;
  LineServer server;
  SocketThread thread;

  void begin(uint64_t slow_ns_max = 0) {
    CHECK(thread
              .create({.name = "test",
                       .watch_count_max = 1,
                       .begin = [](void* its) noexcept { static_cast<LineServer*>(its)->start(); },
                       .end = [](void* its) noexcept { static_cast<LineServer*>(its)->end(); },
                       .context = &server})
              .ok());
    for (int i = 0; i < 2; ++i) {
      sessions.push_back(std::make_unique<Echo>(is_let_go, thread.loop()));
      all.push_back(sessions.back().get());
    }
    server.create({.loop = &thread.loop(),
                   .sockets = &thread.sockets(),
                   .line = &line,
                   .greeting = "\n",
                   .slow_ns_max = slow_ns_max,
                   .sent_bytes = &sent_bytes,
                   .timed_out = &timed_out},
                  all);
    thread.begin();
  }
  void teardown() override { thread.stop(); }
};

TEST(LineServer, ServesALine) {
  begin();
  const Fd far = line.take_far_end();
  STRCMP_EQUAL("\n", heard_line(far).c_str());
  for (int i = 0; i < 3; ++i) STRCMP_EQUAL("line\n", echo_of(far, "line\n").c_str());
  LONGS_EQUAL(6, write(far.number(), "a\nb\nc\n", 6));
  for (const char* one : {"a\n", "b\n", "c\n"}) STRCMP_EQUAL(one, heard_line(far).c_str());
  thread.stop();
  CHECK(server.is_valid());
  CHECK_EQUAL(1 + 3 * 5 + 6, sent_bytes.read());
  LONGS_EQUAL(1, line.opened_count);
  LONGS_EQUAL(1, line.closed_count);
  LONGS_EQUAL(0, line.lost_count);
}

TEST(LineServer, WaitsForALineThatIsNotThere) {
  line.is_there = false;
  begin();
  CHECK(test::eventually([&] { return line.opened_count >= 2; }));
  line.is_there = true;
  const Fd far = line.take_far_end();
  STRCMP_EQUAL("\n", heard_line(far).c_str());
  STRCMP_EQUAL("line\n", echo_of(far, "line\n").c_str());
}

TEST(LineServer, OpensALineAgain) {
  begin();
  Fd far = line.take_far_end();
  STRCMP_EQUAL("\n", heard_line(far).c_str());  // unread bytes would make the close an error
  far.close();
  CHECK(test::eventually([&] { return line.lost_count == 1; }));
  LONGS_EQUAL(0, line.last_error);
  far = line.take_far_end();
  STRCMP_EQUAL("\n", heard_line(far).c_str());
  STRCMP_EQUAL("a\n", echo_of(far, "a\n").c_str());
  line.is_there = false;
  const int count = line.opened_count;
  far.close();
  CHECK(test::eventually([&] { return line.opened_count >= count + 2; }));
  line.is_there = true;
  far = line.take_far_end();
  STRCMP_EQUAL("\n", heard_line(far).c_str());
  STRCMP_EQUAL("b\n", echo_of(far, "b\n").c_str());
  LONGS_EQUAL(2, line.lost_count);
  LONGS_EQUAL(2, line.closed_count);
}

// If its session is over and waits, the line goes on with another session, once one is free.
TEST(LineServer, ALineOutlivesItsSession) {
  begin();
  const Fd far = line.take_far_end();
  STRCMP_EQUAL("\n", heard_line(far).c_str());
  STRCMP_EQUAL("over\n", echo_of(far, "over\n").c_str());
  STRCMP_EQUAL("\n", heard_line(far).c_str());
  STRCMP_EQUAL("a\n", echo_of(far, "a\n").c_str());
  STRCMP_EQUAL("over\n", echo_of(far, "over\n").c_str());
  LONGS_EQUAL(3, write(far.number(), "b\n\n", 3));
  is_let_go = true;
  STRCMP_EQUAL("\n", heard_line(far).c_str());
  STRCMP_EQUAL("b\n", heard_line(far).c_str());
  LONGS_EQUAL(1, line.opened_count);
  LONGS_EQUAL(0, line.lost_count);
  LONGS_EQUAL(0, line.closed_count);
}

// The line stays open, and its session goes on.
TEST(LineServer, HalfALineIsLate) {
  begin(kNsPerMs);
  const Fd far = line.take_far_end();
  STRCMP_EQUAL("\n", heard_line(far).c_str());
  STRCMP_EQUAL("late\n", echo_of(far, "half").c_str());
  CHECK(timed_out.read() >= 1);
  LONGS_EQUAL(0, line.lost_count);
  LONGS_EQUAL(0, line.dropped_count);
}

TEST(LineServer, OutputThatNobodyReadsIsDropped) {
  begin(kNsPerMs);
  const Fd far = line.take_far_end();
  STRCMP_EQUAL("\n", heard_line(far).c_str());
  LONGS_EQUAL(6, write(far.number(), "flood\n", 6));
  CHECK(test::eventually([&] { return line.dropped_count >= 1; }));
  CHECK(timed_out.read() >= 1);
  // This line drops nothing: the sent part of the flood comes first, then the greeting.
  std::string heard;
  while (!heard.ends_with('\n')) {
    char part[4096];
    const ssize_t got = read(far.number(), part, sizeof part);
    CHECK(got > 0);
    heard.append(part, static_cast<size_t>(got));
  }
  CHECK(heard.size() < size_t{16} << 20);
  LONGS_EQUAL(0, line.lost_count);
  LONGS_EQUAL(0, line.closed_count);
}
