#include "platform/name_lock.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace bedplate {
namespace {

// An attempt fails only if another process of the same name starts or stops meanwhile.
constexpr int kAttempts = 100;
constexpr unsigned kDirectoryMode = 0755;
constexpr unsigned kPrivateMode = 0600;
// Follows no symbolic link of another user, and does not wait for the other end of a FIFO.
constexpr int kOpenFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::string lock_path(const std::string& directory, const std::string& name) {
  return directory + "/" + name + ".lock";
}

Error starting(const std::string& name) {
  return error_while("starting the appliance %s", name.c_str());
}

Error is_running(const std::string& name, const std::string& path) {
  return starting(name)
      .set_answer("an appliance of this name is running: it holds %s", path.c_str())
      .set_cure("stop it, or give this one another [appliance] name");
}

Error not_opened(const std::string& name, const std::string& path) {
  if (errno == ELOOP) {
    return starting(name).set_answer("%s is a symbolic link", path.c_str()).set_cure("remove it");
  }
  return error_from_errno("starting the appliance %s: opening %s", name.c_str(), path.c_str())
      .set_cure("choose an [appliance] runtime_directory that this user may write to, or another "
                "name");
}

// Refuses a file that other users could also lock.
Result<void> check_is_private(const std::string& name, const std::string& path, const Fd& fd) {
  struct stat status {};
  if (fstat(fd.number(), &status) != 0) return error_from_errno("checking %s", path.c_str());
  if (S_ISREG(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & 0077) == 0) {
    return {};
  }
  return starting(name)
      .set_answer("%s does not belong to this user alone (user %u, mode %o)", path.c_str(),
                  status.st_uid, status.st_mode & 07777)
      .set_cure("remove it; if it comes back, choose an [appliance] runtime_directory that only "
                "this user may write to");
}

// Refuses a directory in which any user may remove files: the name could run twice.
Result<void> check_directory(const std::string& name, const std::string& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) return {};  // opening the file says why
  if ((status.st_mode & S_IWOTH) == 0 || (status.st_mode & S_ISVTX) != 0) return {};
  return starting(name)
      .set_answer("any user may remove files in its runtime directory %s", directory.c_str())
      .set_cure("chmod o-w %s, or choose another [appliance] runtime_directory", directory.c_str());
}

}  // namespace

bool is_file_at(const std::string& path, const Fd& fd) noexcept {
  struct stat there {};
  struct stat ours {};
  return lstat(path.c_str(), &there) == 0 && fstat(fd.number(), &ours) == 0 &&
         there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;
}

void remove_if_empty(const std::string& directory) noexcept {
  rmdir(directory.c_str());  // fails, as intended, if the directory is not empty
}

bool NameLock::is_valid() const noexcept {
  return is_taken() ? path_ == lock_path(directory_, name_) : path_.empty();
}

NameLock::~NameLock() {
  BP_ASSERT(is_valid());
  if (!is_taken()) return;
  // Removed while it is locked: appliances that open the file later make a new one.
  if (is_file_at(path_, fd_)) unlink(path_.c_str());
  fd_.close();
  remove_if_empty(directory_);
}

bool NameLock::is_nobody_elses() const noexcept {
  return is_taken() || access(directory_.c_str(), F_OK) != 0;
}

Result<void> NameLock::take(const std::string& directory, const std::string& name) {
  BP_ASSERT(!is_taken() && !name.empty() && name.find('/') == std::string::npos);
  directory_ = directory;
  name_ = name;
  const std::string path = lock_path(directory, name);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (auto made = ensure_directory(directory.c_str(), kDirectoryMode); !made.ok()) {
      Error error = made.error();
      return error.set_cure("make it, or choose another [appliance] runtime_directory");
    }
    BP_TRY(check_directory(name, directory));
    Fd fd(open(path.c_str(), kOpenFlags, kPrivateMode));
    if (!fd.is_open() && errno == ENOENT) continue;  // an ending appliance removed the directory
    if (!fd.is_open()) {
      const Error error = not_opened(name, path);
      remove_if_empty(directory);
      return error;
    }
    BP_TRY(check_is_private(name, path, fd));
    struct flock lock = whole_file();
    const bool is_locked = fcntl(fd.number(), F_OFD_SETLK, &lock) == 0;
    // An ending appliance removes the file; a lock on the removed file does not guard the name.
    if (!is_file_at(path, fd)) continue;
    if (!is_locked) return is_running(name, path);
    path_ = path;
    fd_ = std::move(fd);
    BP_ASSERT(is_valid());
    return {};
  }
  return starting(name)
      .set_answer("other appliances of this name start and stop all the time")
      .set_cure("stop what starts them, or give this one another [appliance] name");
}

}  // namespace bedplate
