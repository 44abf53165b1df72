// Single copy: reads and writes memory of another process outside the pool, straight from source to
// destination, without a buffer between.
//
// Memory of the pool travels as a pointer. Single copy is for the rest: a program's own mappings
// and stacks. Linux has three mechanisms, each with its own conditions. A process chooses one at
// boot, and tries it once on each peer. Each failure is reported in one line, and the caller copies
// through the pool instead. This code knows no FIFO and no endpoint. A peer can block a process
// that copies the peer's memory, because its pages may come from a file system or a userfaultfd of
// its own. So single copy is only for peers of one trust group. docs/single_copy.md has the
// details.
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
  kKnem,   // the kernel copies from and to regions declared before (module knem)
};
inline constexpr SingleCopyKind kSingleCopyKinds[] = {SingleCopyKind::kXpmem, SingleCopyKind::kCma,
                                                      SingleCopyKind::kKnem};
inline constexpr unsigned kSingleCopyKindCount = 3;

const char* to_text(SingleCopyKind kind) noexcept;  // "xpmem", "cma", "knem": static

// A range of this process that a peer may copy from or to. It travels in a message unchanged.
struct ExposedRange {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t key = 0;  // xpmem: the segment of the address space; knem: the cookie; cma: 0
  uint64_t is_writable = 0;
};
static_assert(sizeof(ExposedRange) == 32);

// A process's card, sent when it joins: its kind of single copy, and 16 random bytes of its memory
// as a proof. A peer that copies the proof knows that the copy works, and reaches the right
// process. The card of a process without single copy is all zeros: `proof` has no bytes.
struct SingleCopyCard {
  SingleCopyKind kind = SingleCopyKind::kCma;
  uint32_t reserved = 0;
  ExposedRange proof;
  uint64_t proof_value[2] = {};
};
static_assert(sizeof(SingleCopyCard) == 56);

struct SingleCopyPeer {
  pid_t pid = 0;   // in this process's pid namespace; not from the peer's own messages
  int pidfd = -1;  // borrowed: stays open until the peer's memory is closed
};

enum class CopyEnd : uint8_t {
  kDone,
  kRefused,  // outside the range, not mapped, not writable, or withdrawn
  kGone,     // the peer has exited
};

struct CopyOutcome {
  CopyEnd end = CopyEnd::kDone;
  uint64_t bytes = 0;  // copied from the start; knem: all or 0
};

// One peer's memory by one kind. SingleCopy::attach makes it in PeerMemory's storage; PeerMemory
// uses it, and has its contract.
class PeerAccess {
 public:
  virtual ~PeerAccess() = default;
  virtual CopyOutcome read(std::byte* local, const ExposedRange& range, uint64_t offset,
                           uint64_t bytes) noexcept = 0;
  virtual CopyOutcome write(const std::byte* local, const ExposedRange& range, uint64_t offset,
                            uint64_t bytes) noexcept = 0;
};

// The memory of one peer. Its size does not depend on the kind, so it is planned as a part of its
// owner. Threads: one at a time. Lifetime: closed before the SingleCopy that attached it is
// destroyed.
class PeerMemory {
 public:
  static constexpr size_t kStorageBytes = 192;

  PeerMemory() noexcept = default;
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory() { close(); }

  bool is_open() const noexcept { return access_ != nullptr; }
  void close() noexcept;

  // Copies `bytes` from `offset` of the peer's `range` to `local`, or back. Requires: is_open();
  // `local` is memory of this process that stays during the copy; the two ranges of one call do not
  // overlap. `range` may hold anything: it came from the peer. Returns the outcome; raises no
  // signal, and allocates nothing. If the peer has declared less to knem than `range` says, the
  // outcome is kDone, and the rest of the destination stays as it was. Cost: cma and knem one
  // system call, cma sometimes two; xpmem none, if the peer's pages were used before.
  CopyOutcome read(void* local, const ExposedRange& range, uint64_t offset,
                   uint64_t bytes) noexcept;
  CopyOutcome write(const void* local, const ExposedRange& range, uint64_t offset,
                    uint64_t bytes) noexcept;

 private:
  friend class SingleCopy;

  alignas(uint64_t) std::byte storage_[kStorageBytes];
  PeerAccess* access_ = nullptr;
};

