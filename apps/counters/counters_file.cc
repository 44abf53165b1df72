#include "apps/counters/counters_file.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/counters/crash_snapshot.h"
#include "pinned_pool/memory_error.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/text.h"
#include "platform/units.h"

namespace bedplate {
namespace {

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

uint64_t values_bytes(const CounterSet& set) noexcept {
  return align_up(set.bytes, kCacheLineBytes);
}

bool has_same_counters(const CounterSet& one, const CounterSet& other) noexcept {
  return one.owner == other.owner && one.name == other.name &&
         (one.counters.is_shared_with(other.counters) ||
          std::equal(one.counters.begin(), one.counters.end(), other.counters.begin(),
                     other.counters.end(), [](const auto& left, const auto& right) {
                       return left.name == right.name && left.offset == right.offset;
                     }));
}

// Whether sets[index] needs a new description of its counters; instances of one set are adjacent.
bool is_described(std::span<const CounterSet> sets, size_t index) noexcept {
  return index == 0 || !has_same_counters(sets[index], sets[index - 1]);
}

bool has_alert(const CounterDescription& counter) noexcept {
  return counter.alert.rule != CounterAlert::Rule::kNone;
}

// The offsets of all parts of a file.
struct Layout {
  CounterRecords sets;
  CounterRecords labels;
  CounterRecords counters;
  CounterRecords alerts;
  uint64_t values = 0;
  CounterRecords rings;
  CounterRecords sources;
  CounterRecords subjects;
  uint64_t records = 0;  // of the first ring; the other rings follow
  CounterRecords crash;
  uint64_t file_bytes = 0;

  Layout(std::span<const CounterSet> all, const TraceShape& traces) noexcept {
    uint64_t offset = sizeof(CountersHeader);
    const auto add = [&offset](CounterRecords* part, size_t count, size_t record_bytes) {
      offset = align_up(offset, kCacheLineBytes);
      *part = {offset, static_cast<uint32_t>(count), static_cast<uint32_t>(record_bytes)};
      offset += count * record_bytes;
    };
    size_t label_count = 0;
    size_t counter_count = 0;
    size_t alert_count = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      label_count += all[i].labels.size();
      counter_count += is_described(all, i) ? all[i].counters.size() : 0;
      bytes += values_bytes(all[i]);
      alert_count += static_cast<size_t>(
          std::count_if(all[i].counters.begin(), all[i].counters.end(), &has_alert));
    }
    add(&sets, all.size(), sizeof(CounterSetRecord));
    add(&labels, label_count, sizeof(CounterLabelRecord));
    add(&counters, counter_count, sizeof(CounterRecord));
    add(&alerts, alert_count, sizeof(CounterAlertRecord));
    values = align_up(offset, kCacheLineBytes);
    offset = values + bytes;
    if (traces.record_count > 0) {
      size_t subject_count = 0;
      for (const auto& source : traces.sources) subject_count += source.description.subjects.size();
      add(&rings, traces.shards.size(), sizeof(TraceRingRecord));
      add(&sources, traces.sources.size(), sizeof(TraceSourceRecord));
      add(&subjects, subject_count, sizeof(OwnerName));
      offset = records = align_up(offset, kCacheLineBytes);
      offset += traces.shards.size() * traces.record_count * sizeof(TraceRecord);
    }
    add(&crash, 1, sizeof(CrashRecord));
    file_bytes = offset;
  }
};

template <size_t kBytes>
void set_text(char (&to)[kBytes], std::string_view text) noexcept {
  const std::string_view fits = cut_text(text, kBytes - 1);
  std::snprintf(to, kBytes, "%.*s", static_cast<int>(fits.size()), fits.data());
}

void write_description(const CounterDescription& counter, CounterRecord* record) noexcept {
  new (record) CounterRecord;
  set_text(record->name, counter.name);
  set_text(record->kind, to_text(counter.kind));
  set_text(record->unit, counter.unit);
  set_text(record->help, counter.help);
  set_text(record->words, counter.words);
  set_text(record->column, counter.column);
  record->offset = counter.offset;
  record->bytes = static_cast<uint32_t>(bytes_of(counter.kind));
  record->step_bits = counter.kind == CounterKind::kHistogram ? Histogram::kStepBits : 0;
}

// Whether the file at `path` has all the blocks of a counters file.
bool has_blocks(const std::string& path, uint64_t bytes) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         static_cast<uint64_t>(status.st_blocks) * 512 >= bytes;
}

