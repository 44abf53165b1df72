#include "apps/boot/counters_file.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
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

uint64_t values_bytes(const CounterSet& set) noexcept {
  return align_up(set.bytes, kCacheLineBytes);
}

// Of the file's parts: how it begins, the records of `set_count` sets, of `record_count` counters.
uint64_t sets_begin() noexcept { return align_up(sizeof(CountersLayout), kCacheLineBytes); }
uint64_t records_begin(uint64_t set_count) noexcept {
  return align_up(sets_begin() + set_count * sizeof(CounterSetRecord), kCacheLineBytes);
}
uint64_t values_begin(uint64_t set_count, uint64_t record_count) noexcept {
  return align_up(records_begin(set_count) + record_count * sizeof(CounterRecord),
                  kCacheLineBytes);
}

uint64_t record_count_of(std::span<const CounterSet> sets) noexcept {
  uint64_t count = 0;
  for (const CounterSet& set : sets) count += set.counters.size();
  return count;
}

uint64_t file_bytes(std::span<const CounterSet> sets) noexcept {
  uint64_t bytes = values_begin(sets.size(), record_count_of(sets));
  for (const CounterSet& set : sets) bytes += values_bytes(set);
  return bytes;
}

template <size_t kBytes>
void set_text(char (&to)[kBytes], const std::string& text) noexcept {
  std::snprintf(to, kBytes, "%s", text.c_str());
}

// Whether the file at `path` has what a counters file takes.
bool has_blocks(const std::string& path, uint64_t bytes) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         static_cast<uint64_t>(status.st_blocks) * 512 >= bytes;
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
Result<void> take_blocks(const Fd& fd, uint64_t bytes, const std::string& directory,
                         const std::string& path) {
  // tmpfs gives up where a signal is pending; what an io_uring has finished counts as one.
  int outcome = 0;
  do {
    outcome = posix_fallocate(fd.number(), 0, static_cast<off_t>(bytes));
  } while (outcome == EINTR);
  if (outcome == 0) return {};
  Error error;
  error.set_doing("taking %" PRIu64 " KiB for the counters file %s", bytes / kKiB, path.c_str());
  error.set_answer_errno(outcome);
  return error.set_cure("free as much in the file system of %s (`df %s`), or choose another "
                        "[appliance] runtime_directory", directory.c_str(), directory.c_str());
}

}  // namespace

Result<void> check_counters_file(const NameLock& lock, std::span<const CounterSet> sets) {
  BP_ASSERT(lock.is_taken());
  const std::string path = path_of(lock.directory(), lock.name());
  // What a crashed appliance left gives its blocks back at the next start.
  if (has_blocks(path, file_bytes(sets))) return {};
  std::string probe = path + ".XXXXXX";
  const Fd fd(mkostemp(probe.data(), O_CLOEXEC));
  if (!fd.is_open()) return not_made(path);
  unlink(probe.c_str());
  return take_blocks(fd, file_bytes(sets), lock.directory(), path);
}

CountersFile::~CountersFile() {
  if (layout_ == nullptr) return;
  munmap(layout_, layout_->file_bytes);
  if (is_file_at(path_, fd_)) unlink(path_.c_str());
}

Result<void> CountersFile::create(const NameLock& lock, std::span<const CounterSet> sets) {
  BP_ASSERT(lock.is_taken());
  path_ = path_of(lock.directory(), lock.name());
  // What a crashed one left must not be taken for ours, nor change under its readers; nor is
  // another's file written to that somebody has put there. Nobody can hold a lock on a file that
  // was private when it got ours.
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) return not_made(path_);
  Fd fd(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.is_open()) return not_made(path_);
  if (auto made = map_file(fd, lock, file_bytes(sets)); !made.ok()) {
    unlink(path_.c_str());
    return made;
  }
  describe(sets);
  fd_ = std::move(fd);
  return {};
}

Result<void> CountersFile::map_file(const Fd& fd, const NameLock& lock, uint64_t bytes) {
  BP_TRY(take_blocks(fd, bytes, lock.directory(), path_));
  struct flock running = whole_file(F_WRLCK);
  if (fcntl(fd.number(), F_OFD_SETLK, &running) != 0 || fchmod(fd.number(), 0644) != 0) {
    return not_made(path_);
  }
  void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                       fd.number(), 0);
  if (mapping == MAP_FAILED) return error_from_errno("mapping %s", path_.c_str());
  layout_ = new (mapping) CountersLayout;
  layout_->version = kCountersVersion;
  layout_->file_bytes = bytes;
  layout_->pid = getpid();
  layout_->appliance = OwnerName(lock.name());
  return {};
}

void CountersFile::describe(std::span<const CounterSet> sets) noexcept {
  auto* const bytes = reinterpret_cast<std::byte*>(layout_);
  layout_->set_count = static_cast<uint32_t>(sets.size());
  layout_->record_count = static_cast<uint32_t>(record_count_of(sets));
  auto* record = reinterpret_cast<CounterRecord*>(bytes + layout_->records_offset());
  uint32_t first = 0;
  uint64_t values = values_begin(layout_->set_count, layout_->record_count);
  for (uint32_t i = 0; i < sets.size(); ++i) {
    const CounterSet& set = sets[i];
    auto* place = reinterpret_cast<CounterSetRecord*>(bytes + layout_->sets_offset()) + i;
    new (place) CounterSetRecord{OwnerName(set.owner), OwnerName(set.name), OwnerName(set.instance), first,
                                 static_cast<uint32_t>(set.counters.size()), values};
    for (const CounterDescription& counter : set.counters) {
      new (record) CounterRecord;
      set_text(record->name, counter.name);
      set_text(record->unit, counter.unit);
      set_text(record->help, counter.help);
      record->kind = static_cast<uint32_t>(counter.kind);
      record->offset = counter.offset;
      ++record;
      ++first;
    }
    values += values_bytes(set);
  }
}

