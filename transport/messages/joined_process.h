// A process that joined a pool, with everything that it needs to exchange messages with the others.
//
// It joins, attaches to its group's FIFOs, and makes a messenger for each of its members. It gives
// its own heap segment to the pool's heap, and so to malloc, if libbedplate-malloc.a is linked. It
// chooses a kind of single copy among those that the owner allows (group_terms.h). The program sets
// handlers after join() and before the first poll. Only polls deliver messages, so none is missed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "pinned_pool/join/joined_pool.h"
#include "pinned_pool/join/process_terms.h"
#include "platform/result.h"
#include "transport/messages/messenger.h"
#include "transport/messages/peer_event.h"
#include "transport/shm/membership/member_source.h"
#include "transport/single_copy/single_copy.h"

namespace bedplate {

class JoinedProcess;

struct JoinedProcessOptions {
  JoinOptions join;  // into process_pool()
  // The kinds that this process may use. It uses only those of them that the owner has configured,
  // and tries them in the owner's order. Empty: it uses none.
  std::span<const SingleCopyKind> single_copy = kSingleCopyKinds;
  bool is_threaded = false;  // several threads send through a member
  // For all members. Called within polls, and also within join() for peers that are alive by then.
  PeerEventHandler on_peer = {};
  // Called once when everything is mapped, before the pool is sealed and the others see its
  // members. Here a program registers the pool with devices (verbs/joined/joined_verbs.h). An error
  // fails the join.
  std::function<Result<void>(JoinedProcess&)> before_ready = {};
};

class JoinedProcess {
 public:
  // Joins and seals the pool; the others see its members as alive when this returns. Waits for the
  // owner, and for a free place, up to options.join.timeout_ns; then up to 10 s for the owner's
  // word that the members are alive. Threads: called before others run. It succeeds at most once in
  // the lifetime of a process. Errors (kSystem): until the first segment is mapped, mostly the
  // owner's reason: the process can try again. Later errors are a resource that this process could
  // not get, or an owner that is gone, is silent or cut it off: the process can only exit.
  static Result<std::unique_ptr<JoinedProcess>> join(const JoinedProcessOptions& options);

  JoinedProcess(const JoinedProcess&) = delete;
  JoinedProcess& operator=(const JoinedProcess&) = delete;
  // Does not call leave(): without it the others see a death.
  ~JoinedProcess();

  // Leaves the pool: the others see its members as dead at once. The mappings stay, but the process
  // must not use the pool any more (JoinedPool::leave). Called at most once.
  void leave() noexcept { pool_.leave(); }

  uint32_t member_count() const noexcept { return member_count_; }
  // The group's number for member `index` of this process. Requires: index < member_count().
  uint32_t member(uint32_t index = 0) const noexcept;
  // Ownership: this object's, as for all below. Threads: one at a time for each messenger. With
  // is_threaded several threads may send and release, while one polls. Requires: as member().
  Messenger& messenger(uint32_t index = 0) noexcept;

  // The parts for putting member `index` into an event loop (MemberSource) or behind a descriptor
  // (MemberDescriptor); then messenger(index).wait() must not be called. Requires: as member().
  MemberParts parts(uint32_t index = 0) noexcept;

  // The number in the group of the first living member that joined as `process`; UINT32_MAX: there
  // is none now. The owner of the pool is member 0, with the name of its appliance. Threads: any.
  uint32_t find_member(const char* process) const noexcept;

  const JoinedPool& pool() const noexcept { return pool_; }
  // The process's name in the owner's configuration.
  MemberName name() const noexcept { return pool_.table().name(member()); }
  // The terms that the owner grants to this process alone.
  const ProcessTerms& terms() const noexcept { return terms_; }
  // The mechanism that copies memory outside the pool; nullptr: peers copy through the pool.
  const SingleCopy* single_copy() const noexcept { return single_copy_.get(); }

 private:
  struct Member;  // its messenger and its provider

  explicit JoinedProcess(JoinedPool&& pool) noexcept;
  Result<void> set_up(const JoinedProcessOptions& options);
  Result<void> take_heap() noexcept;

  JoinedPool pool_;
  ProcessTerms terms_;
  std::unique_ptr<SingleCopy> single_copy_;
  uint32_t member_count_ = 0;
  std::unique_ptr<Member[]> members_;
};

}  // namespace bedplate
