#include "apps/counters/crash_snapshot.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <memory>
#include <string_view>

#include <sys/stat.h>

#include "apps/counters/counters_format.h"
#include "apps/counters/counters_snapshot.h"
#include "platform/crash_record.h"
#include "platform/text.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// A line of a foreign file may have any length.
constexpr size_t kLineBytesMax = 1024;
// The length of the shortest header that has crash records.
constexpr size_t kHeaderBytesMin = offsetof(CountersHeader, crash) + sizeof(CounterRecords);

// Returns where the record lies; 0: nowhere in the file.
uint64_t offset_of_crash(int fd) noexcept {
  struct stat status {};
  CountersHeader header;
  if (fstat(fd, &status) != 0 ||
      read_at(fd, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      header.magic.load(std::memory_order_relaxed) != kCountersMagic ||
      header.format != kCountersFormat || header.sets.offset < kHeaderBytesMin ||
      header.crash.count != 1 ||
      !lie_in_file(header.crash, sizeof(CrashRecord), static_cast<uint64_t>(status.st_size))) {
    return 0;
  }
  return header.crash.offset;
}

}  // namespace

std::string SeenCrash::time() const {
  const auto seconds = static_cast<time_t>(crashed_ns / kNsPerSecond);
  tm parts = {};
  char text[64] = "";
  if (gmtime_r(&seconds, &parts) != nullptr) {
    (void)std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  }
  return text;
}

std::string SeenCrash::summary() const {
  std::string all;
  for (const std::string& line : lines) {
    if (line.starts_with(' ')) break;  // a call
    all += (all.empty() ? "" : "; ") + line;
  }
  return all;
}

std::optional<SeenCrash> read_crash(int fd) {
  const uint64_t offset = offset_of_crash(fd);
  const auto record = std::make_unique<CrashRecord>();
  if (offset == 0 ||
      read_at(fd, record.get(), sizeof *record, offset) != static_cast<ssize_t>(sizeof *record)) {
    return {};
  }
  SeenCrash seen;
  seen.crashed_ns = record->crashed_ns.load(std::memory_order_relaxed);
  if (seen.crashed_ns == 0) return {};
  const uint64_t bytes = record->text_bytes.load(std::memory_order_relaxed);
  std::string_view rest(record->text, std::min<uint64_t>(bytes, sizeof record->text));
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    seen.lines.push_back(printable(rest.substr(0, std::min(end, kLineBytesMax))));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return seen;
}

}  // namespace bedplate
