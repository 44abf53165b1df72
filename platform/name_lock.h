// The lock on an appliance's name: only one process runs under it, in one runtime directory.
//
// NAME.lock is locked (fcntl) for the life of the process. Only the appliance's user can open the
// file, since a user that can read a file can also lock it. The lock is taken before everything
// that a second start of the name could take from the first (sockets, counters), and released after
// all of it. A crash leaves the file behind, unlocked.
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
  // Releases the name: removes the file, and the directory if it is then empty.
  ~NameLock();

  // Takes `name` in `directory`, which is created if it is missing. Errors: this process cannot
  // write the directory, or anybody can; the file belongs to another user; an appliance of this
  // name runs.
  Result<void> take(const std::string& directory, const std::string& name);

  bool is_valid() const noexcept;
  bool is_taken() const noexcept { return fd_.is_open(); }
  // Whether no other process can hold the name that take() was asked for: this process holds it, or
  // its directory is missing and cannot be created.
  bool is_nobody_elses() const noexcept;
  const std::string& directory() const noexcept { return directory_; }
  const std::string& name() const noexcept { return name_; }

 private:
  std::string directory_;
  std::string name_;
  std::string path_;
  Fd fd_;
};

// Whether `path` still names the file that `fd` refers to.
bool is_file_at(const std::string& path, const Fd& fd) noexcept;

// Removes `directory` if it is empty.
void remove_if_empty(const std::string& directory) noexcept;

}  // namespace bedplate
