// Single copy by the module xpmem: it maps parts of the peer's address space into this process, and
// this processor copies.
//
// Each mapping is an aligned window of kWindowBytes; a window at the end of the address space is
// shorter. The last kWindowCount mapped windows of each peer stay; a new one replaces the oldest. A
// stale window is safe because it has no copy of the peer's page table, but follows it. The module
// pins a page when it is first touched here. When the peer unmaps, moves or replaces the page, the
// module takes it out of the window before the peer's call returns (an MMU notifier), so the next
// touch finds the peer's present page. A touch of a missing page is a fault, which guarded_copy
// turns into an outcome.
#pragma once

#include "platform/file.h"
#include "transport/single_copy/single_copy.h"

namespace bedplate {

class XpmemAccess final : public PeerAccess {
 public:
  // A window pins the pages touched through it: at most 64 MiB for each peer.
  static constexpr uint64_t kWindowBytes = 8u << 20;
  static constexpr unsigned kWindowCount = 8;
  static_assert(kWindowBytes * kWindowCount <= 64u << 20);

  // Takes over `permit`. The caller keeps `device` and `pidfd`, which outlive this.
  XpmemAccess(int device, int pidfd, uint64_t key, int64_t permit) noexcept
      : device_(device), pidfd_(pidfd), key_(key), permit_(permit) {}
  XpmemAccess(const XpmemAccess&) = delete;
  XpmemAccess& operator=(const XpmemAccess&) = delete;
  ~XpmemAccess() override;

  // Invariants, looked at before and after each copy: no part of the peer has two windows; each
  // window begins at a multiple of kWindowBytes, before the end of the peer's addresses.
  bool is_valid() const noexcept;

  CopyOutcome read(std::byte* local, const ExposedRange& range, uint64_t offset,
                   uint64_t bytes) noexcept override;
  CopyOutcome write(const std::byte* local, const ExposedRange& range, uint64_t offset,
                    uint64_t bytes) noexcept override;

 private:
  struct Window {
    uint64_t begin = 0;  // address in the peer
    std::byte* local = nullptr;
  };
  CopyOutcome copy(std::byte* local, const ExposedRange& range, uint64_t offset, uint64_t bytes,
                   bool is_write) noexcept;
  std::byte* map(uint64_t begin) noexcept;
  void unmap(Window& window) noexcept;

  int device_;
  int pidfd_;
  uint64_t key_;
  int64_t permit_;
  unsigned oldest_ = 0;
  Window windows_[kWindowCount];
};

class XpmemCopy final : public SingleCopy {
 public:
  ~XpmemCopy() override;

  // Requires: called once; no other XpmemCopy of this process has the module's device open. Errors:
  // no module, no permission, another device at `path`, another version, no segment.
  Result<void> create(const char* path) noexcept;

  SingleCopyKind kind() const noexcept override { return SingleCopyKind::kXpmem; }
  Result<ExposedRange> expose(void* memory, uint64_t bytes, bool is_writable) noexcept override;
  void withdraw(const ExposedRange&) noexcept override {}

 protected:
  Result<PeerAccess*> make_access(const SingleCopyPeer& peer, uint64_t key,
                                  std::byte* storage) noexcept override;
  void explain(const SingleCopyPeer& peer, int error_number, Error& error) const noexcept override;

 private:
  Fd device_;
  int64_t segment_ = 0;  // the whole address space, for the same user
};

}  // namespace bedplate
