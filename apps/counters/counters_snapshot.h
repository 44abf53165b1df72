// A snapshot of a counters file: a copy of it at one moment, judged as a whole, and its sets.
//
// A reader knows the format (counters_format.h) and no counter. The file may be of another build,
// of an appliance that crashed, or nonsense, and any program that may write it can cut or change it
// at any time. So it is copied by read(2) first, and only the copy is looked at: nothing is read
// beyond its end, and what was checked stays as it was. A kind, a unit or a label that this build
// does not know is handed on as it is.
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

// Reads the bytes from `offset` of the file on, `bytes` at most. Returns how many there are; or -1
// and errno.
ssize_t read_at(int fd, void* to, size_t bytes, uint64_t offset) noexcept;

// Whether records lie in a file of `file_bytes`, on their boundaries, with `known_bytes` of each at
// least: what this build reads of one.
bool lie_in_file(const CounterRecords& records, size_t known_bytes, uint64_t file_bytes) noexcept;

// One counter; texts and values lie in the file, or in the copy of it.
struct SeenCounter {
  // The room that write_words() needs.
  static constexpr size_t kWordsBytesMax = 256;
  // Number `index` of `set`.
  static SeenCounter of(const CountersView& counters, const CounterSetRecord& set,
                        uint32_t index) noexcept;

  std::string_view name;
  std::string_view kind;
  std::string_view unit;
  std::string_view help;
  std::string_view words;
  std::span<const Counter> values;  // one, or a histogram's buckets; never empty
  uint32_t step_bits = 0;
  std::string_view column = {};  // CounterDescription::column

  bool is(CounterKind wanted) const noexcept { return kind == to_text(wanted); }
  // Whether this build can tell what the values mean; otherwise they are just numbers.
  bool is_number() const noexcept;
  bool is_histogram() const noexcept;
  uint64_t read() const noexcept { return values[0].read(); }
  // The word of a state; the words of those flags that are set ("none": none is); the number of a
  // value that has no word; a text itself. Nothing: the kind has no words.
  std::optional<std::string> read_words() const;
  // The same; returns whether it has words.
  bool write_words(TextWriter* writer) const noexcept;
};

// A struct of counters.
struct SeenSet {
  std::string_view owner;  // a service; empty: the runtime
  std::string_view name;
  std::string_view instance;  // empty: there is only one
  std::vector<std::pair<std::string_view, std::string_view>> labels;
  std::vector<SeenCounter> counters;

  const SeenCounter* find(std::string_view counter) const noexcept;
  // The value of a gauge or counter; nothing: there is none of this name.
  std::optional<uint64_t> read(std::string_view counter) const noexcept;
};

class CountersSnapshot {
 public:
  // The longest counters file, and the most counters in one: a file that claims more is refused.
  static constexpr uint64_t kBytesMax = uint64_t{64} << 20;
  static constexpr uint32_t kCounterCountMax = 1 << 20;

  // Copies what `fd` has now; `path` is for messages. Errors (kSystem): it has an end too early, is
  // no file of counters, or of another format; its records lead out of it.
  static Result<CountersSnapshot> take(int fd, const std::string& path);
  // Takes over `bytes` that were copied by other means, from the file's beginning to the traces,
  // when the appliance's clock said `taken_ns`; `source` is for messages. Errors: the same.
  static Result<CountersSnapshot> of_copy(std::unique_ptr<uint64_t[]> copy, uint64_t bytes,
                                          uint64_t taken_ns, const std::string& source);
  // How many bytes of a file with this header are counters: the traces lie behind them.
  static uint64_t bytes_of(const CountersHeader& header, uint64_t file_bytes) noexcept;

  std::string_view appliance() const noexcept;
  int pid() const noexcept { return header().pid; }
  // Whether both are of one run of an appliance: then their difference is what has grown in
  // between.
  bool is_of_run(const CountersSnapshot& other) const noexcept {
    return pid() == other.pid() && header().created_ns == other.header().created_ns;
  }
  // When it was taken: monotonic_ns() of the appliance's machine.
  uint64_t taken_ns() const noexcept { return taken_ns_; }
  // The header, which says where the parts of the file lie. The parts with traces are not judged
  // here, but for one thing: they begin in the file, behind the counters.
  const CountersHeader& header() const noexcept {
    return *reinterpret_cast<const CountersHeader*>(copy_.get());
  }
  // All sets that there were, in the file's order. They point into the copy, which lives as long as
  // this, or as the object that this was moved to.
  const std::vector<SeenSet>& sets() const noexcept { return sets_; }
  // The records themselves, as long as this lives.
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
