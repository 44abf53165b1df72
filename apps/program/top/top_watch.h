// The appliances that `top` watches. Each look opens all files again, so it sees appliances that
// start, end or restart.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/counters/counters_reader.h"
#include "apps/program/counters/counter_changes.h"
#include "apps/program/counters/remote_counters.h"
#include "platform/result.h"

namespace bedplate {

// One appliance, as of the last look.
struct TopAppliance {
  std::string path;  // of its counters file, socket or line
  bool is_running = false;
  std::optional<CountersSnapshot> before;  // nothing: the look before did not read it
  std::optional<CountersSnapshot> now;     // nothing: `error` says why
  Error error;

  // The time between the two looks; 0: only one look at this process.
  double seconds() const noexcept;
  // The changes since `before`. Lifetime: until the next look(). Requires: `now` has a value.
  std::vector<SetChange> changes() const;
};

class TopWatch {
 public:
  // Selects the appliances: one file; in a directory, one name or (empty) all; or the appliance
  // that `remote` asks, if set.
  struct Options {
    std::string file;
    std::string directory;
    std::string name;
    std::unique_ptr<RemoteCounters> remote = nullptr;
  };
  explicit TopWatch(Options options) : options_(std::move(options)) {}

  // Reads all appliances. Errors (kSystem): the directory cannot be read, or has no appliance: then
  // appliances() stays as it was. An appliance's own error is in its TopAppliance. Results of
  // earlier changes() become invalid.
  Result<void> look();
  // Sorted by name. In a directory, an appliance that has ended is gone; a crashed one stays, with
  // its last counters.
  const std::vector<TopAppliance>& appliances() const noexcept { return appliances_; }
  bool is_any_running() const noexcept;

 private:
  Result<std::vector<std::string>> paths() const;
  Result<CountersSnapshot> read(const std::string& path, bool* is_running);

  Options options_;
  std::vector<TopAppliance> appliances_;
};

}  // namespace bedplate
