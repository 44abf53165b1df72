// The one reader of files that hold secrets (tokens, private keys, keyrings) or decide whom to
// trust (certificates). Anything but a regular file is refused at once; a FIFO, above all, is not
// waited for. Also refused: a file that other users can write, and a secret that other users can
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "platform/result.h"

namespace bedplate {

// Text that is wiped before its memory is freed.
class SecretText {
 public:
  explicit SecretText(size_t bytes) : text(bytes, '\0') {}
  SecretText(SecretText&& other) noexcept { text.swap(other.text); }
  ~SecretText();

  std::string text;
};

enum class FilePrivacy {
  kSecret,   // only the owner reads it; if that is root, its group may, too (0640)
  kTrusted,  // anybody may read it; only the owner and its group write it
};

// The whole file at `path`, of at most `bytes_max`. Its owner must be root, the user of this
// process, or `user` (a name or a number; empty: no other), the user that this process will become.
// Errors (kSystem): the fault of the file, with the command that fixes it; the caller may set a
// better `doing`. Threads: any.
Result<SecretText> read_secret_file(const std::string& path, FilePrivacy privacy, size_t bytes_max,
                                    const std::string& user = "");

}  // namespace bedplate
