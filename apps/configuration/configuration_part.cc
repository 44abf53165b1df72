#include "apps/configuration/configuration_part.h"

#include <algorithm>
#include <array>
#include <span>

// apps/peers/verbs_tables.cc and apps/init/image_tables.cc define them.
extern "C" [[gnu::weak]] const bedplate::ConfigurationPart bedplate_verbs_tables;
extern "C" [[gnu::weak]] const bedplate::ConfigurationPart bedplate_init_tables;

namespace bedplate {
namespace {

struct KnownPart {
  const char* name;
  std::span<const std::string_view> tables;
  const ConfigurationPart* linked;  // nullptr: the program is linked without it
};

constexpr std::string_view kVerbsTables[] = {"verbs"};
constexpr std::string_view kInitTables[] = {"init", "network", "watchdog", "crash"};

// In the order of docs/configuration.md.
std::array<KnownPart, 2> known_parts() noexcept {
  return {{{"verbs", kVerbsTables, &bedplate_verbs_tables},
           {"init", kInitTables, &bedplate_init_tables}}};
}

}  // namespace

void describe_parts(ConfigurationTable& file, Configuration& all) {
  for (const KnownPart& part : known_parts()) {
    if (part.linked != nullptr) part.linked->describe(file, all);
  }
}

void check_parts(ReadTable& file, const Configuration& all) {
  for (const KnownPart& part : known_parts()) {
    if (part.linked != nullptr) part.linked->check(file, all);
  }
}

Result<void> check_segments_of_parts(const Configuration& all,
                                     const std::vector<SegmentRequest>& segments) {
  for (const KnownPart& part : known_parts()) {
    if (part.linked == nullptr || part.linked->check_segments == nullptr) continue;
    BP_TRY(part.linked->check_segments(all, segments));
  }
  return {};
}

const char* missing_part(std::string_view table) noexcept {
  for (const KnownPart& part : known_parts()) {
    const bool is_its =
        std::find(part.tables.begin(), part.tables.end(), table) != part.tables.end();
    if (is_its && part.linked == nullptr) return part.name;
  }
  return nullptr;
}

}  // namespace bedplate
