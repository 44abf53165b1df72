#include "transport/single_copy/knem.h"

#include <cerrno>
#include <new>

#include <sys/mman.h>

#include "platform/assert.h"
#include "transport/single_copy/device.h"
#include "transport/single_copy/knem_abi.h"

namespace bedplate {

static_assert(sizeof(KnemAccess) <= PeerMemory::kStorageBytes);

Result<void> KnemCopy::create(const char* path) noexcept {
  BP_TRY_ASSIGN(device_, open_module_device(path, "knem"));
  knem::Info info = {};
  if (ioctl(device_.number(), knem::kGetInfo, &info) != 0) {
    return error_of_other_device(path, "knem", errno);
  }
  if (info.abi != knem::kAbi) {
    return error_while("asking %s for its version", path)
        .set_answer("it is 0x%x, this program uses 0x%x", info.abi, knem::kAbi)
        .set_cure("load knem 1.1.2 or later");
  }
  return {};
}

Result<ExposedRange> KnemCopy::expose(void* memory, uint64_t bytes, bool is_writable) noexcept {
  BP_ASSERT(device_.is_open());
  const knem::Piece piece{.address = reinterpret_cast<uint64_t>(memory), .bytes = bytes};
  knem::CreateRegion region{.pieces = reinterpret_cast<uint64_t>(&piece),
                            .piece_count = 1,
                            .protection = static_cast<uint32_t>(PROT_READ) |
                                          (is_writable ? static_cast<uint32_t>(PROT_WRITE) : 0)};
  if (ioctl(device_.number(), knem::kCreateRegion, &region) != 0) {
    const int number = errno;
    Error error = error_from_errno("declaring %llu bytes at %p to knem",
                                   static_cast<unsigned long long>(bytes), memory);
    if (number == EFAULT) error.set_cure("map all of it, writable if peers write");
    return error;
  }
  return ExposedRange{
      .address = piece.address, .bytes = bytes, .key = region.cookie, .is_writable = is_writable};
}

void KnemCopy::withdraw(const ExposedRange& range) noexcept {
  BP_ASSERT(device_.is_open());
  uint64_t cookie = range.key;
  ioctl(device_.number(), knem::kDestroyRegion, &cookie);
}

Result<PeerAccess*> KnemCopy::make_access(const SingleCopyPeer& peer, uint64_t,
                                          std::byte* storage) noexcept {
  return static_cast<PeerAccess*>(new (storage) KnemAccess(device_.number(), peer.pidfd));
}

void KnemCopy::explain(const SingleCopyPeer&, int error_number, Error& error) const noexcept {
  error.set_answer_errno(error_number);
  if (error_number == EACCES) {
    error.set_cure("run both as one user: knem allows only processes of the same user");
  } else if (error_number == EINVAL) {
    error.set_cure("the process declared no region with that cookie: it must use knem as well");
  }
}

}  // namespace bedplate
