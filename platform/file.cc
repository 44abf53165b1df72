#include "platform/file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/text_words.h"

namespace bedplate {

void Fd::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void set_blocking(int fd, bool blocks) noexcept {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

Result<size_t> read_text_file(const char* path, char* text, size_t capacity) noexcept {
  BP_ASSERT(capacity > 0);
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return error_from_errno("opening %s", path);
  size_t bytes = 0;
  while (bytes < capacity - 1) {
    const ssize_t got = read(fd.number(), text + bytes, capacity - 1 - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_from_errno("reading %s", path);
    if (got == 0) break;
    bytes += static_cast<size_t>(got);
  }
  text[bytes] = '\0';
  return bytes;
}

Result<void> read_lines(const char* path, void (*line)(const char* text, void* context),
                        void* context) noexcept {
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return error_from_errno("opening %s", path);
  char text[4096];
  size_t kept = 0;
  bool is_rest_of_line = false;
  for (;;) {
    const ssize_t got = read(fd.number(), text + kept, sizeof text - 1 - kept);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error_from_errno("reading %s", path);
    if (got == 0) return {};
    const size_t filled = kept + static_cast<size_t>(got);
    text[filled] = '\0';
    char* start = text;
    while (char* newline = std::strchr(start, '\n')) {
      *newline = '\0';
      if (!is_rest_of_line) line(start, context);
      is_rest_of_line = false;
      start = newline + 1;
    }
    kept = filled - static_cast<size_t>(start - text);
    if (kept == sizeof text - 1) {
      if (!is_rest_of_line) line(text, context);
      is_rest_of_line = true;
      kept = 0;
    }
    std::memmove(text, start, kept);
  }
}

std::optional<uint64_t> read_number_file(const char* path) noexcept {
  char text[64];
  if (!read_text_file(path, text, sizeof text)) return std::nullopt;
  std::string_view rest = text;
  return try_take_number<uint64_t>(&rest);
}

std::optional<uint64_t> read_number_field(const char* path, std::string_view field) noexcept {
  struct Wanted {
    std::string_view field;
    std::optional<uint64_t> number;
  } wanted{field, {}};
  const auto see = [](const char* text, void* context) {
    auto* sought = static_cast<Wanted*>(context);
    std::string_view line(text);
    if (sought->number || !line.starts_with(sought->field)) return;
    line.remove_prefix(sought->field.size());
    if (!line.starts_with(':')) return;
    line.remove_prefix(1);
    sought->number = try_take_number<uint64_t>(&line);
  };
  if (!read_lines(path, see, &wanted).ok()) return std::nullopt;
  return wanted.number;
}

Result<void> ensure_directory(const char* path, unsigned mode) noexcept {
  // Another process may remove the directory between the two calls.
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (mkdir(path, mode) == 0) return {};
    struct stat status {};
    if (errno != EEXIST) break;
    if (stat(path, &status) == 0) {
      if (S_ISDIR(status.st_mode)) return {};
      errno = ENOTDIR;
      break;
    }
    if (errno != ENOENT) break;
  }
  return error_from_errno("making the directory %s", path)
      .set_cure("make it, or let this user write to the directory that it is to lie in");
}

}  // namespace bedplate
