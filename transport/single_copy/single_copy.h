// Single copy: reading and writing another process's memory that is not the pool's, straight from
// its place to its destination, without a buffer between.
//
// Memory of the pool travels as a pointer; this is for the rest: a program's own mappings and
// stacks. Linux has three mechanisms, each with conditions of its own; one is chosen when the
// process boots, and each peer is tried once, when it joins. A failure of either is reported in one
// line, and the caller copies through the pool instead. Knows no FIFO and no endpoint.
// A peer whose memory is copied can keep the caller waiting (its pages may come from a file system
// or a userfaultfd of its own): only for peers of one trust group. docs/single_copy.md has it all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <sys/types.h>

#include "platform/result.h"

namespace bedplate {

enum class SingleCopyKind : uint32_t {
  kXpmem,  // the peer's pages are mapped here and copied by this processor (module xpmem)
  kCma,    // process_vm_readv and process_vm_writev (cross memory attach, part of the kernel)
  kKnem,   // the kernel copies from and to regions that were declared before (module knem)
};
inline constexpr SingleCopyKind kSingleCopyKinds[] = {SingleCopyKind::kXpmem, SingleCopyKind::kCma,
                                                      SingleCopyKind::kKnem};
inline constexpr unsigned kSingleCopyKindCount = 3;

const char* to_text(SingleCopyKind kind) noexcept;  // "xpmem", "cma", "knem": static

// A range of this process that a peer may copy from or to: travels in a message as it is.
struct ExposedRange {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t key = 0;  // xpmem: the segment of the address space; knem: the cookie; cma: 0
  uint64_t is_writable = 0;
};
static_assert(sizeof(ExposedRange) == 32);

// A process's card, sent when it joins: the kind that it copies by, and 16 random bytes of its
// memory by which to see that it works, and that it is this process and no other.
struct SingleCopyCard {
  SingleCopyKind kind = SingleCopyKind::kCma;
  uint32_t reserved = 0;
  ExposedRange proof;
  uint64_t proof_value[2] = {};
};
static_assert(sizeof(SingleCopyCard) == 56);

struct SingleCopyPeer {
  pid_t pid = 0;   // as this process sees it: from SO_PEERCRED, not from a message
  int pidfd = -1;  // borrowed: stays open as long as the peer's memory is
};

enum class CopyEnd : uint8_t {
  kDone,
  kRefused,  // outside the range, not mapped, not writable, or withdrawn
  kGone,     // the peer has ended
};

struct CopyOutcome {
  CopyEnd end = CopyEnd::kDone;
  uint64_t bytes = 0;  // this many were copied, from the beginning on; knem: all or 0
};

// How one kind reaches one peer. Made by SingleCopy::attach, in PeerMemory's storage, and used
// through PeerMemory, whose contract it has.
class PeerWay {
 public:
  virtual ~PeerWay() = default;
  virtual CopyOutcome read(std::byte* local, const ExposedRange& range, uint64_t offset,
                           uint64_t bytes) noexcept = 0;
  virtual CopyOutcome write(const std::byte* local, const ExposedRange& range, uint64_t offset,
                            uint64_t bytes) noexcept = 0;
};

// The memory of one peer. A fixed size, whatever the kind: planned as a part of its owner.
// Threads: one at a time. Lifetime: closed before the SingleCopy that attached it is destroyed.
class PeerMemory {
 public:
  static constexpr size_t kStorageBytes = 192;

  PeerMemory() noexcept = default;
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory() { close(); }

  bool is_open() const noexcept { return way_ != nullptr; }
  void close() noexcept;

  // Copies `bytes` from `offset` of the peer's `range` to `local`, or the other way.
  // Requires: is_open(); `local` is memory of this process, and nobody takes it away meanwhile.
  // `range` may hold anything: it came from the peer. Two ranges of one call do not overlap.
  // Returns how it ended; never an errno, never a signal, nothing is allocated.
  // Cost: cma and knem one system call; xpmem none, if the peer's pages were used before.
  CopyOutcome read(void* local, const ExposedRange& range, uint64_t offset,
                   uint64_t bytes) noexcept;
  CopyOutcome write(const void* local, const ExposedRange& range, uint64_t offset,
                    uint64_t bytes) noexcept;

