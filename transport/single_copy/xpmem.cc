#include "transport/single_copy/xpmem.h"

#include <atomic>
#include <cerrno>
#include <new>

#include <unistd.h>

#include "platform/assert.h"
#include "transport/single_copy/device.h"
#include "transport/single_copy/guarded_copy_datapath.h"
#include "transport/single_copy/xpmem_abi.h"

namespace bedplate {
namespace {

static_assert(sizeof(XpmemAccess) <= PeerMemory::kStorageBytes);

// The process that has the device open. The module keeps its state by process: the first close of
// any descriptor ends all of it. A forked child opens its own.
constinit std::atomic<pid_t> opened_by{0};

}  // namespace

XpmemAccess::~XpmemAccess() {
  for (Window& window : windows_) unmap(window);
  xpmem::Release release{.permit = permit_};
  ioctl(device_, xpmem::kRelease, &release);
}

XpmemCopy::~XpmemCopy() {
  if (!device_.is_open()) return;
  xpmem::Remove remove{.segment = segment_};
  if (segment_ != 0) ioctl(device_.number(), xpmem::kRemove, &remove);
  if (opened_by == getpid()) opened_by = 0;
}

Result<void> XpmemCopy::create(const char* path) noexcept {
  BP_ASSERT(opened_by != getpid());
  BP_TRY_ASSIGN(device_, open_module_device(path, "xpmem"));
  const int version = ioctl(device_.number(), xpmem::kVersion, nullptr);
  if (version < 0) {
    const Error error = error_of_other_device(path, "xpmem", errno);
    device_.close();
    return error;
  }
  opened_by = getpid();
  if (((version >> 16) & 0xfff) != xpmem::kVersionMajor) {
    return error_while("asking %s for its version", path)
        .set_answer("it is 0x%x, which this program does not support",
                    static_cast<unsigned>(version))
        .set_cure("load xpmem 2.6");
  }
  BP_TRY(install_copy_guard());
  xpmem::Make make{
      .bytes = xpmem::kAllBytes, .permit_type = xpmem::kPermitMode, .permit_mode = 0600};
  if (ioctl(device_.number(), xpmem::kMake, &make) != 0) {
    return error_from_errno("making an xpmem segment of this process");
  }
  segment_ = make.segment;
  return {};
}

Result<ExposedRange> XpmemCopy::expose(void* memory, uint64_t bytes, bool is_writable) noexcept {
  BP_ASSERT(segment_ != 0);
  return ExposedRange{.address = reinterpret_cast<uint64_t>(memory),
                      .bytes = bytes,
                      .key = static_cast<uint64_t>(segment_),
                      .is_writable = is_writable};
}

Result<PeerAccess*> XpmemCopy::make_access(const SingleCopyPeer& peer, uint64_t key,
                                           std::byte* storage) noexcept {
  BP_ASSERT(device_.is_open());
  xpmem::Get get{.segment = static_cast<int64_t>(key),
                 .flags = xpmem::kReadWrite,
                 .permit_type = xpmem::kPermitMode};
  if (ioctl(device_.number(), xpmem::kGet, &get) != 0) {
    const int number = errno;
    Error error = error_while("copying from process %d with xpmem", peer.pid);
    explain(peer, number, error);
    return error;
  }
  return static_cast<PeerAccess*>(new (storage)
                                      XpmemAccess(device_.number(), peer.pidfd, key, get.permit));
}

void XpmemCopy::explain(const SingleCopyPeer&, int error_number, Error& error) const noexcept {
  error.set_answer_errno(error_number);
  if (error_number == EACCES) {
    error.set_cure("run both as one user, or give this one CAP_IPC_OWNER: xpmem allows only "
                   "processes of the same user");
  } else if (error_number == ENOENT || error_number == EINVAL) {
    error.set_cure("the process has ended, or it made no segment with that number: it must use "
                   "xpmem as well, in the same pid namespace");
  }
}

}  // namespace bedplate