Error not_made(const std::string& path) {
  return error_from_errno("creating the counters file %s", path.c_str())
      .set_cure("choose an [appliance] runtime_directory that this user may write to");
}

// Gives the file its size and all of its blocks: SIGBUS ends a process that writes to a mapping
// without a block behind it.
Result<void> take_blocks(const Fd& fd, uint64_t bytes, const std::string& directory,
                         const std::string& path) {
  // fallocate on tmpfs fails if a signal is pending; a finished io_uring request counts as one.
  int outcome = 0;
  do {
    outcome = posix_fallocate(fd.number(), 0, static_cast<off_t>(bytes));
  } while (outcome == EINTR);
  if (outcome == 0) return {};
  return error_while("allocating %s for the counters file %s", format_rounded_bytes(bytes).text,
                     path.c_str())
      .set_answer_errno(outcome)
      .set_cure("free that much space in the file system of %s (`df %s`), or choose another "
                "[appliance] runtime_directory",
                directory.c_str(), directory.c_str());
}

// Whether the file at `path` is a counters file with the record of a crash.
bool has_crash_record(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  return fd.is_open() && read_crash(fd.number()).has_value();
}

}  // namespace

std::string counters_path(const std::string& directory, const std::string& name) {
  return directory + "/" + name + std::string(kCountersSuffix);
}

std::string crashed_path(const std::string& directory, const std::string& name) {
  return directory + "/" + name + std::string(kCrashedSuffix);
}

Result<void> check_counters_file(const NameLock& lock, std::span<const CounterSet> sets,
                                 const TraceShape& traces) {
  BP_ASSERT(lock.is_taken());
  const std::string path = counters_path(lock.directory(), lock.name());
  const uint64_t bytes = Layout(sets, traces).file_bytes;
  std::string probe = path + ".XXXXXX";
  const Fd fd(mkostemp(probe.data(), O_CLOEXEC));
  if (!fd.is_open()) return not_made(path);
  unlink(probe.c_str());
  // The next start frees the blocks of a crashed appliance's file, or of the crash before, if it
  // needs them.
  if (has_blocks(path, bytes)) return {};
  if (has_blocks(crashed_path(lock.directory(), lock.name()), bytes)) return {};
  return take_blocks(fd, bytes, lock.directory(), path);
}

CountersFile::~CountersFile() {
  if (header_ == nullptr) return;
  forget_crash_record(crash_);
  forget_mapped_file(header_);
  munmap(header_, header_->file_bytes);
  if (is_file_at(path_, fd_)) unlink(path_.c_str());
}

Result<void> CountersFile::create(const NameLock& lock, std::span<const CounterSet> sets,
                                  const TraceShape& traces) {
  BP_ASSERT(lock.is_taken());
  BP_ASSERT(header_ == nullptr);
  path_ = counters_path(lock.directory(), lock.name());
  const std::string crashed = crashed_path(lock.directory(), lock.name());
  if (has_crash_record(path_) && rename(path_.c_str(), crashed.c_str()) != 0) {
    log_error(error_from_errno("keeping the record of a crash as %s", crashed.c_str())
                  .set_cure("remove what is there; this record is lost"));
  }
  // The file is made anew. So a crashed appliance's file is not taken for this one and does not
  // change under its readers, and a file that somebody else has put there is not written to. No
  // other process can hold a lock on the new file: it was private until it was locked.
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) return not_made(path_);
  Fd fd(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.is_open()) return not_made(path_);
  if (auto made = map_file(fd, lock, Layout(sets, traces).file_bytes); !made.ok()) {
    unlink(path_.c_str());
    return made;
  }
  describe(sets, traces);
  fd_ = std::move(fd);
  return {};
}

