#include "pinned_pool/join/join_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "platform/clock.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83  // Linux 6.16
#endif

namespace bedplate {
namespace {

constexpr uint64_t kRetryNs = 2 * kNsPerMs;

Result<sockaddr_un> address_of(const char* path) noexcept {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t bytes = std::strlen(path);
  if (bytes == 0 || bytes >= sizeof address.sun_path) {
    return configuration_error_while("using \"%s\" as the socket of the pool", path)
        .set_answer("its path has %zu bytes", bytes)
        .set_cure("choose one of 1 to %zu bytes", sizeof address.sun_path - 1);
  }
  std::memcpy(address.sun_path, path, bytes);
  return address;
}

// Limits each later wait of `fd` to the time until `deadline_ns`, but at least 1 ms.
void limit_waits(const Fd& fd, uint64_t deadline_ns) noexcept {
  const uint64_t now = monotonic_ns();
  const uint64_t left_ns = std::max(deadline_ns, now + kNsPerMs) - now;
  const timeval left = {static_cast<time_t>(left_ns / kNsPerSecond),
                        static_cast<suseconds_t>(left_ns % kNsPerSecond / 1000)};
  setsockopt(fd.number(), SOL_SOCKET, SO_RCVTIMEO, &left, sizeof left);
  setsockopt(fd.number(), SOL_SOCKET, SO_SNDTIMEO, &left, sizeof left);
}

int try_connect(int fd, const sockaddr_un& address) noexcept {
  int outcome = 0;
  do {
    outcome = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (outcome != 0 && errno == EINTR);
  return outcome == 0 ? 0 : errno;
}

}  // namespace

Result<Fd> listen_for_joiners(const char* path) noexcept {
  auto address = address_of(path);
  if (!address.ok()) return address.error();
  const auto failed = [path] {
    return error_from_errno("opening the socket for processes that join, %s", path)
        .set_cure("choose a path that nobody else uses, in a directory that this process may "
                  "write");
  };
  struct stat status = {};
  if (lstat(path, &status) == 0) {
    const Fd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!S_ISSOCK(status.st_mode) || try_connect(probe.number(), address.value()) != ECONNREFUSED) {
      errno = EADDRINUSE;
      return failed();
    }
    unlink(path);
  }
  Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Refuses descriptors. Before Linux 6.16 that is impossible, and ClosingThread closes them.
  const int no = 0;
  setsockopt(listener.number(), SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
  if (!listener.is_open() ||
      bind(listener.number(), reinterpret_cast<sockaddr*>(&address.value()), sizeof(sockaddr_un)) !=
          0 ||
      chmod(path, 0666) != 0 || listen(listener.number(), SOMAXCONN) != 0) {
    return failed();
  }
  return listener;
}

JoinListener::~JoinListener() {
  if (is_open()) unlink(path_.c_str());
}

Result<void> JoinListener::open(const std::string& path) noexcept {
  BP_ASSERT(!is_open());
  BP_TRY_ASSIGN(auto listening, listen_for_joiners(path.c_str()));
  path_ = path;
  fd_ = std::move(listening);
  return {};
}

Result<Fd> connect_to_owner(const char* path, uint64_t deadline_ns) noexcept {
  auto address = address_of(path);
  if (!address.ok()) return address.error();
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return error_from_errno("making a socket to join the pool");
  const uint64_t begin_ns = monotonic_ns();
  for (;;) {
    const uint64_t now = monotonic_ns();
    limit_waits(fd, deadline_ns);
    const int outcome = try_connect(fd.number(), address.value());
    if (outcome == 0) {
      limit_waits(fd, deadline_ns);  // the owner may have accepted late
      return fd;
    }
    // The owner makes its socket accessible to other users a moment after it has made it.
    const bool is_young = outcome == EACCES && now - begin_ns < kNsPerSecond;
    const bool may_come =
        outcome == ENOENT || outcome == ECONNREFUSED || outcome == EAGAIN || is_young;
    if (!may_come || now >= deadline_ns) {
      Error error =
          error_while("connecting to the owner of the pool at %s", path).set_answer_errno(outcome);
      if (outcome == EPROTOTYPE) {
        return error.set_cure("choose another path: another service uses this socket");
      }
      if (outcome == EACCES) {
        return error.set_cure("give this user access to the socket's directory");
      }
      if (outcome == ENOENT) {
        return error.set_cure("start the owner of the pool, or name the socket that it has: "
                              "[messages] socket, or NAME.join in its runtime directory");
      }
      if (outcome == ECONNREFUSED) {
        return error.set_cure("start the owner of the pool: nothing listens there");
      }
      return error.set_cure("check that the owner of the pool runs, or wait longer for it");
    }
    const timespec pause = {0, kRetryNs};
    nanosleep(&pause, nullptr);
  }
}

Result<void> allow_open_files(uint64_t count) noexcept {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= count) return {};
  const rlimit raised = {count, std::max<rlim_t>(limit.rlim_max, count)};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) return {};
  return error_while("planning for processes that may join")
      .set_answer("this process may open %llu files, %llu are needed",
                  static_cast<unsigned long long>(limit.rlim_max),
                  static_cast<unsigned long long>(count))
      .set_cure("raise the limit of open files: ulimit -Hn %llu",
                static_cast<unsigned long long>(count));
}

}  // namespace bedplate
