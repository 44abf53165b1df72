// Single copy by process_vm_readv(2) and process_vm_writev(2). A process that may ptrace another
// may copy from and to it.
#pragma once

#include "transport/single_copy/single_copy.h"

namespace bedplate {

class CmaAccess final : public PeerAccess {
 public:
  explicit CmaAccess(const SingleCopyPeer& peer) noexcept : peer_(peer) {}

  CopyOutcome read(std::byte* local, const ExposedRange& range, uint64_t offset,
                   uint64_t bytes) noexcept override;
  CopyOutcome write(const std::byte* local, const ExposedRange& range, uint64_t offset,
                    uint64_t bytes) noexcept override;

 private:
  CopyOutcome copy(std::byte* local, uint64_t remote, uint64_t bytes, bool is_write) noexcept;
  bool is_still_the_peer() noexcept;

  SingleCopyPeer peer_;
  uint64_t seen_ns_ = 0;  // monotonic_ns() when the pid was last known to be the peer's
};

class CmaCopy final : public SingleCopy {
 public:
  // Errors: the kernel was built without the calls, or a filter forbids them to this process.
  Result<void> create() noexcept;

  SingleCopyKind kind() const noexcept override { return SingleCopyKind::kCma; }
  Result<ExposedRange> expose(void* memory, uint64_t bytes, bool is_writable) noexcept override;
  void withdraw(const ExposedRange&) noexcept override {}

 protected:
  Result<PeerAccess*> make_access(const SingleCopyPeer& peer, uint64_t key,
                                  std::byte* storage) noexcept override;
  void explain(const SingleCopyPeer& peer, int error_number, Error& error) const noexcept override;
};

}  // namespace bedplate