// One kind, as used by this process. A process has at most one object of each kind: under xpmem,
// closing one object would end another, too. Threads: one at a time; each PeerMemory that it
// attached may have another thread.
class SingleCopy {
 public:
  SingleCopy() noexcept = default;
  SingleCopy(const SingleCopy&) = delete;
  SingleCopy& operator=(const SingleCopy&) = delete;
  virtual ~SingleCopy() = default;

  virtual SingleCopyKind kind() const noexcept = 0;
  const char* name() const noexcept { return to_text(kind()); }

  // Lets peers copy from [memory, memory + bytes), and to it if `is_writable`. Lifetime: the memory
  // stays until withdraw(). Under cma and xpmem withdraw() revokes nothing: they expose the whole
  // process to every process that the kernel permits (docs/single_copy.md); an honest peer keeps to
  // the range. Cost: knem a system call that pins the pages; else none. Errors: knem refuses
  // unmapped memory.
  virtual Result<ExposedRange> expose(void* memory, uint64_t bytes, bool is_writable) noexcept = 0;
  virtual void withdraw(const ExposedRange& range) noexcept = 0;

  // The card that peers need for attach(). Lifetime: this object's. Errors: expose()'s, or no
  // random bytes.
  Result<SingleCopyCard> card() noexcept;

  // Opens the memory of `peer`, which sent `card`, and copies its proof. After that, failures are
  // outcomes, not errors. Requires: `memory` is not open. On an error `memory` stays closed. Errors
  // (kSystem): the peer has none, or another kind; no permission, not the process of the card, the
  // peer has exited.
  Result<void> attach(const SingleCopyPeer& peer, const SingleCopyCard& card,
                      PeerMemory& memory) noexcept;

 protected:
  // Makes the PeerAccess to `peer` in `storage`, which has PeerMemory::kStorageBytes. `key`: of the
  // peer's card.
  virtual Result<PeerAccess*> make_access(const SingleCopyPeer& peer, uint64_t key,
                                          std::byte* storage) noexcept = 0;
  // Adds to `error` the answer, and a cure if one is known, after access to `peer` has failed.
  virtual void explain(const SingleCopyPeer& peer, int error_number,
                       Error& error) const noexcept = 0;

 private:
  uint64_t proof_[2] = {};
  ExposedRange exposed_proof_;
};

// The paths of the modules' devices; tests replace them.
struct SingleCopyDevices {
  const char* xpmem = "/dev/xpmem";
  const char* knem = "/dev/knem";
};

// Opens a kind, if it works here. Ownership: the caller's. Errors (kSystem): why the kind does not
// work here. Allocates.
Result<std::unique_ptr<SingleCopy>> open_single_copy(
    SingleCopyKind kind, const SingleCopyDevices& devices = {}) noexcept;

// The first kind of an order that works here, and for each other kind the reason against it.
struct SingleCopyChoice {
  std::unique_ptr<SingleCopy> taken;    // nullptr: everything is copied through the pool
  Error why_not[kSingleCopyKindCount];  // by kind; empty for the taken one

  // Writes the line for the log into `text`, always terminated: "xpmem: opening /dev/xpmem: No
  // such file or directory; load the module: ...", or "cma: chosen". Returns `text`.
  const char* line(SingleCopyKind kind, char* text, unsigned text_bytes) const noexcept;
};

// `order`: as configured, each kind at most once; an empty order turns single copy off. Tries no
// kind after the first that works. Allocates; called only at boot.
SingleCopyChoice choose_single_copy(std::span<const SingleCopyKind> order = kSingleCopyKinds,
                                    const SingleCopyDevices& devices = {}) noexcept;

// Lets the process `pid` and its descendants copy from and to this process (cma) although
// kernel.yama.ptrace_scope is 1. The last call replaces the earlier ones. kAnyPeer allows every
// process that the kernel's other checks permit; several peers need this. If the kernel has no
// Yama, does nothing. Errors (kSystem): the system's. Source:
// Documentation/admin-guide/LSM/Yama.rst of the kernel, PR_SET_PTRACER.
inline constexpr pid_t kAnyPeer = -1;
Result<void> allow_peer(pid_t pid) noexcept;

}  // namespace bedplate