Result<void> CountersFile::map_file(const Fd& fd, const NameLock& lock, uint64_t bytes) {
  auto taken = take_blocks(fd, bytes, lock.directory(), path_);
  const std::string crashed = crashed_path(lock.directory(), lock.name());
  if (!taken.ok() && unlink(crashed.c_str()) == 0) {
    BP_LOG_WARNING("%s is removed, the record of a crash: its space is needed", crashed.c_str());
    taken = take_blocks(fd, bytes, lock.directory(), path_);
  }
  BP_TRY(taken);
  struct flock running = whole_file(F_WRLCK);
  if (fcntl(fd.number(), F_OFD_SETLK, &running) != 0 || fchmod(fd.number(), 0644) != 0) {
    return not_made(path_);
  }
  void* mapping =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.number(), 0);
  if (mapping == MAP_FAILED) return error_from_errno("mapping %s", path_.c_str());
  name_mapped_file(mapping, bytes, path_.c_str());
  header_ = new (mapping) CountersHeader;
  header_->format = kCountersFormat;
  header_->file_bytes = bytes;
  header_->pid = getpid();
  header_->created_ns = realtime_ns();
  header_->begun_ns = monotonic_ns();
  header_->appliance = OwnerName(lock.name());
  return {};
}

void CountersFile::describe(std::span<const CounterSet> all, const TraceShape& traces) noexcept {
  const Layout layout(all, traces);
  header_->sets = layout.sets;
  header_->labels = layout.labels;
  header_->counters = layout.counters;
  header_->alert_count = layout.alerts.count;
  header_->alert_record_bytes = layout.alerts.record_bytes;
  BP_ASSERT(alert_records(*header_).offset == layout.alerts.offset);
  auto* label = reinterpret_cast<CounterLabelRecord*>(begin() + layout.labels.offset);
  auto* record = reinterpret_cast<CounterRecord*>(begin() + layout.counters.offset);
  uint32_t first_label = 0;
  uint32_t next = 0;  // index of the next record
  uint32_t first = 0;
  uint64_t values = layout.values;
  for (size_t i = 0; i < all.size(); ++i) {
    const CounterSet& set = all[i];
    const bool is_new = is_described(all, i);
    if (is_new) first = next;
    const auto count = static_cast<uint32_t>(set.counters.size());
    const auto label_count = static_cast<uint32_t>(set.labels.size());
    new (&sets()[i]) CounterSetRecord{OwnerName(set.owner),
                                      OwnerName(set.name),
                                      OwnerName(set.instance),
                                      first,
                                      count,
                                      first_label,
                                      label_count,
                                      values,
                                      set.is_spare ? 0U : 1U,
                                      static_cast<uint32_t>(set.role)};
    for (const CounterLabel& one : set.labels) {
      new (label) CounterLabelRecord;
      set_text(label->name, one.name);
      set_text((label++)->value, one.value);
    }
    for (size_t k = 0; is_new && k < count; ++k) write_description(set.counters[k], record++);
    first_label += label_count;
    next += is_new ? count : 0;
    values += values_bytes(set);
  }
  BP_ASSERT(next == layout.counters.count && first_label == layout.labels.count);
  BP_ASSERT(values <= layout.file_bytes);
  header_->rings = layout.rings;
  header_->sources = layout.sources;
  header_->subjects = layout.subjects;
  if (traces.record_count > 0) describe_traces(traces, layout.records);
  header_->crash = layout.crash;
  crash_ = new (begin() + layout.crash.offset) CrashRecord;
  describe_alerts(all);
}

void CountersFile::describe_alerts(std::span<const CounterSet> all) noexcept {
  uint32_t next = 0;
  for (uint32_t i = 0; i < all.size(); ++i) {
    for (uint32_t k = 0; k < all[i].counters.size(); ++k) {
      const CounterDescription& counter = all[i].counters[k];
      if (!has_alert(counter)) continue;
      auto* record = new (&alert(next++)) CounterAlertRecord{.set = i, .counter = k};
      set_text(record->says, counter.alert.says);
    }
  }
  BP_ASSERT(next == header_->alert_count);
}

