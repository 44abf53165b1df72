#include "platform/cgroup.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "platform/file.h"
#include "platform/text_words.h"

namespace bedplate {
namespace {

constexpr size_t kTextBytes = 16 * 1024;  // memory.stat has some 3 KiB

// The two files of a limit, by their names in a group's directory.
struct Names {
  const char* limit;
  const char* used;
};
struct Kind {
  const char* controller;
  std::vector<Names> first_version;
  std::vector<Names> second_version;
};

// Hugepages are charged when they are touched, and ("rsvd") when they are reserved for a mapping.
const Kind& kind_of(CgroupResource resource) {
  static const Kind kMemory = {"memory",
                               {{"memory.limit_in_bytes", "memory.usage_in_bytes"}},
                               {{"memory.max", "memory.current"}}};
  static const Kind k2MiB = {
      "hugetlb",
      {{"hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.usage_in_bytes"},
       {"hugetlb.2MB.rsvd.limit_in_bytes", "hugetlb.2MB.rsvd.usage_in_bytes"}},
      {{"hugetlb.2MB.max", "hugetlb.2MB.current"},
       {"hugetlb.2MB.rsvd.max", "hugetlb.2MB.rsvd.current"}}};
  static const Kind k1GiB = {
      "hugetlb",
      {{"hugetlb.1GB.limit_in_bytes", "hugetlb.1GB.usage_in_bytes"},
       {"hugetlb.1GB.rsvd.limit_in_bytes", "hugetlb.1GB.rsvd.usage_in_bytes"}},
      {{"hugetlb.1GB.max", "hugetlb.1GB.current"},
       {"hugetlb.1GB.rsvd.max", "hugetlb.1GB.rsvd.current"}}};
  switch (resource) {
    case CgroupResource::kMemory: return kMemory;
    case CgroupResource::kHugepages2MiB: return k2MiB;
    case CgroupResource::kHugepages1GiB: break;
  }
  return k1GiB;
}

std::string read_text(const std::string& path) {
  std::string text(kTextBytes, '\0');
  auto bytes = read_text_file(path.c_str(), text.data(), text.size());
  text.resize(bytes.ok() ? bytes.value() : 0);
  return text;
}

// Removes the part before `separator`, and the separator, from *text. Returns the part.
std::string_view take_until(std::string_view* text, char separator) {
  const size_t end = std::min(text->find(separator), text->size());
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return part;
}

// Memory that the kernel drops before it refuses a charge: the page cache.
uint64_t reclaimable_bytes(const std::string& group) {
  const std::string text = read_text(group + "/memory.stat");
  std::string_view rest(text);
  uint64_t bytes = 0, total_bytes = 0;
  while (!rest.empty()) {
    std::string_view line = take_until(&rest, '\n');
    const std::string_view name = take_until(&line, ' ');
    const uint64_t value = take_number<uint64_t>(&line, 0);
    if (name == "active_file" || name == "inactive_file") bytes += value;
    // In the first version only the total_ values include child groups, as the usage does.
    if (name == "total_active_file" || name == "total_inactive_file") total_bytes += value;
  }
  return std::max(bytes, total_bytes);
}

void add_limit(const std::string& group, const Names& names, bool is_memory,
               std::vector<CgroupLimit>* limits) {
  CgroupLimit found;
  found.file = group + "/" + names.limit;
  // No number: "max", or the file is missing, as in the topmost group.
  const std::optional<uint64_t> limit = read_number_file(found.file.c_str());
  if (!limit.has_value()) return;
  const uint64_t used = read_number_file((group + "/" + names.used).c_str()).value_or(0);
  const uint64_t kept = is_memory ? used - std::min(used, reclaimable_bytes(group)) : used;
  found.limit_bytes = *limit;
  found.available_bytes = *limit - std::min(*limit, kept);
  limits->push_back(found);
}

// Adds the limits of all groups from the process's own to the topmost. In a container without a
// cgroup namespace the path is the host's, and of its directories only the topmost exists: the
// container's group.
void add_limits(const std::string& top, std::string path, const std::vector<Names>& names,
                bool is_memory, std::vector<CgroupLimit>* limits) {
  while (path.ends_with('/')) path.pop_back();
  for (;;) {
    for (const Names& each : names) add_limit(top + path, each, is_memory, limits);
    if (path.empty()) return;
    path.resize(std::min(path.rfind('/'), path.size()));
    if (path.find('/') == std::string::npos) path.clear();
  }
}

bool contains(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    if (take_until(&controllers, ',') == wanted) return true;
  }
  return false;
}

}  // namespace

std::vector<CgroupLimit> cgroup_limits(CgroupResource resource, const std::string& root) {
  const Kind& kind = kind_of(resource);
  const bool is_memory = resource == CgroupResource::kMemory;
  const std::string top = root + "/sys/fs/cgroup";
  const std::string groups = read_text(root + "/proc/self/cgroup");
  std::vector<CgroupLimit> limits;
  std::string_view rest(groups);
  // [cgroups(7)] NUMBER:CONTROLLERS:PATH; the second version is number 0 without controllers.
  while (!rest.empty()) {
    std::string_view line = take_until(&rest, '\n');
    const std::string_view number = take_until(&line, ':');
    const std::string_view controllers = take_until(&line, ':');
    if (number == "0" && controllers.empty()) {
      // Beside the first version, the second is mounted at /unified.
      for (const char* mount_point : {"", "/unified"}) {
        add_limits(top + mount_point, std::string(line), kind.second_version, is_memory, &limits);
      }
    } else if (contains(controllers, kind.controller)) {
      add_limits(top + "/" + kind.controller, std::string(line), kind.first_version, is_memory,
                 &limits);
    }
  }
  return limits;
}

}  // namespace bedplate
