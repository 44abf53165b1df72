#include "transport/single_copy/cma.h"

#include <cerrno>
#include <cstdio>
#include <new>
#include <optional>

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/forbidden_calls.h"

namespace bedplate {
namespace {

static_assert(sizeof(CmaAccess) <= PeerMemory::kStorageBytes);

constexpr const char* kYamaScope = "/proc/sys/kernel/yama/ptrace_scope";

// The owner of /proc/PID`file`: the process's user, but root for the files of a process that is not
// dumpable (proc(5)).
std::optional<uid_t> owner_of(pid_t pid, const char* file) noexcept {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d%s", pid, file);
  struct stat status = {};
  if (stat(path, &status) != 0) return std::nullopt;
  return status.st_uid;
}

}  // namespace

Result<void> CmaCopy::create() noexcept {
  uint64_t from = 1;
  uint64_t to = 0;
  const iovec here{&to, sizeof to};
  const iovec there{&from, sizeof from};
  if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) == sizeof to &&
      process_vm_writev(getpid(), &here, 1, &there, 1, 0) == sizeof to) {
    return {};
  }
  const bool is_missing = errno == ENOSYS;
  Error error = error_from_errno("copying within this process with process_vm_readv");
  if (is_missing) {
    error.set_cure(
        "use a kernel with CONFIG_CROSS_MEMORY_ATTACH, and no seccomp filter that hides it");
  } else {
    error.set_cure("a seccomp filter, as containers have, forbids it: allow process_vm_readv and "
                   "process_vm_writev (docker: --cap-add SYS_PTRACE)");
  }
  return error;
}

Result<ExposedRange> CmaCopy::expose(void* memory, uint64_t bytes, bool is_writable) noexcept {
  return ExposedRange{
      .address = reinterpret_cast<uint64_t>(memory), .bytes = bytes, .is_writable = is_writable};
}

Result<PeerAccess*> CmaCopy::make_access(const SingleCopyPeer& peer, uint64_t,
                                         std::byte* storage) noexcept {
  return static_cast<PeerAccess*>(new (storage) CmaAccess(peer));
}

// Finds the condition of the kernel (ptrace(2), "access mode checking") that fails.
void CmaCopy::explain(const SingleCopyPeer& peer, int error_number, Error& error) const noexcept {
  error.set_answer_errno(error_number);
  if (error_number != EPERM) return;
  const uint64_t scope = read_number_file(kYamaScope).value_or(0);
  const std::optional<uid_t> user = owner_of(peer.pid, "");
  if (user && *user != geteuid()) {
    error.set_cure("this is user %u, the process is user %u's: run both as one user, or give this "
                   "one CAP_SYS_PTRACE",
                   geteuid(), *user);
  } else if (user != owner_of(peer.pid, "/mem")) {
    error.set_cure(
        "the process is not dumpable, as after a change of its user or capabilities: let it call "
        "prctl(PR_SET_DUMPABLE, 1) afterwards, or give this one CAP_SYS_PTRACE");
  } else if (scope == 1) {
    error.set_cure("kernel.yama.ptrace_scope is 1 and the process did not allow this one "
                   "(PR_SET_PTRACER, by allow_peer): sysctl kernel.yama.ptrace_scope=0, or give "
                   "this one CAP_SYS_PTRACE");
  } else if (scope > 1) {
    error.set_cure("kernel.yama.ptrace_scope is %llu: %s", static_cast<unsigned long long>(scope),
                   scope == 2 ? "give this process CAP_SYS_PTRACE, or set it to 0 or 1"
                              : "no process may, until the machine starts with another value");
  } else {
    error.set_cure("the process has capabilities that this one lacks, or a security module (a "
                   "container's, AppArmor, SELinux) forbids it: run both alike, or give this one "
                   "CAP_SYS_PTRACE");
  }
}

Result<void> allow_peer(pid_t pid) noexcept {
  const bool is_any = pid == kAnyPeer;
  const unsigned long who = is_any ? PR_SET_PTRACER_ANY : static_cast<unsigned long>(pid);
  if (prctl(PR_SET_PTRACER, who, 0, 0, 0) == 0) return {};
  if (errno == EINVAL && access(kYamaScope, F_OK) != 0) return {};  // the kernel has no Yama
  const bool is_forbidden = errno != EINVAL;
  Error error = is_any ? error_from_errno("allowing every process to copy from this one")
                       : error_from_errno("allowing process %d to copy from this one", pid);
  if (is_forbidden) return set_cure_of_forbidden(&error, "prctl");
  return error.set_cure("name a process that exists");
}

}  // namespace bedplate
