// The one reader of files that hold secrets (tokens, private keys, keyrings) or decide whom to
// trust (certificates). It refuses anything but a regular file at once, so it never waits for a
// FIFO. It also refuses files with too many rights (FilePrivacy). It follows symbolic links.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "platform/result.h"

namespace bedplate {

// Text that is wiped before its memory is freed. It lies on the heap, also if it is short, so that
// a move leaves nothing behind in the old object or on the stack.
class SecretText {
 public:
  explicit SecretText(size_t bytes) {
    text.reserve(std::max(bytes, sizeof text));  // more than a string keeps within itself
    text.resize(bytes);
  }
  SecretText(SecretText&& other) noexcept { text.swap(other.text); }
  ~SecretText();

  std::string text;
};

enum class FilePrivacy {
  kSecret,   // only the owner reads and writes it; if that is root, its group may read it (0640)
  kTrusted,  // anybody may read it; only the owner and its group write it
};

// Reads the whole file at `path`. Its owner must be root, the user of this process, or `user` (a
// name or a number; empty: no other), the user that this process will become.
// Errors (kSystem): the fault of the file, with its cure; the file has more than `bytes_max` bytes.
// The caller may set a better `doing`. Threads: any.
Result<SecretText> read_secret_file(const std::string& path, FilePrivacy privacy, size_t bytes_max,
                                    const std::string& user = "");

}  // namespace bedplate
