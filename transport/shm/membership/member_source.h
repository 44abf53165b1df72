// Puts a member of a joined process into another loop.
//
// MemberSource is for an EventLoop: the loop polls the member, and sleeps in its own sleeper as
// always. MemberDescriptor is for any other loop: a descriptor for epoll, poll, libuv or GLib to
// wait on, and a call before the wait (arm) that tells whether the loop may wait.
//
// Both use a thread of this process, which waits on the member's bell (bell_watch.h) and rings an
// eventfd that no other process has. So senders do what they always do: a load while the member is
// awake, a futex(2) when it sleeps. They need no descriptor of each receiver, and a receiver that
// dies leaves no descriptor behind. The owner's death rings nothing, so the thread checks for it
// while the member sleeps.
#pragma once

#include "platform/file.h"
#include "transport/loop/event_loop.h"
#include "transport/messages/messenger.h"
#include "transport/shm/queue/bell_watch.h"

namespace bedplate {

class ShmProvider;

// The parts of a member that both classes use (JoinedProcess::parts); they outlive both.
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

  // From now on the thread rings `doorbell`, which outlasts stop(), when a message for the
  // announced-asleep member arrives. Next the caller calls loop.add_source(source, budget); nobody
  // else polls the member. Takes a thread, with its stack. Threads: before the loop runs. Requires:
  // called once. Errors: BellWatch::start's.
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

// Threads: the polling ones.
class MemberDescriptor {
 public:
  explicit MemberDescriptor(const MemberParts& parts) noexcept : source_(parts) {}
  MemberDescriptor(const MemberDescriptor&) = delete;
  MemberDescriptor& operator=(const MemberDescriptor&) = delete;

  // Takes a thread, with its stack. Requires: called once, before all else.
  // Errors (kSystem): no descriptor, or MemberSource::start's.
  Result<void> create();

  // Readable when something has arrived since arm() returned true; while somebody waits for space
  // (Messenger::notify_room), also when it is time to look. Only to wait on; disarm() resets it.
  // Ownership: this object's.
  int fd() const noexcept { return either_.number(); }

  // Prepares to wait: looks once more, and runs handlers and completions as a poll does. Returns
  // false if there was something: poll on, and try again. True: fd() becomes readable with the next
  // arrival, or when the owner of the pool is gone. Cost: a membarrier; therefore callers poll for
  // a while first.
  bool arm() noexcept;
  // Awake again: senders make no system call. Does nothing if it is not armed.
  void disarm() noexcept;
  bool is_armed() const noexcept { return is_armed_; }

 private:
  static constexpr uint32_t kLookBudget = 64;

  // Makes the timer expire once, `after_ns` from now; 0: not at all. Fails at once, or never.
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