 private:
  friend class SingleCopy;

  alignas(uint64_t) std::byte storage_[kStorageBytes];
  PeerWay* way_ = nullptr;
};

// One kind, as this process uses it. One object of each kind in a process (xpmem: closing one
// would end another, too). Threads: one at a time, but for the PeerMemory that it attached.
class SingleCopy {
 public:
  SingleCopy() noexcept = default;
  SingleCopy(const SingleCopy&) = delete;
  SingleCopy& operator=(const SingleCopy&) = delete;
  virtual ~SingleCopy() = default;

  virtual SingleCopyKind kind() const noexcept = 0;
  const char* name() const noexcept { return to_text(kind()); }

  // Lets peers copy from [memory, memory + bytes), and to it if `is_writable`.
  // Lifetime: the memory stays until withdraw(), which takes nothing back under cma and xpmem:
  // these expose all of the process to every process that the kernel lets (docs/single_copy.md); an
  // honest peer keeps to the range. Cost: knem a system call that pins the pages; else none.
  // Errors: knem refuses what is not mapped.
  virtual Result<ExposedRange> expose(void* memory, uint64_t bytes, bool is_writable) noexcept = 0;
  virtual void withdraw(const ExposedRange& range) noexcept = 0;

  // The card that peers need for attach(). Lifetime: as long as this object. Errors: expose()'s.
  Result<SingleCopyCard> card() noexcept;

  // Opens the memory of `peer`, which sent `card`, and copies its proof: from then on there are
  // only outcomes. Requires: `memory` is not open. On an error it stays so.
  // Errors (kSystem): another kind, no permission (and which user could give it), not the process
  // of the card, the peer has ended.
  Result<void> attach(const SingleCopyPeer& peer, const SingleCopyCard& card,
                      PeerMemory& memory) noexcept;

 protected:
  // Makes the way to `peer` in `storage`, of kStorageBytes. `key`: of the peer's card.
  virtual Result<PeerWay*> make_way(const SingleCopyPeer& peer, uint64_t key,
                                    std::byte* storage) noexcept = 0;
  // Why the proof of `peer` could not be copied: answer and cure.
  virtual void explain(const SingleCopyPeer& peer, int error_number,
                       Error& error) const noexcept = 0;

 private:
  uint64_t proof_[2] = {};
  ExposedRange exposed_proof_;
};

// The paths of the modules' devices; tests put others in their place.
struct SingleCopyDevices {
  const char* xpmem = "/dev/xpmem";
  const char* knem = "/dev/knem";
};

// One kind, if it works here. Ownership: the caller's. Errors (kSystem): what this machine lacks
// for it. Allocates.
Result<std::unique_ptr<SingleCopy>> open_single_copy(
    SingleCopyKind kind, const SingleCopyDevices& devices = {}) noexcept;

// The first of an order that works here, and of each other kind why it was not taken.
struct SingleCopyChoice {
  std::unique_ptr<SingleCopy> taken;    // none: everything is copied through the pool
  Error why_not[kSingleCopyKindCount];  // by kind; empty for the one that was taken

  // Writes the line for the log into `text`, always terminated: "xpmem: opening /dev/xpmem: No
  // such file or directory; load the module: ...", or "cma: taken". Returns `text`.
  const char* line(SingleCopyKind kind, char* text, unsigned text_bytes) const noexcept;
};

// `order`: as configured, each kind at most once; empty is off. Does not look behind the first
// that works. Allocates: at boot only.
SingleCopyChoice choose_single_copy(std::span<const SingleCopyKind> order = kSingleCopyKinds,
                                    const SingleCopyDevices& devices = {}) noexcept;

// Lets the process `pid` and its children copy (cma) although kernel.yama.ptrace_scope is 1; the
// last call counts. kAnyPeer: every process that may by its user, which is what several peers
// need. If Yama is not in force there is nothing to allow: no error. Errors (kSystem): the
// system's. Source: Documentation/admin-guide/LSM/Yama.rst of the kernel, PR_SET_PTRACER.
inline constexpr pid_t kAnyPeer = -1;
Result<void> allow_peer(pid_t pid) noexcept;

}  // namespace bedplate
