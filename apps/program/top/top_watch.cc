#include "apps/program/top/top_watch.h"

#include <algorithm>

#include "apps/counters/counters_file.h"
#include "platform/assert.h"
#include "platform/units.h"

namespace bedplate {

double TopAppliance::seconds() const noexcept {
  if (!before || !now || !before->is_of_run(*now)) return 0;
  return static_cast<double>(now->taken_ns() - before->taken_ns()) /
         static_cast<double>(kNsPerSecond);
}

std::vector<SetChange> TopAppliance::changes() const {
  BP_ASSERT(now.has_value());
  return counter_changes(before ? &*before : nullptr, *now);
}

Result<std::vector<std::string>> TopWatch::paths() const {
  if (options_.remote) return std::vector<std::string>{options_.remote->source()};
  if (!options_.file.empty()) return std::vector<std::string>{options_.file};
  if (!options_.name.empty()) {
    return std::vector<std::string>{counters_path(options_.directory, options_.name)};
  }
  auto names = list_appliances(options_.directory);
  if (!names.ok()) return names.error();
  if (names.value().empty()) return no_appliance(options_.directory);
  std::vector<std::string> paths;
  for (const std::string& name : names.value()) {
    paths.push_back(counters_path(options_.directory, name));
  }
  return paths;
}

// A remote appliance counts as running if it answers.
Result<CountersSnapshot> TopWatch::read(const std::string& path, bool* is_running) {
  if (options_.remote) {
    auto snapshot = options_.remote->snapshot();
    *is_running = snapshot.ok();
    return snapshot;
  }
  BP_TRY_ASSIGN(const auto reader, CountersReader::open_file(path));
  *is_running = reader.is_running();
  return reader.snapshot();
}

Result<void> TopWatch::look() {
  auto wanted = paths();
  if (!wanted.ok()) return wanted.error();
  std::vector<TopAppliance> seen;
  for (const std::string& path : wanted.value()) {
    TopAppliance& one = seen.emplace_back();
    one.path = path;
    const auto known = std::find_if(appliances_.begin(), appliances_.end(),
                                    [&](const TopAppliance& other) { return other.path == path; });
    if (known != appliances_.end()) one.before = std::move(known->now);
    auto snapshot = read(path, &one.is_running);
    if (!snapshot.ok()) {
      one.error = snapshot.error();
      continue;
    }
    one.now = snapshot.take();
  }
  appliances_ = std::move(seen);
  return {};
}

bool TopWatch::is_any_running() const noexcept {
  return std::any_of(appliances_.begin(), appliances_.end(),
                     [](const TopAppliance& one) { return one.is_running; });
}

}  // namespace bedplate
