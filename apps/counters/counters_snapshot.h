// A snapshot of a counters file: a copy of it at one moment, which is checked as a whole, and its
// sets.
//
// A reader knows the format (counters_format.h), but no counter. The file may come from another
// build or from a crashed appliance, or be nonsense, and any program that may write it can cut or
// change it at any time. So read(2) copies it first, and only the copy is checked: nothing is read
// beyond its end, and checked data cannot change. An unknown kind, unit or label is handed on
// unchanged.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "apps/counters/counters_format.h"
#include "apps/counters/counters_view.h"
#include "platform/counter_table.h"
#include "platform/result.h"
#include "platform/text_writer.h"

namespace bedplate {

// Reads at most `bytes` bytes of the file from `offset`. Returns how many were read; or -1 and
// errno.
ssize_t read_at(int fd, void* to, size_t bytes, uint64_t offset) noexcept;

// Whether the records lie inside a file of `file_bytes`, aligned, each with at least the
// `known_bytes` that this build reads.
bool lie_in_file(const CounterRecords& records, size_t known_bytes, uint64_t file_bytes) noexcept;

// One counter; its texts and values point into the file, or into the copy of it.
struct SeenCounter {
  // The space that write_words() needs.
  static constexpr size_t kWordsBytesMax = 256;
  // Number `index` of `set`.
  static SeenCounter of(const CountersView& counters, const CounterSetRecord& set,
                        uint32_t index) noexcept;

  std::string_view name;
  std::string_view kind;
  std::string_view unit;
  std::string_view help;
  std::string_view words;
  std::span<const Counter> values;  // one, a text's words, or a histogram's buckets; never empty
  uint32_t step_bits = 0;
  std::string_view column = {};  // CounterDescription::column

  bool is(CounterKind wanted) const noexcept { return kind == to_text(wanted); }
  // Whether this build understands the values' kind; otherwise they are just numbers.
  bool is_number() const noexcept;
  bool is_histogram() const noexcept;
  uint64_t read() const noexcept { return values[0].read(); }
  // The word of a state, or the number if the value has no word; the words of the flags that are
  // set, or "none"; the text itself. Nothing: the kind has no words.
  std::optional<std::string> read_words() const;
  // Writes the same; returns whether the kind has words.
  bool write_words(TextWriter* writer) const noexcept;
};

// A struct of counters.
struct SeenSet {
  std::string_view owner;  // a service; empty: the runtime
  std::string_view name;
  std::string_view instance;  // empty: the only set of its name
  std::vector<std::pair<std::string_view, std::string_view>> labels;
  std::vector<SeenCounter> counters;

  const SeenCounter* find(std::string_view counter) const noexcept;
  // The value of a gauge (kNoValue: unknown) or counter; nothing: no counter has this name.
  std::optional<uint64_t> read(std::string_view counter) const noexcept;
};

class CountersSnapshot {
 public:
  // Limits of a file without its traces, and of the counters and labels of all sets: a file that
  // claims more is refused.
  static constexpr uint64_t kBytesMax = uint64_t{64} << 20;
  static constexpr uint32_t kCounterCountMax = 1 << 20;

  // Copies the present contents of `fd`; `path` is for messages. Errors (kSystem): the file is
  // truncated, is no counters file, is too large, or has another format; its records point out of
  // it.
  static Result<CountersSnapshot> take(int fd, const std::string& path);
  // Takes over a copy made by other means: the first `bytes` of the file, up to the traces, taken
  // at `taken_ns` of the appliance's clock. `source` is for messages. Errors: the same.
  static Result<CountersSnapshot> of_copy(std::unique_ptr<uint64_t[]> copy, uint64_t bytes,
                                          uint64_t taken_ns, const std::string& source);
  // How many bytes of a file with this header hold counters: the traces follow.
  static uint64_t bytes_of(const CountersHeader& header, uint64_t file_bytes) noexcept;

  std::string_view appliance() const noexcept;
  int pid() const noexcept { return header().pid; }
  // Whether both are of the same run of an appliance: then their difference is growth.
  bool is_of_run(const CountersSnapshot& other) const noexcept {
    return pid() == other.pid() && header().created_ns == other.header().created_ns;
  }
  // The time of the copy: monotonic_ns() of the appliance's machine, or, if take() read a file of
  // another machine, of this one.
  uint64_t taken_ns() const noexcept { return taken_ns_; }
  // The header, with the positions of the file's parts. The parts with traces are not checked here,
  // except that they begin inside the file, after the counters.
  const CountersHeader& header() const noexcept {
    return *reinterpret_cast<const CountersHeader*>(copy_.get());
  }
  // All sets that were in use, in file order. They point into the copy, which lives as long as this
  // object, or as the object that this one was moved to.
  const std::vector<SeenSet>& sets() const noexcept { return sets_; }
  // The records themselves; valid as long as this object.
  CountersView view() const noexcept { return CountersView(&header()); }

 private:
  CountersSnapshot(std::unique_ptr<uint64_t[]> copy, uint64_t bytes) noexcept
      : copy_(std::move(copy)), bytes_(bytes) {}
  bool is_consistent() const noexcept;
  void read_sets();

  std::unique_ptr<uint64_t[]> copy_;
  uint64_t bytes_;
  uint64_t taken_ns_ = 0;
  std::vector<SeenSet> sets_;
};

}  // namespace bedplate
