// A pool that can be joined, its server, and processes that join it.
//
// The owner is the test process, so that a test sees the server's events and the tables directly.
// The joiners are forked children, which first unmap the owner's mappings: any later mapping at
// these addresses comes from joining. The children allocate nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pinned_pool/join/join_server.h"
#include "pinned_pool/join/joined_pool.h"
#include "platform/clock.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/pool_fixture.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

class FakeKeeper final : public GroupKeeper {
 public:
  void reset_member(uint32_t) noexcept override { ++resets; }
  void stop_writing(uint32_t) noexcept override { ++stops; }
  bool is_forgotten(uint32_t, uint64_t) noexcept override { return forgets; }
  void wake_members() noexcept override { ++wakes; }

  std::atomic<bool> forgets{true};
  std::atomic<uint32_t> resets{0};
  std::atomic<uint32_t> stops{0};  // members that can write no more
  std::atomic<uint32_t> wakes{0};
};

// A child process. The destructor kills it, unless status() has reported its end.
class Child {
 public:
  explicit Child(pid_t pid) noexcept : pid_(pid) {}
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  ~Child() { kill_and_wait(); }

  pid_t pid() const noexcept { return pid_; }
  void kill_now() const noexcept { ::kill(pid_, SIGKILL); }
  void kill_and_wait() noexcept {
    if (pid_ == 0) return;
    kill_now();
    (void)status();
  }
  // Waits until the process ends. Returns the exit code, or minus the signal.
  int status() noexcept {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

inline const uid_t kOtherUser = getuid() == 65534 ? 65533 : 65534;

// In a child: gives up root.
inline void become_other_user() {
  BP_PROBE_CHECK(setgroups(0, nullptr) == 0 && setresgid(kOtherUser, kOtherUser, kOtherUser) == 0 &&
                 setresuid(kOtherUser, kOtherUser, kOtherUser) == 0);
}

class JoinRig {
 public:
  static constexpr uint64_t kPatienceNs = test::kPatienceNs;
  using Kind = JoinEvent::Kind;

  explicit JoinRig(uint32_t member_count = 8) : pool_id(make_pool_id().take()) {
    std::snprintf(path, sizeof path, "/tmp/bedplate-join-%d.sock", getpid());
    std::filesystem::remove(path);
    members = create("members", align_up(MembersTable::bytes_for(member_count), 4 * kKiB));
    fifo = create("fifo:mesh", 64 * kKiB);
    buffers = create("buffers", 16 * kKiB);
    heaps = {create("heap:relay#0", 4 * kMiB), create("heap:relay#1", 4 * kMiB)};
    table = MembersTable::create(members->memory(), member_count, pool_id);
    options.socket_path = path;
    options.pool = &*pool;
    options.pool_id = pool_id;
    // Long enough for a busy machine; tests of the timeouts set shorter ones.
    options.request_timeout_ns = options.ready_timeout_ns = kPatienceNs;
    options.groups = {{"mesh", table, std::as_bytes(std::span("layout", 6)), fifo, &keeper}};
    options.grants = {{.name = MemberName("relay"),
                       .max_count = 2,
                       .members_max = 3,
                       .terms = std::as_bytes(std::span("terms", 5)),
                       .segments = {{buffers, false}},
                       .heaps = heaps}};
    options.on_event = [this](const JoinEvent& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
      happened_.notify_all();
    };
  }
  ~JoinRig() {
    if (server != nullptr) server->stop();
    std::filesystem::remove(path);
  }

  Segment* create(const char* owner, uint64_t bytes) {
    return pool->create_segment(owner, bytes, PageSize::k4KiB, 1).take();
  }
  void start() {
    create_server();
    start_server();
  }
  // From now on processes can connect; nothing is answered yet.
  void create_server() {
    auto created = JoinServer::create(options);
    CHECK_TEXT(created.ok(), created.ok() ? "" : created.error().answer);
    server = created.take();
  }
  void start_server() {
    LONGS_EQUAL(0, server->add_own_member(0, MemberName("owner")));
    CHECK(server->start().ok());
    CHECK(server->serve().ok());
  }

  // Forks a child in which `body(join_options)` runs with none of the owner's memory mapped.
  template <typename Body>
  Child fork_joiner(Body&& body) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child != 0) return Child(child);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a failed test runs no destructors
    become_joiner();
    JoinOptions join_options;
    join_options.socket_path = path;
    join_options.process = "relay";
    join_options.pool = joiner_pool();
    join_options.timeout_ns = kPatienceNs;
    body(join_options);
    _exit(0);
  }
  // For a child that stays: closes what exec() would close. Otherwise the child would hold the
  // server's descriptors, such as the pipe end that shows when another joiner has ended.
  static void close_on_exec() noexcept {
    constexpr int kLimit = 4096;  // more than any test opens, fewer than some machines allow
    for (int fd = 0; fd < kLimit; ++fd) {
      const int flags = fcntl(fd, F_GETFD);
      if (flags >= 0 && (flags & FD_CLOEXEC) != 0) close(fd);
    }
  }
  // Starts a child that joins, reports that it is ready, and stays until it is killed.
  Child start_joiner(const char* process = "relay", uint32_t member_count = 1) {
    return fork_joiner([&](JoinOptions& join_options) {
      close_on_exec();
      join_options.process = process;
      join_options.member_count = member_count;
      auto joined = JoinedPool::join(join_options);
      if (!joined.ok() || !joined.value().ready().ok()) _exit(1);
      for (;;) pause();
    });
  }
  // Starts a child that must be refused with an answer that begins with `answer`. If the child
  // times out before the owner gets a core, it tries again with more time.
  template <typename Change>
  void check_refused(const char* answer, Change&& change) {
    Child child = fork_joiner([&](JoinOptions& join_options) {
      join_options.timeout_ns = JoinOptions{}.timeout_ns;
      change(join_options);
      while (!is_refused(answer, join_options)) {
        join_options.timeout_ns = 2 * join_options.timeout_ns + kNsPerMs;
      }
    });
    LONGS_EQUAL(0, child.status());
  }

