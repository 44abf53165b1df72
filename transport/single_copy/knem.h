// Single copy by the module knem. A process that exposes memory declares it as a region, and passes
// the region's cookie on. The kernel copies between that region and the memory of the calling
// process.
#pragma once

#include "platform/file.h"
#include "transport/single_copy/single_copy.h"

namespace bedplate {

class KnemAccess final : public PeerAccess {
 public:
  KnemAccess(int device, int pidfd) noexcept : device_(device), pidfd_(pidfd) {}

  CopyOutcome read(std::byte* local, const ExposedRange& range, uint64_t offset,
                   uint64_t bytes) noexcept override;
  CopyOutcome write(const std::byte* local, const ExposedRange& range, uint64_t offset,
                    uint64_t bytes) noexcept override;

 private:
  CopyOutcome copy(std::byte* local, const ExposedRange& range, uint64_t offset, uint64_t bytes,
                   bool is_write) noexcept;

  int device_;
  int pidfd_;
};

class KnemCopy final : public SingleCopy {
 public:
  // Errors: no module, no permission, another device at `path`, another version.
  Result<void> create(const char* path) noexcept;

  SingleCopyKind kind() const noexcept override { return SingleCopyKind::kKnem; }
  Result<ExposedRange> expose(void* memory, uint64_t bytes, bool is_writable) noexcept override;
  void withdraw(const ExposedRange& range) noexcept override;

 protected:
  Result<PeerAccess*> make_access(const SingleCopyPeer& peer, uint64_t key,
                                  std::byte* storage) noexcept override;
  void explain(const SingleCopyPeer& peer, int error_number, Error& error) const noexcept override;

 private:
  Fd device_;  // closing it withdraws all regions
};

}  // namespace bedplate
