// The lock on an appliance's name: only one process runs under it, in one runtime directory.
//
// NAME.lock is locked (F_OFD_SETLK) for the life of a NameLock. Only the appliance's user can open
// the file, since a user that can read a file can also lock it. The appliance takes the lock before
// everything that a second start of the name could take from it (sockets, counters), and releases
// the lock after all of that. A crash leaves the file behind, unlocked.
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
  // Releases the name, if it is taken: removes the file, and the directory if it is then empty.
  ~NameLock();

  // Takes `name` in `directory`, which is created if it is missing (but not its parents).
  // Requires: no name is taken; `name` is not empty, and has no slash.
  // Errors (kSystem): this process cannot write the directory, or any user may remove files in it
  // (world-writable, not sticky); the file is no regular file of this user alone; an appliance of
  // this name runs, or others start and stop all the time.
  Result<void> take(const std::string& directory, const std::string& name);

  bool is_valid() const noexcept;
  bool is_taken() const noexcept { return fd_.is_open(); }
  // After take(): whether no other process can hold the name. Either this process holds it, or its
  // directory does not exist (or this process cannot reach it).
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
