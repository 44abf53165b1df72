// The counters file: NAME.stats in the runtime directory, a small self-describing file
// (counters_format.h) on tmpfs. The appliance maps and writes it; `bedplate stats` reads it.
// Readers do not map it: SIGBUS ends a process that touches a mapping of a truncated file.
//
// Each counter is written by one thread with relaxed stores, so reading costs the appliance
// nothing. The file is removed on a clean stop and kept after a crash. A lock on the file (fcntl,
// as long as the process runs) tells readers that the appliance has not crashed. Nothing else
// depends on this lock, since any process that can read the file can lock it once the appliance is
// gone (name_lock.h keeps a name from running twice). Readers use counters_reader.h.
//
// A crash writes its record into the file. The next start of the name renames a file that has one
// to NAME.crash, in place of an older one: so the record and the last counters of the latest crash
// stay until somebody removes the file, or its space is needed.
#pragma once

#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "apps/counters/counters_format.h"
#include "apps/counters/counters_view.h"
#include "apps/counters/trace_table.h"
#include "platform/assert.h"
#include "platform/counter_table.h"
#include "platform/crash_record.h"
#include "platform/file.h"
#include "platform/name_lock.h"
#include "platform/result.h"

namespace bedplate {

// ".stats": NAME.stats is the file.
inline constexpr std::string_view kCountersSuffix = ".stats";
std::string counters_path(const std::string& directory, const std::string& name);
// ".crash": NAME.crash is the counters file of the latest run that left a record of its crash.
inline constexpr std::string_view kCrashedSuffix = ".crash";
std::string crashed_path(const std::string& directory, const std::string& name);

// Checks that CountersFile::create would succeed now, and leaves everything as it was. Requires:
// `lock` is taken.
Result<void> check_counters_file(const NameLock& lock, std::span<const CounterSet> sets = {},
                                 const TraceShape& traces = {});

// The appliance's end.
class CountersFile {
 public:
  CountersFile() noexcept = default;
  CountersFile(const CountersFile&) = delete;
  CountersFile& operator=(const CountersFile&) = delete;
  // Removes the file. A process that crashes does not get here, so its file stays.
  ~CountersFile();

  // Creates the file, with all its blocks. Renames a crashed appliance's file that has a record,
  // and replaces any other. The file describes `sets` and `traces`. Errors: the directory cannot be
  // written, or its file system is full. Requires: `lock` is taken, and stays taken as long as this
  // object lives.
  Result<void> create(const NameLock& lock, std::span<const CounterSet> sets = {},
                      const TraceShape& traces = {});
  // Marks the counters as complete: readers accept the file from now on.
  void publish() noexcept;
  // From now on a crash of the process is recorded in this file, and publishes it if it was not
  // published yet. Requires: create() was called; only one file in a process does so.
  void keep_crashes() noexcept;

  // The values of `set`, aligned to a cache line; create() has zeroed them. Requires: the set was
  // given to create(), and is in use.
  void* values(const CounterSet& set) noexcept;
  // Zeroes a set of the runtime's own and returns it, by its name. Requires: it was given to
  // create(), and is in use.
  template <typename Counters>
  Counters& runtime(std::string_view name, std::string_view instance = "") noexcept {
    CounterSetRecord* set = find("", name, instance);
    BP_ASSERT(set != nullptr && "the file was not made for these counters");
    return *new (begin() + set->values) Counters;
  }
  // Gives the next spare set of this name to `instance`; nullptr: all are taken. Threads: one.
  template <typename Counters>
  Counters* take_spare(std::string_view name, std::string_view instance) noexcept {
    CounterSetRecord* set = take_spare_set(name, instance);
    return set == nullptr ? nullptr : new (begin() + set->values) Counters;
  }
  // Sets a label of a set, the runtime's or a service's. A longer value is cut to 159 bytes.
  // Requires: the label is planned, and publish() was not called.
  void set_label(std::string_view name, std::string_view instance, std::string_view label,
                 std::string_view value, std::string_view owner = "") noexcept;

  // The ring of a shard, by its index; empty: no traces.
  std::span<TraceRecord> trace_records(uint32_t shard) noexcept;

  CountersHeader& header() noexcept { return *header_; }
  // The record of alert number `index`, in the order of `sets` and their counters; it says whether
  // the alert is raised. Requires: `index` is below the number of alerts.
  CounterAlertRecord& alert(uint32_t index) noexcept {
    BP_ASSERT(index < header_->alert_count);
    const CounterRecords alerts = alert_records(*header_);
    return reinterpret_cast<CounterAlertRecord*>(begin() + alerts.offset)[index];
  }
  // The file as a reader sees it, without opening it. Requires: create() was called.
  CountersView view() const noexcept { return CountersView(header_); }

 private:
  Result<void> map_file(const Fd& fd, const NameLock& lock, uint64_t bytes);
  void describe(std::span<const CounterSet> sets, const TraceShape& traces) noexcept;
  void describe_traces(const TraceShape& traces, uint64_t records) noexcept;
  void describe_alerts(std::span<const CounterSet> sets) noexcept;
  std::byte* begin() noexcept { return reinterpret_cast<std::byte*>(header_); }
  std::span<CounterSetRecord> sets() noexcept;
  CounterSetRecord* find(std::string_view owner, std::string_view name,
                         std::string_view instance) noexcept;
  CounterSetRecord* take_spare_set(std::string_view name, std::string_view instance) noexcept;

  std::string path_;
  Fd fd_;
  CountersHeader* header_ = nullptr;
  CrashRecord* crash_ = nullptr;
};

}  // namespace bedplate