void* CountersFile::values(const CounterSet& set) noexcept {
  auto* const bytes = reinterpret_cast<std::byte*>(layout_);
  const auto* sets = reinterpret_cast<const CounterSetRecord*>(bytes + layout_->sets_offset());
  for (uint32_t i = 0; i < layout_->set_count; ++i) {
    const bool is_it = sets[i].owner == OwnerName(set.owner) &&
                       sets[i].name == OwnerName(set.name) &&
                       sets[i].instance == OwnerName(set.instance);
    if (is_it) return bytes + sets[i].values;
  }
  BP_ASSERT(false && "the file was not made for these counters");
  return nullptr;
}

uint64_t CountersLayout::sets_offset() const noexcept { return sets_begin(); }
uint64_t CountersLayout::records_offset() const noexcept { return records_begin(set_count); }

// What was read must lie in the file: another program may have written it.
static bool is_consistent(const CountersLayout& layout, uint64_t bytes) noexcept {
  if (layout.file_bytes != bytes || layout.set_count > bytes || layout.record_count > bytes ||
      values_begin(layout.set_count, layout.record_count) > bytes) {
    return false;
  }
  const auto* begin = reinterpret_cast<const std::byte*>(&layout);
  const auto* sets = reinterpret_cast<const CounterSetRecord*>(begin + layout.sets_offset());
  const auto* records = reinterpret_cast<const CounterRecord*>(begin + layout.records_offset());
  for (uint32_t i = 0; i < layout.set_count; ++i) {
    const CounterSetRecord& set = sets[i];
    if (uint64_t{set.first} + set.count > layout.record_count) return false;
    if (set.values > bytes || set.values % sizeof(Counter) != 0) return false;
    for (uint32_t k = set.first; k < set.first + set.count; ++k) {
      const uint64_t offset = records[k].offset;
      const auto kind = static_cast<CounterKind>(records[k].kind);
      if (kind > CounterKind::kHistogram || offset % sizeof(Counter) != 0 ||
          set.values + offset + bytes_of(kind) > bytes) {
        return false;
      }
    }
  }
  return true;
}

bool CountersSnapshot::still_runs() const noexcept {
  struct flock lock = whole_file(F_RDLCK);  // asks who is in the way, takes nothing
  return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

std::span<const CounterSetRecord> CountersSnapshot::sets() const noexcept {
  const auto* begin = reinterpret_cast<const std::byte*>(layout);
  return {reinterpret_cast<const CounterSetRecord*>(begin + layout->sets_offset()),
          layout->set_count};
}

std::span<const CounterRecord> CountersSnapshot::counters(
    const CounterSetRecord& set) const noexcept {
  const auto* begin = reinterpret_cast<const std::byte*>(layout);
  return {reinterpret_cast<const CounterRecord*>(begin + layout->records_offset()) + set.first,
          set.count};
}

uint64_t CountersSnapshot::value(const CounterSetRecord& set,
                                 const CounterRecord& counter) const noexcept {
  const auto* begin = reinterpret_cast<const std::byte*>(layout);
  return reinterpret_cast<const Counter*>(begin + set.values + counter.offset)->read();
}

const Histogram& CountersSnapshot::histogram(const CounterSetRecord& set,
                                             const CounterRecord& counter) const noexcept {
  BP_ASSERT(static_cast<CounterKind>(counter.kind) == CounterKind::kHistogram);
  const auto* begin = reinterpret_cast<const std::byte*>(layout);
  return *reinterpret_cast<const Histogram*>(begin + set.values + counter.offset);
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
  return open_counters_file(path_of(directory, name));
}

Result<CountersSnapshot> open_counters_file(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) {
    return error_from_errno("reading counters: opening %s", path.c_str())
        .set_cure("start the appliance (`bedplate run CONFIG`), or name its runtime directory with "
                  "--directory, or the file with --from");
  }
  Error unusable;
  unusable.set_doing("reading counters from %s", path.c_str());
  struct stat status {};
  if (fstat(fd.number(), &status) != 0 ||
      status.st_size < static_cast<off_t>(sizeof(CountersLayout))) {
    return unusable.set_answer("the file has fewer bytes than this version writes")
        .set_cure("use the `bedplate` that the appliance runs, or wait until it has booted");
  }
  const auto bytes = static_cast<uint64_t>(status.st_size);
  void* mapping = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.number(), 0);
  if (mapping == MAP_FAILED) return unusable.set_answer_errno(errno);
  CountersSnapshot snapshot;
  snapshot.layout = static_cast<const CountersLayout*>(mapping);
  if (snapshot.layout->magic.load(std::memory_order_acquire) != kCountersMagic ||
      snapshot.layout->version != kCountersVersion || !is_consistent(*snapshot.layout, bytes)) {
    return unusable.set_answer("the file is not complete, or of another version")
        .set_cure("use the `bedplate` that the appliance runs, or wait until it has booted");
  }
  snapshot.fd = fd.release();
  snapshot.is_running = snapshot.still_runs();
  return snapshot;
}

}  // namespace bedplate
