// A member of a process that joined, in somebody else's loop.
//
// MemberSource is for an EventLoop: the loop polls the member and sleeps where it always does.
// MemberDescriptor is for any other loop: one descriptor, which epoll, poll, libuv or GLib waits
// for, and a step before the wait that says whether one may wait at all (arm).
//
// Both sleep by a thread of this process, which waits on the member's bell (bell_watch.h) and rings
// an eventfd that no other process has. So senders do what they always do: a load while the member
// is awake, a futex(2) when it sleeps. They need no descriptor of each receiver, and one that dies
// takes none along. The owner's death rings nothing, so the thread looks for it while the member
// sleeps.
#pragma once

#include "platform/file.h"
#include "transport/loop/event_loop.h"
#include "transport/messages/messenger.h"
#include "transport/shm/queue/bell_watch.h"

namespace bedplate {

class ShmProvider;

// The parts of a member that the two below use (JoinedProcess::parts); they outlive both.
struct MemberParts {
  Messenger& messenger;
  ShmProvider& shm;
  const MembersTable& members;
};

class MemberSource final : public PollSource {
 public:
  explicit MemberSource(const MemberParts& parts) noexcept : parts_(parts) {}
  MemberSource(const MemberSource&) = delete;
  MemberSource& operator=(const MemberSource&) = delete;
  ~MemberSource() override { stop(); }

  // From now on `doorbell`, which outlasts stop(), is rung when something comes for the member and
  // it was announced asleep. Then: loop.add_source(source, budget); nobody else polls the member.
  // Takes a thread, with its stack. Threads: before the loop runs.
  // Requires: called once. Errors: BellWatch::start's.
  Result<void> start(Doorbell& doorbell);
  // Ends the thread. Threads: not while the loop runs.
  void stop() noexcept { watch_.stop(); }

  uint32_t poll(uint32_t budget) noexcept override { return parts_.messenger.poll(budget); }
  void announce_sleep() noexcept override;
  void announce_awake() noexcept override;
  uint64_t sleep_max_ns() const noexcept override { return parts_.messenger.sleep_max_ns(); }

 private:
  MemberParts parts_;
  BellWatch watch_;
};

// Threads: those that poll the member.
class MemberDescriptor {
 public:
  explicit MemberDescriptor(const MemberParts& parts) noexcept : source_(parts) {}
  MemberDescriptor(const MemberDescriptor&) = delete;
  MemberDescriptor& operator=(const MemberDescriptor&) = delete;

  // Takes a thread, with its stack. Requires: called once, before all else.
  // Errors (kSystem): no descriptor, or MemberSource::start's.
  Result<void> create();

  // Readable when something has come since arm() said yes; while somebody waits for room
  // (Messenger::notify_room), also when it is time to look. It is for waiting alone, and is made
  // quiet by disarm(). Ownership: this object's.
  int fd() const noexcept { return either_.number(); }

  // About to wait: looks once more, and runs handlers and completions as a poll does. Returns false
  // if there was something: poll on, and try again. True: fd() becomes readable with the next that
  // comes; also when the owner of the pool is gone.
  // Cost: a membarrier, which is why one polls for a while first.
  bool arm() noexcept;
  // Awake again: senders make no system call. Nothing happens if it is not armed.
  void disarm() noexcept;
  bool is_armed() const noexcept { return is_armed_; }

 private:
  static constexpr uint32_t kLookBudget = 64;

  // Has the timer expire once, `after_ns` from now; 0: not at all. Fails at once, or never.
  bool try_timer(uint64_t after_ns) noexcept;
  void set_timer(uint64_t after_ns) noexcept;

  Doorbell doorbell_;
  MemberSource source_;  // after the doorbell, which its thread rings
  Fd timer_;
  Fd either_;  // an epoll of the doorbell's descriptor and the timer
  bool is_armed_ = false;
  bool is_timed_ = false;
};

}  // namespace bedplate
