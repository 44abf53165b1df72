// libbedplate-malloc.a's versions, linked before libc's, of the calls that could take memory from
// under a registration.
//
// Each makes the system call itself, unless it names memory of the sealed pool: then it fails with
// EPERM, as on a kernel with mseal. So the program and every library in it get the same answer on
// any kernel. Raw system calls bypass these functions (pinned_pool/no_way_back.h names their
// stoppers), and so do libc's own internal calls, which never concern the pool.
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pinned_pool/pinned_pool.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // Linux 5.18
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102  // Linux 6.13
#endif

using bedplate::PinnedPool;
using bedplate::process_pool;

// interception.cc refers to this, so that a program that links our malloc links this file as well.
extern "C" const char bedplate_memory_calls = 1;

namespace {

bool is_sealed_memory(const void* address, size_t bytes) noexcept {
  const PinnedPool& pool = process_pool();
  return pool.is_sealed() && pool.overlaps(address, bytes);
}

int refuse() noexcept {
  errno = EPERM;
  return -1;
}

// Whether the advice may drop, move or bar the pages' content.
bool takes_away(int advice) noexcept {
  switch (advice) {
    case MADV_DONTNEED:
    case MADV_DONTNEED_LOCKED:
    case MADV_FREE:
    case MADV_REMOVE:
    case MADV_COLD:
    case MADV_PAGEOUT:
    case MADV_COLLAPSE:
    case MADV_GUARD_INSTALL:
    case MADV_HWPOISON:
    case MADV_SOFT_OFFLINE: return true;
    default: return false;
  }
}

template <typename... Words>
int call(long number, Words... words) noexcept {
  return static_cast<int>(syscall(number, words...));
}

void* call_for_address(long number, auto... words) noexcept {
  return reinterpret_cast<void*>(syscall(number, words...));
}

bool is_pool_file(int fd) noexcept {
  const PinnedPool& pool = process_pool();
  for (uint32_t i = 0; pool.is_sealed() && i < pool.segment_count(); ++i) {
    if (pool.segment(i).memfd == fd) return true;
  }
  return false;
}

}  // namespace

extern "C" {

int munmap(void* address, size_t bytes) noexcept {
  if (is_sealed_memory(address, bytes)) return refuse();
  return call(SYS_munmap, address, bytes);
}

int mprotect(void* address, size_t bytes, int rights) noexcept {
  if (is_sealed_memory(address, bytes)) return refuse();
  return call(SYS_mprotect, address, bytes, rights);
}

int pkey_mprotect(void* address, size_t bytes, int rights, int pkey) noexcept {
  if (is_sealed_memory(address, bytes)) return refuse();
  return call(SYS_pkey_mprotect, address, bytes, rights, pkey);
}

void* mremap(void* address, size_t old_bytes, size_t new_bytes, int flags, ...) noexcept {
  va_list arguments;
  va_start(arguments, flags);
  void* target = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
  va_end(arguments);
  if (is_sealed_memory(address, old_bytes) ||
      (target != nullptr && is_sealed_memory(target, new_bytes))) {
    refuse();
    return MAP_FAILED;
  }
  return call_for_address(SYS_mremap, address, old_bytes, new_bytes, flags, target);
}

void* mmap(void* address, size_t bytes, int rights, int flags, int fd, off_t offset) noexcept {
  if ((flags & MAP_FIXED) != 0 && is_sealed_memory(address, bytes)) {
    refuse();
    return MAP_FAILED;
  }
  return call_for_address(SYS_mmap, address, bytes, rights, flags, fd, offset);
}

void* mmap64(void* address, size_t bytes, int rights, int flags, int fd, off64_t offset) noexcept {
  return mmap(address, bytes, rights, flags, fd, offset);
}

int remap_file_pages(void* address, size_t bytes, int rights, size_t offset, int flags) noexcept {
  if (is_sealed_memory(address, bytes)) return refuse();
  return call(SYS_remap_file_pages, address, bytes, rights, offset, flags);
}

int madvise(void* address, size_t bytes, int advice) noexcept {
  if (takes_away(advice) && is_sealed_memory(address, bytes)) return refuse();
  return call(SYS_madvise, address, bytes, advice);
}

ssize_t process_madvise(int pidfd, const iovec* pieces, size_t piece_count, int advice,
                        unsigned flags) noexcept {
  for (size_t i = 0; takes_away(advice) && i < piece_count; ++i) {
    if (is_sealed_memory(pieces[i].iov_base, pieces[i].iov_len)) return refuse();
  }
  return syscall(SYS_process_madvise, pidfd, pieces, piece_count, advice, flags);
}

int munlock(const void* address, size_t bytes) noexcept {
  if (is_sealed_memory(address, bytes)) return refuse();
  return call(SYS_munlock, address, bytes);
}

int munlockall() noexcept {
  if (process_pool().is_sealed()) return refuse();
  return call(SYS_munlockall);
}

void* shmat(int id, const void* address, int flags) noexcept {
  if ((flags & SHM_REMAP) != 0 && is_sealed_memory(address, 1)) {
    refuse();
    return reinterpret_cast<void*>(-1);
  }
  return call_for_address(SYS_shmat, id, address, flags);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  if (is_pool_file(fd)) return refuse();
  return call(SYS_fallocate, fd, mode, offset, bytes);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t bytes) {
  return fallocate(fd, mode, offset, bytes);
}

}  // extern "C"
