// The record of a crash in a counters file, for readers.
//
// The file may come from another build, or be nonsense. So the record is copied and checked, as the
// counters are (counters_snapshot.h); a file without a valid record has none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bedplate {

struct SeenCrash {
  uint64_t crashed_ns = 0;         // CLOCK_REALTIME
  std::vector<std::string> lines;  // the reason, the cause, the calls; printable ASCII

  // "2026-03-01 12:00:00 UTC".
  std::string time() const;
  // The reason and the cause in one line, without the calls.
  std::string summary() const;
};

// Reads the record of the crash that has ended the appliance of the counters file `fd`. Nothing: it
// has none. Threads: any.
std::optional<SeenCrash> read_crash(int fd);

}  // namespace bedplate
