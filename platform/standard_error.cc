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

// select, not poll: with RLIMIT_NOFILE 0 poll refuses even one descriptor.
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

// Whether a seccomp profile refused the call that was tried: the text then goes out in another way.
bool is_forbidden(ssize_t outcome) noexcept { return outcome < 0 && says_forbidden(errno); }

// Copies the text into a private pipe and splices its page from there. The last resort, since a
// pipe holds few pages (16), however few bytes are in each.
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

// Writes to the file behind the descriptor, through a non-blocking description of our own. Calls
// `otherwise` if that cannot be opened: no /proc, no free descriptor, or the file is another
// user's.
ssize_t write_own_description(const char* text, size_t text_bytes,
                              ssize_t (*otherwise)(const char*, size_t) noexcept) noexcept {
  const Fd own(open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!own.is_open()) return otherwise(text, text_bytes);
  return write(own.number(), text, text_bytes);
}

ssize_t write_pipe(const char* text, size_t text_bytes) noexcept {
  const iovec part = {const_cast<char*>(text), text_bytes};
  const ssize_t written = pwritev2(STDERR_FILENO, &part, 1, -1, RWF_NOWAIT);
  const bool has_fallback = is_forbidden(written) || errno == EOPNOTSUPP || errno == EINVAL;
  if (written >= 0 || !has_fallback) return written;
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
