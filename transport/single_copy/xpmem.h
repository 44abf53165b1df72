// Single copy by the module xpmem: pieces of the peer's address space are mapped into this one and
// copied by this processor.
//
// The mappings are windows: aligned, all of one size, the last few of each peer kept. That is safe
// because a window holds no copy of the peer's page table but follows it: the module pins a page
// when it is first touched here, and when the peer unmaps, moves or replaces it, takes it out of
// the window before the peer's call returns (an MMU notifier), so that the next touch finds the
// page that is there then. A page that is there no more is a fault, which guarded_copy makes an
// outcome.
#pragma once

#include "platform/file.h"
#include "transport/single_copy/single_copy.h"

namespace bedplate {

class XpmemWay final : public PeerWay {
 public:
  // A window pins the pages that were touched through it: at most 64 MiB for each peer.
  static constexpr uint64_t kWindowBytes = 8u << 20;
  static constexpr unsigned kWindowCount = 8;
  static_assert(kWindowBytes * kWindowCount <= 64u << 20);

  // Takes over `permit`.
  XpmemWay(int device, int pidfd, uint64_t key, int64_t permit) noexcept
      : device_(device), pidfd_(pidfd), key_(key), permit_(permit) {}
  XpmemWay(const XpmemWay&) = delete;
  XpmemWay& operator=(const XpmemWay&) = delete;
  ~XpmemWay() override;

  // Invariants, looked at before and after each copy: no piece of the peer has two windows; each
  // begins at a multiple of its size and ends where the peer's addresses do, at most.
  bool is_valid() const noexcept;

  CopyOutcome read(std::byte* local, const ExposedRange& range, uint64_t offset,
                   uint64_t bytes) noexcept override;
  CopyOutcome write(const std::byte* local, const ExposedRange& range, uint64_t offset,
                    uint64_t bytes) noexcept override;

 private:
  struct Window {
    uint64_t begin = 0;  // in the peer
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

  // Errors: no module, no permission, another device at `path`, another version.
  Result<void> create(const char* path) noexcept;

  SingleCopyKind kind() const noexcept override { return SingleCopyKind::kXpmem; }
  Result<ExposedRange> expose(void* memory, uint64_t bytes, bool is_writable) noexcept override;
  void withdraw(const ExposedRange&) noexcept override {}

 protected:
  Result<PeerWay*> make_way(const SingleCopyPeer& peer, uint64_t key,
                            std::byte* storage) noexcept override;
  void explain(const SingleCopyPeer& peer, int error_number, Error& error) const noexcept override;

 private:
  Fd device_;
  int64_t segment_ = 0;  // the whole address space, for the same user
};

}  // namespace bedplate
