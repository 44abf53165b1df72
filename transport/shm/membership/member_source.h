// Lets an event loop poll a member of a joined process.
//
// MemberSource is for an EventLoop: the loop polls the member, and sleeps in its own sleeper as
// always. MemberDescriptor is for any other loop. Its descriptor works with epoll, poll, libuv and
// GLib. Before each wait the loop calls arm(), which returns whether the loop may wait.
//
// Both use a thread of this process, which waits on the member's bell (bell_watch.h) and rings an
// eventfd that no other process has. So senders work as for every member: they load the bell while
// the member is awake, and call futex(2) when it sleeps. Senders need no descriptor for each
// receiver, and a receiver that dies leaves no descriptor behind. When the pool's owner dies,
// nobody rings the bell, so the thread checks for the owner's death while the member sleeps.
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

  // Starts a thread, with its own stack. While the member is announced asleep, the thread rings
  // `doorbell` when a message for the member arrives or the pool's owner dies. Afterwards the
  // caller calls loop.add_source(source, budget), and only that loop polls the member. Threads:
  // before the loop runs. Requires: `doorbell` outlives stop(); called once. Errors:
  // BellWatch::start's.
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

// Threads: the threads that poll the member.
class MemberDescriptor {
 public:
  explicit MemberDescriptor(const MemberParts& parts) noexcept : source_(parts) {}
  MemberDescriptor(const MemberDescriptor&) = delete;
  MemberDescriptor& operator=(const MemberDescriptor&) = delete;

  // Starts a thread, with its own stack. Requires: called once, before all other functions.
  // Errors (kSystem): no descriptor, or MemberSource::start's.
  Result<void> create();

  // Becomes readable when something arrives after arm() returned true. While a caller waits for
  // space (Messenger::notify_room), it also becomes readable when the next poll is due. Loops only
  // wait on it, and never read it; disarm() resets it.
  // Ownership: this object's.
  int fd() const noexcept { return either_.number(); }

  // Prepares to wait: polls the member once more, which runs handlers and completions. Returns
  // false if that poll found work: the caller polls on, and calls arm() again later. Returns true
  // if the caller may wait: fd() becomes readable with the next arrival, or when the owner dies.
  // Cost: a membarrier, so callers poll for a while before they call it.
  bool arm() noexcept;
  // Announces the member awake again, so senders make no system call. Does nothing if not armed.
  void disarm() noexcept;
  bool is_armed() const noexcept { return is_armed_; }

 private:
  static constexpr uint32_t kLookBudget = 64;

  // Makes the timer expire once, `after_ns` from now; 0 stops the timer. Returns false if the
  // system forbids the call. If the first call succeeds, all later calls succeed, too.
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
