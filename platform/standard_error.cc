#include "platform/standard_error.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/forbidden_calls.h"

namespace bedplate {
namespace {

// By select: poll refuses to look at one descriptor where no more may be opened (RLIMIT_NOFILE 0).
bool has_room(int wait_ms) noexcept {
  fd_set wanted;
  FD_ZERO(&wanted);
  FD_SET(STDERR_FILENO, &wanted);
  timeval wait = {wait_ms / 1000, wait_ms % 1000 * 1000};
  return select(STDERR_FILENO + 1, nullptr, &wanted, nullptr, &wait) == 1;
}

ssize_t write_if_room(const char* text, size_t text_bytes) noexcept {
  if (has_room(0)) return write(STDERR_FILENO, text, text_bytes);
  errno = EAGAIN;
  return -1;
}

// Whether a seccomp profile stands before the way that was tried: what is to be said of it is said
// another way.
bool is_forbidden(ssize_t outcome) noexcept { return outcome < 0 && says_forbidden(errno); }

// The text is copied into a pipe that nobody else has, and its page goes over from there: the
// last way, since a pipe has room for few pages (16), however little is in each.
ssize_t splice_to_pipe(const char* text, size_t text_bytes) noexcept {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return write_if_room(text, text_bytes);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  const ssize_t copied = write(write_end.number(), text, text_bytes);
  if (copied <= 0) return copied;
  const ssize_t moved = splice(read_end.number(), nullptr, STDERR_FILENO, nullptr,
                               static_cast<size_t>(copied), SPLICE_F_NONBLOCK);
  return is_forbidden(moved) ? write_if_room(text, text_bytes) : moved;
}

// To what lies below the descriptor, through a description of our own that is never waited for;
// `otherwise` where there can be none: no /proc, no free descriptor, or it is another user's.
ssize_t write_own_description(const char* text, size_t text_bytes,
                              ssize_t (*otherwise)(const char*, size_t) noexcept) noexcept {
  const Fd own(open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!own.is_open()) return otherwise(text, text_bytes);
  return write(own.number(), text, text_bytes);
}

ssize_t write_pipe(const char* text, size_t text_bytes) noexcept {
  const iovec part = {const_cast<char*>(text), text_bytes};
  const ssize_t written = pwritev2(STDERR_FILENO, &part, 1, -1, RWF_NOWAIT);
  const bool has_other_way = is_forbidden(written) || errno == EOPNOTSUPP || errno == EINVAL;
  if (written >= 0 || !has_other_way) return written;
  return write_own_description(text, text_bytes, &splice_to_pipe);
}

}  // namespace

ssize_t write_standard_error_now(const char* text, size_t text_bytes) noexcept {
  struct stat status = {};
  if (const int outcome = fstat(STDERR_FILENO, &status); outcome != 0) {
    return is_forbidden(outcome) ? write_if_room(text, text_bytes) : -1;
  }
  if (S_ISSOCK(status.st_mode)) {
    const ssize_t sent = send(STDERR_FILENO, text, text_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    return is_forbidden(sent) ? write_if_room(text, text_bytes) : sent;
  }
  if (S_ISFIFO(status.st_mode)) return write_pipe(text, text_bytes);
  if (standard_error_is_terminal()) {
    return write_own_description(text, text_bytes, &write_if_room);
  }
  return write(STDERR_FILENO, text, text_bytes);
}

void wait_for_standard_error(int wait_ms) noexcept { has_room(wait_ms); }

bool standard_error_is_terminal() noexcept { return isatty(STDERR_FILENO) == 1; }

}  // namespace bedplate
