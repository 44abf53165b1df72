// A standing line, served in addition to the clients that connect.
#include "apps/connections/standing_line.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "apps/connections/connection_thread.h"
#include "tests/support/fake_root.h"
#include "tests/support/patience.h"
#include "transport/sockets/socket_address.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Echoes each line. After "over" the session is over, and held until `is_let_go`.
class EchoSession final : public ConnectionSession {
 public:
  explicit EchoSession(std::atomic<bool>& is_let_go) noexcept : is_let_go_(is_let_go) {}

  void open(int) noexcept override {
    is_over_ = false;
    in_bytes_ = out_bytes_ = 0;
  }
  void begin_line() noexcept override {
    out_[0] = '\n';
    out_bytes_ = 1;
  }
  std::span<char> room() noexcept override {
    return is_over_ || out_bytes_ > 0 ? std::span<char>{} : std::span(in_).subspan(in_bytes_);
  }
  void received(size_t bytes) noexcept override {
    in_bytes_ += bytes;
    if (in_[in_bytes_ - 1] != '\n') return;
    is_over_ = is_held_ = std::string_view(in_, in_bytes_) == "over\n";
    std::memcpy(out_, in_, in_bytes_);
    out_bytes_ = in_bytes_;
    in_bytes_ = 0;
  }
  std::string_view output() const noexcept override { return {out_, out_bytes_}; }
  void sent(size_t bytes) noexcept override {
    std::memmove(out_, out_ + bytes, out_bytes_ - bytes);
    out_bytes_ -= bytes;
  }
  bool is_over() const noexcept override { return is_over_; }
  bool is_in_request() const noexcept override { return in_bytes_ > 0; }
  void time_out() noexcept override { in_bytes_ = 0; }
  bool is_held() const noexcept override { return is_held_ && !is_let_go_; }

 private:
  const std::atomic<bool>& is_let_go_;
  bool is_over_ = false;
  bool is_held_ = false;
  size_t in_bytes_ = 0;
  size_t out_bytes_ = 0;
  char in_[64] = {};
  char out_[64] = {};
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

  // Waits until the line is opened, which the thread tries once a second. Returns its far end.
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

TEST_GROUP(StandingLine) {
  test::FakeRoot root;
  ServedCounters counters;
  std::atomic<bool> is_let_go{false};
  FakeStandingLine line;
  std::vector<Fd> listeners;
  std::vector<std::unique_ptr<EchoSession>> sessions;
  SocketAddress address;
  ConnectionThread thread;

  void begin(size_t session_count) {
    address.kind = SocketAddress::Kind::kUnix;
    address.path = root.path() + "/socket";
    auto listening = listen_at(address);
    CHECK(listening.ok());
    listeners.push_back(listening.take());
    std::vector<ConnectionSession*> all;
    for (size_t i = 0; i < session_count; ++i) {
      all.push_back(sessions.emplace_back(std::make_unique<EchoSession>(is_let_go)).get());
    }
    CHECK(thread
              .create({.name = "test",
                       .counters = &counters,
                       .too_many = [](void*, std::span<char>) noexcept -> std::string_view {
                         return "too many\n";
                       },
                       .line = &line},
                      listeners, all)
              .ok());
    thread.begin();
  }
  void teardown() override { thread.stop(); }
  Fd client() {
    auto connected = start_connecting(address);
    CHECK(connected.ok());
    return connected.take();
  }
};

TEST(StandingLine, ServesALineBesideClients) {
  begin(2);
  const Fd far = line.take_far_end();
  STRCMP_EQUAL("\n", heard_line(far).c_str());
  const Fd one = client();
  for (int i = 0; i < 3; ++i) {
    STRCMP_EQUAL("line\n", echo_of(far, "line\n").c_str());
    STRCMP_EQUAL("client\n", echo_of(one, "client\n").c_str());
  }
  // The line does not count as a connection, and clients never get its session.
  LONGS_EQUAL(1, counters.connections_peak.read());
  const Fd two = client();
  STRCMP_EQUAL("(end)", heard_line(one).c_str());
  STRCMP_EQUAL("client\n", echo_of(two, "client\n").c_str());
  STRCMP_EQUAL("line\n", echo_of(far, "line\n").c_str());
  thread.stop();
  LONGS_EQUAL(1, line.opened_count);
  LONGS_EQUAL(1, line.closed_count);
  LONGS_EQUAL(0, line.lost_count);
}

TEST(StandingLine, KeepsASlotForALineThatIsNotThere) {
  line.is_there = false;
  begin(2);
  const Fd one = client();
  STRCMP_EQUAL("client\n", echo_of(one, "client\n").c_str());
  const Fd two = client();
  STRCMP_EQUAL("(end)", heard_line(one).c_str());
  STRCMP_EQUAL("client\n", echo_of(two, "client\n").c_str());
  line.is_there = true;
  const Fd far = line.take_far_end();
  STRCMP_EQUAL("\n", heard_line(far).c_str());
  STRCMP_EQUAL("line\n", echo_of(far, "line\n").c_str());
  STRCMP_EQUAL("client\n", echo_of(two, "client\n").c_str());
}

TEST(StandingLine, OpensALineAgain) {
  begin(2);
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

// If its session is over and held, the line continues with another session, once one is free.
TEST(StandingLine, ALineOutlivesItsSession) {
  begin(2);
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
