// The reader's end of the counters file: it finds the file, tells whether its appliance runs, and
// copies its contents (counters_snapshot.h, trace_snapshot.h, crash_snapshot.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/counters/counters_snapshot.h"
#include "apps/counters/crash_snapshot.h"
#include "apps/counters/trace_snapshot.h"
#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// The names of all appliances that have a counters file in `directory`, sorted. Errors (kSystem):
// the directory cannot be read.
Result<std::vector<std::string>> list_appliances(const std::string& directory);

// The names of all appliances whose latest crash left a file there (crashed_path), sorted. Errors:
// the same.
Result<std::vector<std::string>> list_crashed(const std::string& directory);

// "looking for appliances in DIRECTORY: none is running", with a cure.
Error no_appliance(const std::string& directory);

class CountersReader {
 public:
  // Opens NAME.stats in `directory`; with an empty `name`, the only such file there.
  static Result<CountersReader> open(const std::string& directory, const std::string& name);
  // Opens the file at `path`, from any machine.
  static Result<CountersReader> open_file(const std::string& path);

  // As in the file when it was opened.
  const std::string& appliance() const noexcept { return appliance_; }
  int pid() const noexcept { return pid_; }
  // Whether the appliance ran when the file was opened; false: it crashed, and these are its last
  // counters, or the file is a copy.
  bool is_running() const noexcept { return is_running_; }
  // Whether the appliance still runs: it holds the file's lock.
  bool still_runs() const noexcept;

  // Copies the file's present contents. Errors (kSystem): the file was cut or changed, and is no
  // valid counters file any more.
  Result<CountersSnapshot> snapshot() const { return CountersSnapshot::take(fd_.number(), path_); }
  // The record of the crash that has ended the appliance; nothing: there is none.
  std::optional<SeenCrash> crash() const { return read_crash(fd_.number()); }
  // The last requests in the file that are newer than `told`. Errors: the same; no requests are
  // traced.
  Result<TraceSnapshot> traces(const ToldRequests& told = {}) const {
    return TraceSnapshot::take(fd_.number(), path_, told);
  }

 private:
  CountersReader(Fd fd, std::string path) noexcept : fd_(std::move(fd)), path_(std::move(path)) {}

  Fd fd_;
  std::string path_;
  std::string appliance_;
  int pid_ = 0;
  bool is_running_ = false;
};

}  // namespace bedplate
