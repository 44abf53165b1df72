// The appliances that `top` watches: each is read anew for each look, so that one that begins, ends
// or is started again while it is watched is seen to.
//
// Tested by tests/system/top_test.py.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/boot/counters_reader.h"
#include "apps/program/counter_changes.h"
#include "apps/program/remote_counters.h"
#include "platform/result.h"

namespace bedplate {

// One appliance, as of the last look.
struct TopAppliance {
  std::string path;  // of its counters file, or where it is asked
  bool is_running = false;
  std::optional<CountersSnapshot> before;  // nothing: it was seen for the first time
  std::optional<CountersSnapshot> now;     // nothing: `error` says why
  Error error;

  // Between the looks; 0: there was but one of this process.
  double seconds() const noexcept;
  std::vector<SetChange> changes() const;
};

class TopWatch {
 public:
  // What is watched: one file or, in a directory, one name or (empty) all that there are; or what
  // `remote` asks, if there is that.
  struct Options {
    std::string file;
    std::string directory;
    std::string name;
    std::unique_ptr<RemoteCounters> remote = nullptr;
  };
  explicit TopWatch(Options options) : options_(std::move(options)) {}

  // Looks at all of them. Errors (kSystem): the directory cannot be read, or nobody is there; what
  // is wrong with one is in it. What changes() of an earlier look returned must not be used again.
  Result<void> look();
  // By name; those that have gone are not among them any more.
  const std::vector<TopAppliance>& appliances() const noexcept { return appliances_; }
  bool is_any_running() const noexcept;

 private:
  Result<std::vector<std::string>> paths() const;
  Result<CountersSnapshot> read(const std::string& path, bool* is_running);

  Options options_;
  std::vector<TopAppliance> appliances_;
};

}  // namespace bedplate
