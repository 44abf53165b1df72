#include "apps/boot/counters_file.h"

#include <cerrno>
#include <cstdlib>
#include <new>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/text.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr std::string_view kSuffix = ".stats";

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

Error usage_error(const std::string& doing) {
  Error error;
  error.kind = ErrorKind::kConfiguration;
  error.set_doing("%s", doing.c_str());
  return error;
}

// The names of all appliances that have a counters file in `directory`.
Result<std::vector<std::string>> list_names(const std::string& directory) {
  DIR* handle = opendir(directory.c_str());
  if (handle == nullptr) {
    return error_from_errno("looking for appliances in %s", directory.c_str())
        .set_cure("start one (`bedplate run CONFIG`), or name its runtime directory with "
                  "--directory");
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(handle)) {
    const std::string_view file(entry->d_name);
    if (file.ends_with(kSuffix)) names.emplace_back(file.substr(0, file.size() - kSuffix.size()));
  }
  closedir(handle);
  return names;
}

Result<std::string> choose_name(const std::string& directory) {
  auto names = list_names(directory);
  if (!names.ok()) return names.error();
  if (names.value().size() == 1) return names.value().front();
  if (names.value().empty()) {
    Error error;
    error.set_doing("looking for appliances in %s", directory.c_str());
    error.set_answer("none is running");
    error.set_cure("start one (`bedplate run CONFIG`), or name its runtime directory with "
                   "--directory");
    return error;
  }
  std::string all;
  for (const std::string& name : names.value()) add_word(&all, name);
  return usage_error("choosing an appliance in " + directory)
      .set_answer("there are %zu: %s", names.value().size(), all.c_str())
      .set_cure("name one: bedplate stats NAME");
}

// Whether the file at `path` has what a counters file takes.
bool has_blocks(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         static_cast<uint64_t>(status.st_blocks) * 512 >= sizeof(CountersLayout);
}

std::string path_of(const std::string& directory, const std::string& name) {
  return directory + "/" + name + std::string(kSuffix);
}

Error not_made(const std::string& path) {
  return error_from_errno("making the counters file %s", path.c_str())
      .set_cure("choose an [appliance] runtime_directory that this user may write to");
}

// Gives the file its size and all of its blocks: what is missing when a mapping is written ends the
// process (SIGBUS).
Result<void> take_blocks(const Fd& fd, const std::string& directory, const std::string& path) {
  // tmpfs gives up where a signal is pending; what an io_uring has finished counts as one.
  int outcome = 0;
  do {
    outcome = posix_fallocate(fd.number(), 0, sizeof(CountersLayout));
  } while (outcome == EINTR);
  if (outcome == 0) return {};
  Error error;
  error.set_doing("taking %zu KiB for the counters file %s", sizeof(CountersLayout) / kKiB,
                  path.c_str());
  error.set_answer_errno(outcome);
  return error.set_cure("free as much in the file system of %s (`df %s`), or choose another "
                        "[appliance] runtime_directory", directory.c_str(), directory.c_str());
}

}  // namespace

Result<void> check_counters_file(const NameLock& lock) {
  BP_ASSERT(lock.is_taken());
  const std::string path = path_of(lock.directory(), lock.name());
  // What a crashed appliance left gives its blocks back at the next start.
  if (has_blocks(path)) return {};
  std::string probe = path + ".XXXXXX";
  const Fd fd(mkostemp(probe.data(), O_CLOEXEC));
  if (!fd.is_open()) return not_made(path);
  unlink(probe.c_str());
  return take_blocks(fd, lock.directory(), path);
}

CountersFile::~CountersFile() {
  if (layout_ == nullptr) return;
  munmap(layout_, sizeof *layout_);
  if (is_file_at(path_, fd_)) unlink(path_.c_str());
}

Result<void> CountersFile::create(const NameLock& lock) {
  BP_ASSERT(lock.is_taken());
  path_ = path_of(lock.directory(), lock.name());
  // What a crashed one left must not be taken for ours, nor change under its readers; nor is
  // another's file written to that somebody has put there. Nobody can hold a lock on a file that
  // was private when it got ours.
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) return not_made(path_);
  Fd fd(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.is_open()) return not_made(path_);
  if (auto made = map_file(fd, lock); !made.ok()) {
    unlink(path_.c_str());
    return made;
  }
  fd_ = std::move(fd);
  return {};
}

Result<void> CountersFile::map_file(const Fd& fd, const NameLock& lock) {
  BP_TRY(take_blocks(fd, lock.directory(), path_));
  struct flock running = whole_file(F_WRLCK);
  if (fcntl(fd.number(), F_OFD_SETLK, &running) != 0 || fchmod(fd.number(), 0644) != 0) {
    return not_made(path_);
  }
  void* mapping = mmap(nullptr, sizeof *layout_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                       fd.number(), 0);
  if (mapping == MAP_FAILED) return error_from_errno("mapping %s", path_.c_str());
  layout_ = new (mapping) CountersLayout;
  layout_->version = kCountersVersion;
  layout_->pid = getpid();
  layout_->appliance = OwnerName(lock.name());
  return {};
}

void CountersFile::publish() noexcept {
  layout_->magic.store(kCountersMagic, std::memory_order_release);  // pairs with open_counters
}

Result<CountersSnapshot> open_counters(const std::string& directory, const std::string& wanted) {
  std::string name = wanted;
  if (name.empty()) {
    auto chosen = choose_name(directory);
    if (!chosen.ok()) return chosen.error();
    name = chosen.take();
  }
  const std::string path = path_of(directory, name);
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) {
    return error_from_errno("reading the counters of %s: opening %s", name.c_str(), path.c_str())
        .set_cure("start it (`bedplate run CONFIG`), or name its runtime directory with "
                  "--directory");
  }
  Error unusable;
  unusable.set_doing("reading the counters of %s from %s", name.c_str(), path.c_str());
  struct stat status {};
  if (fstat(fd.number(), &status) != 0 ||
      status.st_size != static_cast<off_t>(sizeof(CountersLayout))) {
    return unusable.set_answer("the file has another size than this version writes")
        .set_cure("use the `bedplate` that the appliance runs, or wait until it has booted");
  }
  void* mapping = mmap(nullptr, sizeof(CountersLayout), PROT_READ, MAP_SHARED, fd.number(), 0);
  if (mapping == MAP_FAILED) return unusable.set_answer_errno(errno);
  CountersSnapshot snapshot;
  snapshot.layout = static_cast<const CountersLayout*>(mapping);
  if (snapshot.layout->magic.load(std::memory_order_acquire) != kCountersMagic ||
      snapshot.layout->version != kCountersVersion) {
    return unusable.set_answer("the file is not complete, or of another version")
        .set_cure("use the `bedplate` that the appliance runs, or wait until it has booted");
  }
  struct flock lock = whole_file(F_RDLCK);  // asks who is in the way, takes nothing
  snapshot.is_running = fcntl(fd.number(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  return snapshot;
}

}  // namespace bedplate
