// The name of an appliance: only one process runs under it, in one runtime directory.
//
// It is a lock (fcntl, for the life of the process) on NAME.lock, a file that nobody but the
// appliance's user can open: a user that can read a file can lock it, too. It comes before
// everything that a second start of the name could take from the first (sockets, counters), and
// goes after all of it. After a crash the file stays, and nobody holds it.
//
// Invariants, by is_valid(): 1. The name is taken, or there is no path. 2. The path is the name's,
// in its directory. By take(): 3. A name is taken once.
#pragma once

#include <string>

#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

class NameLock {
 public:
  NameLock() noexcept = default;
  NameLock(const NameLock&) = delete;
  NameLock& operator=(const NameLock&) = delete;
  // Lets go of the name: removes the file, and the directory when that leaves it empty.
  ~NameLock();

  // Takes `name` in `directory`, which is made when it is not there. Errors: the directory cannot
  // be written, or by anybody; the file is another's; an appliance of this name runs.
  Result<void> take(const std::string& directory, const std::string& name);

  bool is_valid() const noexcept;
  bool is_taken() const noexcept { return fd_.is_open(); }
  // Whether no other process can have the name that take() was asked for: it is taken, or its
  // directory is not there and cannot be made.
  bool is_nobody_elses() const noexcept;
  const std::string& directory() const noexcept { return directory_; }
  const std::string& name() const noexcept { return name_; }

 private:
  std::string directory_;
  std::string name_;
  std::string path_;
  Fd fd_;
};

// Whether `path` still leads to the file that `fd` is.
bool is_file_at(const std::string& path, const Fd& fd) noexcept;

// Removes `directory` unless somebody uses it.
void remove_if_empty(const std::string& directory) noexcept;

}  // namespace bedplate
