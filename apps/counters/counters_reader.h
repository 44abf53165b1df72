// The reader's end of the counters file: which file it is, whether its appliance runs, and what it
// says (counters_snapshot.h).
#pragma once

#include <string>
#include <vector>

#include "apps/counters/counters_snapshot.h"
#include "apps/counters/trace_snapshot.h"
#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// The names of all appliances that have a counters file in `directory`, sorted.
// Errors (kSystem): it cannot be read.
Result<std::vector<std::string>> list_appliances(const std::string& directory);

// "looking for appliances in DIRECTORY: none is running", with what to do about it.
Error no_appliance(const std::string& directory);

class CountersReader {
 public:
  // Opens NAME.stats in `directory`; with an empty `name`, the only one there.
  static Result<CountersReader> open(const std::string& directory, const std::string& name);
  // The file at `path`, wherever it came from.
  static Result<CountersReader> open_file(const std::string& path);

  // As the file had them when it was opened.
  const std::string& appliance() const noexcept { return appliance_; }
  int pid() const noexcept { return pid_; }
  // Whether it ran when the file was opened; false: it crashed, and these are its last counters.
  bool is_running() const noexcept { return is_running_; }
  // Whether it runs now: as long as it has the file's lock.
  bool still_runs() const noexcept;

  // Copies what the file says now. Errors (kSystem): it was cut or changed, and is no counters file
  // any more.
  Result<CountersSnapshot> snapshot() const { return CountersSnapshot::take(fd_.number(), path_); }
  // The last requests that it has, beyond those that were told. Errors: the same, and that there
  // are none.
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
