// The reader's end of the counters file: what sets of counters there are, and what they say.
//
// A reader knows the format (counters_format.h) and nothing of what is counted. The file may be of
// another build, of an appliance that crashed, or nonsense: whatever its records say, nothing is
// read beyond its end, and a kind, a unit or a label that this build does not know is handed on as
// it is.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/boot/counter_table.h"
#include "apps/boot/counters_format.h"
#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// One counter of a file; texts lie in the file.
struct SeenCounter {
  std::string_view name;
  std::string_view kind;
  std::string_view unit;
  std::string_view help;
  std::string_view words;
  std::span<const Counter> values;  // one, or a histogram's buckets; never empty
  uint32_t step_bits = 0;

  bool is(CounterKind wanted) const noexcept { return kind == text_of(wanted); }
  // Whether this build can tell what the values mean; otherwise they are just numbers.
  bool is_number() const noexcept;
  bool is_histogram() const noexcept;
  uint64_t read() const noexcept { return values[0].read(); }
  // Of a state its word, of flags those that are set ("none": none is); of a value that has no word
  // its number. Nothing: the kind has no words.
  std::optional<std::string> read_words() const;
};

// A struct of counters of a file.
struct SeenSet {
  std::string_view owner;  // a service; empty: the runtime
  std::string_view name;
  std::string_view instance;  // empty: there is only one
  std::vector<std::pair<std::string_view, std::string_view>> labels;
  std::vector<SeenCounter> counters;

  const SeenCounter* find(std::string_view counter) const noexcept;
  // What a gauge or counter says; nothing: there is none of this name.
  std::optional<uint64_t> read(std::string_view counter) const noexcept;
};

class CountersReader {
 public:
  // Opens NAME.stats in `directory`; with an empty `name`, the only one there.
  static Result<CountersReader> open(const std::string& directory, const std::string& name);
  // The file at `path`, wherever it came from.
  static Result<CountersReader> open_file(const std::string& path);

  CountersReader(CountersReader&& other) noexcept;
  CountersReader& operator=(CountersReader&&) = delete;
  ~CountersReader();

  std::string_view appliance() const noexcept;
  int pid() const noexcept { return header_->pid; }
  // Whether it ran when the file was opened; false: it crashed, and these are its last counters.
  bool is_running() const noexcept { return is_running_; }
  // Whether it runs now: as long as it has the file's lock.
  bool still_runs() const noexcept;

  // All sets that there are by now, in the file's order. What they point at lives as long as this.
  std::vector<SeenSet> sets() const;

 private:
  CountersReader(Fd fd, const CountersHeader* header, uint64_t file_bytes) noexcept
      : fd_(std::move(fd)), header_(header), file_bytes_(file_bytes) {}
  bool is_consistent() const noexcept;
  const std::byte* record(const CounterRecords& records, uint32_t index) const noexcept;

  Fd fd_;
  const CountersHeader* header_ = nullptr;  // mapped read-only
  uint64_t file_bytes_ = 0;
  bool is_running_ = false;
};

}  // namespace bedplate