void CountersFile::describe_traces(const TraceShape& traces, uint64_t records) noexcept {
  auto* ring = reinterpret_cast<TraceRingRecord*>(begin() + header_->rings.offset);
  for (const std::string& shard : traces.shards) {
    new (ring++)
        TraceRingRecord{OwnerName(shard), {records, traces.record_count, sizeof(TraceRecord)}};
    records += traces.record_count * sizeof(TraceRecord);
  }
  BP_ASSERT(records <= header_->file_bytes - sizeof(CrashRecord));
  auto* source = reinterpret_cast<TraceSourceRecord*>(begin() + header_->sources.offset);
  auto* subject = reinterpret_cast<OwnerName*>(begin() + header_->subjects.offset);
  uint32_t first_subject = 0;
  for (const auto& [service, description] : traces.sources) {
    const auto count = static_cast<uint32_t>(description.subjects.size());
    new (source) TraceSourceRecord{OwnerName(service), {}, {}, first_subject, count};
    set_text(source->kinds, description.kinds);
    set_text((source++)->stations, description.stations);
    for (const std::string& name : description.subjects) new (subject++) OwnerName(name);
    first_subject += count;
  }
  BP_ASSERT(first_subject == header_->subjects.count);
}

std::span<TraceRecord> CountersFile::trace_records(uint32_t shard) noexcept {
  if (header_->rings.count == 0) return {};
  BP_ASSERT(shard < header_->rings.count);
  const auto* rings = reinterpret_cast<const TraceRingRecord*>(begin() + header_->rings.offset);
  const CounterRecords& records = rings[shard].records;
  return {reinterpret_cast<TraceRecord*>(begin() + records.offset), records.count};
}

std::span<CounterSetRecord> CountersFile::sets() noexcept {
  return {reinterpret_cast<CounterSetRecord*>(begin() + header_->sets.offset), header_->sets.count};
}

CounterSetRecord* CountersFile::find(std::string_view owner, std::string_view name,
                                     std::string_view instance) noexcept {
  for (CounterSetRecord& set : sets()) {
    const bool is_it = set.owner == OwnerName(owner) && set.name == OwnerName(name) &&
                       set.instance == OwnerName(instance);
    if (is_it && set.is_there.load(std::memory_order_relaxed) != 0) return &set;
  }
  return nullptr;
}

void* CountersFile::values(const CounterSet& set) noexcept {
  CounterSetRecord* record = find(set.owner, set.name, set.instance);
  BP_ASSERT(record != nullptr && "the file was not made for these counters");
  return begin() + record->values;
}

CounterSetRecord* CountersFile::take_spare_set(std::string_view name,
                                               std::string_view instance) noexcept {
  for (CounterSetRecord& set : sets()) {
    const bool is_spare = set.is_there.load(std::memory_order_relaxed) == 0;
    if (!is_spare || !(set.name == OwnerName(name))) continue;
    set.instance = OwnerName(instance);
    set.is_there.store(1, std::memory_order_release);  // pairs with CountersView::is_there
    return &set;
  }
  return nullptr;
}

void CountersFile::set_label(std::string_view name, std::string_view instance,
                             std::string_view label, std::string_view value,
                             std::string_view owner) noexcept {
  const CounterSetRecord* set = find(owner, name, instance);
  BP_ASSERT(set != nullptr);
  auto* labels = reinterpret_cast<CounterLabelRecord*>(begin() + header_->labels.offset);
  for (uint32_t i = 0; i < set->label_count; ++i) {
    CounterLabelRecord& one = labels[set->first_label + i];
    if (std::string_view(one.name) == label) return set_text(one.value, value);
  }
  BP_ASSERT(false && "the label is not planned");
}

void CountersFile::publish() noexcept {
  BP_ASSERT(header_->magic.load(std::memory_order_relaxed) == 0);
  header_->magic.store(kCountersMagic, std::memory_order_release);  // pairs with CountersReader
}

void CountersFile::keep_crashes() noexcept {
  keep_crash_in(
      crash_,
      [](void* header) noexcept {
        static_cast<CountersHeader*>(header)->magic.store(kCountersMagic,
                                                          std::memory_order_release);
      },
      header_);
}

}  // namespace bedplate
