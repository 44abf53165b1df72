// Files that hold secrets (tokens, private keys, keyrings), and files that decide whom to trust
// (certificates): one way to read them all. Anything but a regular file, a FIFO above all, is
// refused without waiting for it. So is a file that others could have written, and a secret that
// others can read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "platform/result.h"

namespace bedplate {

// Text that is wiped before its memory goes.
class SecretText {
 public:
  explicit SecretText(size_t bytes) : text(bytes, '\0') {}
  SecretText(SecretText&& other) noexcept { text.swap(other.text); }
  ~SecretText();

  std::string text;
};

enum class FilePrivacy {
  kSecret,   // nobody but its owner reads it; where that is root, its group may (0640)
  kTrusted,  // anybody may read it, nobody but its owner and its group writes it
};

// All of the file at `path`, of `bytes_max` at most. Its owner is root, the user of this process,
// or `user` (a name or a number; empty: no other): the appliance's, which this is going to be.
// Errors (kSystem): what is wrong with it, with the command that mends it; `doing` is for the
// caller to say better. Threads: any.
Result<SecretText> read_secret_file(const std::string& path, FilePrivacy privacy, size_t bytes_max,
                                    const std::string& user = "");

}  // namespace bedplate
