// File descriptors that close themselves, and small reads of /proc and /sys.
//
// All functions: any thread; nothing is allocated. Errors are of kind kSystem, with the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "platform/result.h"

namespace bedplate {

// Owns one file descriptor, or none (-1). Movable; the destructor closes it. The result of close(2)
// is ignored. Threads: one at a time.
class Fd {
 public:
  Fd() noexcept = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { close(); }

  int number() const noexcept { return fd_; }
  bool is_open() const noexcept { return fd_ >= 0; }
  // Gives up the descriptor: the caller closes it.
  int release() noexcept { return std::exchange(fd_, -1); }
  void close() noexcept;

 private:
  int fd_ = -1;
};

// Makes calls on `fd` block or not (O_NONBLOCK). Requires: `fd` is open; failures are ignored.
void set_blocking(int fd, bool blocks) noexcept;

// Reads at most `capacity` - 1 bytes of `path` into `text` and terminates it; the rest of the file
// is left out. Requires: capacity > 0. Returns the number of bytes read, without the terminator.
Result<size_t> read_text_file(const char* path, char* text, size_t capacity) noexcept;

// Calls `line(text, context)` for each line of `path` that ends with a newline. The text is
// terminated, has no newline, and is valid until the call returns. A line of more than 4095 bytes
// is cut off: `line` gets its first 4095. A last line without a newline is left out unless it is so
// long. Requires: the file has no zero bytes.
Result<void> read_lines(const char* path, void (*line)(const char* text, void* context),
                        void* context) noexcept;

// The decimal number at the start of a /proc or /sys file; no value if there is none or the file
// cannot be read.
std::optional<uint64_t> read_number_file(const char* path) noexcept;

// The decimal number of a field in a file of /proc, such as MemAvailable: "MemAvailable:  1234 kB";
// no value if the field or its number is missing, or the file cannot be read. The unit stays the
// file's.
std::optional<uint64_t> read_number_field(const char* path, std::string_view field) noexcept;

// Makes the directory `path` with `mode`, less the umask; its parent must exist. An existing
// directory is no error and keeps its mode. The caller may set a better cure.
Result<void> ensure_directory(const char* path, unsigned mode) noexcept;

}  // namespace bedplate
