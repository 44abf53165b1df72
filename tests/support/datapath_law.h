// Enforces the rule of the data path by calls, not by file names: while a watch is on, its thread
// must not allocate, free, lock, log or throw, and must make no system call except to wake another
// thread.
//
// A forbidden call is still executed, so that the test continues. It is counted, and its name and
// the callers' addresses go to standard error (platform/call_stack.h). The linker redirects this
// program's calls of functions to traps (datapath_law_names.inc). The kernel turns system calls
// into signals (PR_SET_SYSCALL_USER_DISPATCH).
//
// Not detected: calls in the vDSO, and TurnLock, which is inline. LockingProvider uses TurnLock; it
// wraps a provider if several threads send (JoinedProcessOptions::is_threaded).
#pragma once

#include <cstdint>
#include <utility>

#include "tests/support/skip.h"

namespace bedplate::test {

// The system calls that are lawful besides those that wake a thread. These are always lawful:
// futex(2) as FUTEX_WAKE, write(2) to an eventfd, which rings it, and read(2) from an eventfd,
// which resets it after a sleep.
enum class Permit : uint32_t {
  kWaking = 0,
  kRing = 1 << 0,       // io_uring_enter(2): once for a batch, if the loop has a ring
  kEpoll = 1 << 1,      // epoll_wait(2), if the loop has no ring
  kStreams = 1 << 2,    // recvmsg(2), sendmsg(2): by stream sockets of a loop without a ring
  kDatagrams = 1 << 3,  // recvmmsg(2), sendmmsg(2)
  // recvmsg(2) from the queue of errors, and getsockopt(2) of SO_ERROR: they report errors of
  // earlier datagrams.
  kDatagramErrors = 1 << 4,
  kWatches = 1 << 5,  // epoll_ctl(2): starts or stops watching a descriptor
  // process_vm_readv(2), process_vm_writev(2), and poll(2) of a pidfd that does not wait.
  kSingleCopy = 1 << 6,
  kLibrary = 1 << 7,  // pthread_once(3): with it a library checks that it was initialised
  // write(2) on an RDMA device, by which soft RoCE posts, and its driver's spin locks.
  kDriver = 1 << 8,
};
constexpr Permit operator|(Permit one, Permit other) noexcept {
  return static_cast<Permit>(static_cast<uint32_t>(one) | static_cast<uint32_t>(other));
}

// The reason why nothing can be watched here, or nullptr.
const char* why_no_law() noexcept;

// Watches the thread that creates it, until end(). A thread has one watch at a time.
// No check of CppUTest may fail meanwhile: it leaves by longjmp, and nothing would end the watch.
class LawWatch {
 public:
  explicit LawWatch(Permit permit = Permit::kWaking) noexcept;
  LawWatch(const LawWatch&) = delete;
  LawWatch& operator=(const LawWatch&) = delete;
  ~LawWatch() { end(); }
  // Ends the watch. Returns the number of breaches, also if the watch has ended before. Threads:
  // the watched one.
  uint32_t end() noexcept;

 private:
  bool is_on_ = true;
  uint32_t breach_count_ = 0;
};

// The number of breaches in `body`.
template <typename Body>
uint32_t breaches_in(Body&& body, Permit permit = Permit::kWaking) {
  LawWatch watch(permit);
  std::forward<Body>(body)();
  return watch.end();
}

// Counts the blocks that malloc gives out and free takes back. Refuses the call of malloc with the
// number `refused_index`, from 0. Requires: no sanitizer, and no LawWatch. Threads: one.
class AllocationWatch {
 public:
  static constexpr uint64_t kNone = UINT64_MAX;
  explicit AllocationWatch(uint64_t refused_index = kNone) noexcept
      : refused_index_(refused_index) {}

  // No check of CppUTest may fail in `body`.
  template <typename Body>
  auto in(Body&& body) {
    struct Scope {
      explicit Scope(AllocationWatch& of) noexcept : watch(of) { watch.begin(); }
      ~Scope() { watch.end(); }
      AllocationWatch& watch;
    } scope(*this);
    return std::forward<Body>(body)();
  }
  bool has_refused() const noexcept { return allocation_count_ > refused_index_; }
  int64_t held_count() const noexcept { return held_count_; }

  // Only for the trap. Returns whether the call is to be made.
  bool look_at(const char* name, const void* argument) noexcept;

 private:
  void begin() noexcept;
  void end() noexcept;

  uint64_t refused_index_;
  uint64_t allocation_count_ = 0;
  int64_t held_count_ = 0;
};

}  // namespace bedplate::test

#define BP_SKIP_WITHOUT_LAW() \
  if (::bedplate::test::why_no_law() != nullptr) BP_SKIP(::bedplate::test::why_no_law())
