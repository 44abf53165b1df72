#include "apps/boot/counters_file.h"

#include <cerrno>
#include <new>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/text.h"

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

std::string path_of(const std::string& directory, const std::string& name) {
  return directory + "/" + name + std::string(kSuffix);
}

void remove_if_empty(const std::string& directory) {
  rmdir(directory.c_str());  // fails when somebody else uses it: right so
}

// Opens the file and makes it this process's own. On failure nothing is left that was not there.
Result<Fd> take_file(const std::string& directory, const std::string& name) {
  const std::string path = path_of(directory, name);
  // Between the two steps an appliance that ends may remove the directory: once more, then.
  constexpr int kAttempts = 8;
  Fd fd;
  for (int attempt = 0; attempt < kAttempts && !fd.is_open(); ++attempt) {
    BP_TRY(ensure_directory(directory.c_str(), 0755));
    fd = Fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!fd.is_open() && errno != ENOENT) break;
  }
  if (!fd.is_open()) {
    const Error error = error_from_errno("making the counters file %s", path.c_str())
        .set_cure("choose an [appliance] runtime_directory that this user may write to");
    remove_if_empty(directory);
    return error;
  }
  if (struct flock lock = whole_file(F_WRLCK); fcntl(fd.number(), F_OFD_SETLK, &lock) != 0) {
    Error error;
    error.set_doing("starting the appliance %s", name.c_str());
    error.set_answer("one of this name is running: it holds %s", path.c_str());
    error.set_cure("stop it, or give this one another [appliance] name");
    return error;
  }
  return fd;
}

}  // namespace

Result<void> check_counters_file(const std::string& directory, const std::string& name) {
  const std::string path = path_of(directory, name);
  const bool was_there = access(path.c_str(), F_OK) == 0;
  auto taken = take_file(directory, name);
  if (!taken.ok()) return taken.error();
  if (!was_there) unlink(path.c_str());
  remove_if_empty(directory);
  return {};
}

CountersFile::~CountersFile() {
  if (layout_ == nullptr) return;
  munmap(layout_, sizeof *layout_);
  unlink(path_.c_str());
  remove_if_empty(directory_);
}

Result<void> CountersFile::create(const std::string& directory, const std::string& name) {
  directory_ = directory;
  path_ = path_of(directory, name);
  auto taken = take_file(directory, name);
  if (!taken.ok()) return taken.error();
  Fd fd = taken.take();
  // Emptied first: what a crashed one left must not be taken for ours.
  if (ftruncate(fd.number(), 0) != 0 || ftruncate(fd.number(), sizeof *layout_) != 0) {
    return error_from_errno("sizing the counters file %s", path_.c_str());
  }
  void* mapping = mmap(nullptr, sizeof *layout_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                       fd.number(), 0);
  if (mapping == MAP_FAILED) return error_from_errno("mapping %s", path_.c_str());
  layout_ = new (mapping) CountersLayout;
  layout_->version = kCountersVersion;
  layout_->pid = getpid();
  layout_->appliance = OwnerName(name);
  fd_ = std::move(fd);
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
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
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