  // Waits for `count` events of `kind`, kPatienceNs at most. Returns how many have come.
  size_t wait_for(Kind kind, size_t count = 1) {
    std::unique_lock lock(mutex_);
    const auto so_far = [&] {
      return static_cast<size_t>(
          std::count_if(events_.begin(), events_.end(),
                        [&](const JoinEvent& event) { return event.kind == kind; }));
    };
    happened_.wait_for(lock, std::chrono::nanoseconds(kPatienceNs),
                       [&] { return so_far() >= count; });
    return so_far();
  }
  JoinEvent last(Kind kind) {
    const std::lock_guard lock(mutex_);
    for (size_t i = events_.size(); i > 0; --i) {
      if (events_[i - 1].kind == kind) return events_[i - 1];
    }
    return {};
  }
  // Waits until `condition` holds, kPatienceNs at most. Returns whether it holds.
  template <typename Condition>
  static bool becomes(Condition&& condition) {
    const uint64_t until = monotonic_ns() + kPatienceNs;
    while (!condition()) {
      if (monotonic_ns() > until) return false;
      const timespec pause = {0, 50'000};
      nanosleep(&pause, nullptr);
    }
    return true;
  }
  static size_t open_file_count() {
    size_t count = 0;
    const std::filesystem::directory_iterator files("/proc/self/fd");
    for ([[maybe_unused]] const auto& file : files) ++count;
    return count;
  }

  TestPool pool;
  const PoolId pool_id;
  char path[64];
  Segment* members;
  Segment* fifo;
  Segment* buffers;
  std::vector<Segment*> heaps;
  MembersTable* table;
  FakeKeeper keeper;
  JoinServerOptions options;
  std::unique_ptr<JoinServer> server;

 private:
  void become_joiner() noexcept {
    for (uint32_t i = 0; i < pool->segment_count(); ++i) {
      munmap(pool->segment(i).address, pool->segment(i).bytes);
    }
  }
  // In a child: ends it if it is not refused as expected. Returns false if its time was too short.
  static bool is_refused(const char* answer, const JoinOptions& join_options) {
    constexpr char kTooLate[] = "it did not answer in time";
    auto joined = JoinedPool::join(join_options);
    if (joined.ok()) _exit(1);
    const Error& error = joined.error();
    if (std::strcmp(error.answer, kTooLate) == 0 && std::strcmp(answer, kTooLate) != 0 &&
        join_options.timeout_ns < kPatienceNs) {
      return false;
    }
    if (std::strncmp(error.answer, answer, std::strlen(answer)) != 0 || error.doing[0] == '\0' ||
        error.cure[0] == '\0') {
      std::fprintf(stderr, "\"%s: %s; %s\"\n", error.doing, error.answer, error.cure);
      _exit(2);
    }
    return true;
  }
  static PinnedPool* joiner_pool() noexcept {
    static PinnedPool own(kTestPoolBase);
    return &own;
  }

  std::mutex mutex_;
  std::condition_variable happened_;
  std::vector<JoinEvent> events_;
};

}  // namespace bedplate::test
