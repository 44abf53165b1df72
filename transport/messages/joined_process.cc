#include "transport/messages/joined_process.h"

#include <cstring>
#include <new>

#include "alloc/added_heap.h"
#include "alloc/confined_heap.h"
#include "alloc/heap_owner.h"
#include "pinned_pool/boot_segment.h"
#include "transport/messages/locking_provider.h"
#include "transport/shm/endpoint/shm_provider.h"
#include "transport/shm/membership/group_terms.h"

namespace bedplate {
namespace {

Error no_memory(const JoinedPool& pool) noexcept {
  return error_while("making the messengers for group %s", pool.group_name().text)
      .set_answer("the heap is exhausted")
      .set_cure(pool.own_heap() != nullptr
                    ? "raise heap_bytes in the [[process]] of the owner's configuration"
                    : "raise BEDPLATE_BOOT_BYTES");
}

}  // namespace

struct JoinedProcess::Member {
  Messenger messenger;
  ShmProvider shm;
  std::unique_ptr<LockingProvider> locking;  // if several threads send
};

JoinedProcess::JoinedProcess(JoinedPool&& pool) noexcept : pool_(std::move(pool)) {}
JoinedProcess::~JoinedProcess() = default;

Result<std::unique_ptr<JoinedProcess>> JoinedProcess::join(const JoinedProcessOptions& options) {
  BP_ASSERT(options.join.pool == &process_pool());
  // Segment 0 is this process's own; joined segments come after it.
  heap_create();
  boot_segment();
  BP_TRY(refuse_added_heap(
      "joining a pool",
      "raise heap_bytes in its [[process]] of the owner's configuration instead"));
  auto joined = JoinedPool::join(options.join);
  if (!joined.ok()) return joined.error();
  std::unique_ptr<JoinedProcess> process(new (std::nothrow) JoinedProcess(joined.take()));
  if (!process) {
    return error_while("joining the pool as %s", options.join.process)
        .set_answer("the heap is exhausted")
        .set_cure("raise BEDPLATE_BOOT_BYTES");
  }
  auto made = process->set_up(options);
  if (made.ok() && options.before_ready) made = options.before_ready(*process);
  if (!made.ok()) {
    process->pool_.fail(made.error());
    return made.error();
  }
  // Nothing can be carved here: joined segments belong to their owner, segment 0 to the heap. Rings
  // may still register the pool, whose layout is final from now on.
  options.join.pool->seal();
  BP_TRY(process->pool_.ready());
  return process;
}

Result<void> JoinedProcess::set_up(const JoinedProcessOptions& options) {
  BP_TRY(take_heap());
  auto terms = read_group_terms(pool_.layout(), pool_.group_name().text);
  if (!terms.ok()) return terms.error();
  auto granted = read_process_terms(pool_.terms(), options.join.process);
  if (!granted.ok()) return granted.error();
  terms_ = granted.value();
  auto segment = GroupSegment::attach(pool_.fifo().memory(), terms.value().shape, pool_.pool_id());
  if (!segment.ok()) return segment.error();

  terms.value().restrict_single_copy(options.single_copy);
  single_copy_ = choose_single_copy(terms.value().single_copy()).taken;
  // If the kernel refuses, peers notice when they try, and copy through the pool.
  if (single_copy_) (void)allow_peer(kAnyPeer);
  member_count_ = static_cast<uint32_t>(pool_.members().size());
  members_.reset(new (std::nothrow) Member[member_count_]);
  if (!members_) return no_memory(pool_);
  for (uint32_t i = 0; i < member_count_; ++i) {
    ShmProviderOptions provider;
    provider.segment = segment.value();
    provider.members = &pool_.table();
    provider.member = static_cast<uint32_t>(pool_.members()[i].index);
    provider.single_copy = single_copy_.get();
    provider.on_peer = options.on_peer;
    Member& member = members_[i];
    if (options.is_threaded) {
      const auto limits = ShmProvider::locking_limits(segment.value().shape());
      member.locking.reset(new (std::nothrow)
                               LockingProvider(member.shm, member.messenger.dispatcher(), limits));
      if (!member.locking) return no_memory(pool_);
      provider.is_locked = true;
      provider.on_peer = member.locking->events_to(options.on_peer);
    }
    BP_TRY(member.shm.create(
        provider, member.locking ? member.locking->dispatcher() : member.messenger.dispatcher()));
    if (member.locking) member.messenger.add_provider(*member.locking);
    else member.messenger.add_provider(member.shm);
  }
  return {};
}

// Memory allocated from now on lies where the others can read it.
Result<void> JoinedProcess::take_heap() noexcept {
  Segment* heap = pool_.own_heap();
  if (heap == nullptr) return {};
  Error error =
      error_while("handing %s of %s to the heap", format_bytes(heap->bytes).text, heap->owner.text);
  const uint64_t bytes = heap->bytes / kHeapGranularityBytes * kHeapGranularityBytes;
  if (bytes < kHeapBytesMin) {
    return error.set_answer("a heap needs at least %s", format_bytes(kHeapBytesMin).text)
        .set_cure("raise heap_bytes in the [[process]] of the owner's configuration");
  }
  if (!add_heap_memory(heap->memory().first(bytes))) {
    return error.set_answer("its tables do not fit into segment 0")
        .set_cure("raise BEDPLATE_BOOT_BYTES, or lower heap_bytes in the [[process]]");
  }
  retire_boot_heap();
  leave_boot_heap();
  // A heap owner of its own: the pages that this thread has begun to fill lie in segment 0.
  auto owner = heap_owner(heap->owner);
  if (!owner.ok()) return owner.error();
  enter_heap_owner(owner.value());
  return {};
}

uint32_t JoinedProcess::member(uint32_t index) const noexcept {
  return members_[index].shm.member();
}

Messenger& JoinedProcess::messenger(uint32_t index) noexcept { return members_[index].messenger; }

MemberParts JoinedProcess::parts(uint32_t index) noexcept {
  return {members_[index].messenger, members_[index].shm, pool_.table()};
}

uint32_t JoinedProcess::find_member(const char* process) const noexcept {
  const MembersTable& table = pool_.table();
  for (uint32_t i = 0; i < table.member_count(); ++i) {
    if (table.state(i) != MemberState::kAlive) continue;
    if (std::strcmp(table.name(i).text, process) == 0) return i;
  }
  return UINT32_MAX;
}

}  // namespace bedplate
