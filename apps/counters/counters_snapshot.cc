#include "apps/counters/counters_snapshot.h"

#include <algorithm>
#include <cerrno>

#include <sys/stat.h>
#include <unistd.h>

#include "apps/counters/counter_sums.h"
#include "apps/counters/counters_view.h"
#include "platform/clock.h"

namespace bedplate {
namespace {

// Whether `bytes` bytes at `offset` lie inside a file of `file_bytes`.
bool lies_in(uint64_t offset, uint64_t bytes, uint64_t file_bytes) noexcept {
  return offset <= file_bytes && bytes <= file_bytes - offset;
}

// Removes the first word of "a|b|c", and returns it.
std::string_view take_choice(std::string_view* words) noexcept {
  const size_t end = std::min(words->find('|'), words->size());
  const std::string_view word = words->substr(0, end);
  words->remove_prefix(std::min(end + 1, words->size()));
  return word;
}

constexpr const char* kLeadsOut = "its records point outside the file";
constexpr const char* kSpoiled =
    "copy the whole file; otherwise it is damaged, or not a counters file";

Error unusable(const std::string& source) {
  return error_while("reading counters from %s", source.c_str());
}

// Refuses a file of another format.
Result<void> check_format(const CountersHeader& header, const std::string& source) {
  if (header.magic.load(std::memory_order_relaxed) != kCountersMagic) {
    return unusable(source)
        .set_answer("the file is incomplete, or not a counters file")
        .set_cure("wait until the appliance has booted; for an older release use its own "
                  "program");
  }
  if (header.format != kCountersFormat) {
    return unusable(source)
        .set_answer("it has format %u, but this program reads %u", header.format, kCountersFormat)
        .set_cure("use the program that the appliance runs");
  }
  return {};
}

Result<void> check_length(uint64_t bytes, const std::string& source) {
  if (bytes > CountersSnapshot::kBytesMax) {
    return unusable(source)
        .set_answer("it is larger than a counters file can be")
        .set_cure("%s", kSpoiled);
  }
  if (bytes >= sizeof(CountersHeader)) return {};
  return unusable(source).set_answer("%s", kLeadsOut).set_cure("%s", kSpoiled);
}

}  // namespace

uint64_t CountersSnapshot::bytes_of(const CountersHeader& header, uint64_t file_bytes) noexcept {
  return header.rings.count == 0 ? file_bytes : std::min(header.rings.offset, file_bytes);
}

bool lie_in_file(const CounterRecords& records, size_t known_bytes, uint64_t file_bytes) noexcept {
  return records.offset % 8 == 0 && records.record_bytes % 8 == 0 &&
         records.record_bytes >= known_bytes &&
         lies_in(records.offset, uint64_t{records.count} * records.record_bytes, file_bytes);
}

ssize_t read_at(int fd, void* to, size_t bytes, uint64_t offset) noexcept {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        pread(fd, static_cast<char*>(to) + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

bool SeenCounter::is_number() const noexcept {
  return is(CounterKind::kCounter) || is(CounterKind::kGauge);
}

bool SeenCounter::is_histogram() const noexcept {
  return is(CounterKind::kHistogram) && step_bits == Histogram::kStepBits;
}

SeenCounter SeenCounter::of(const CountersView& counters, const CounterSetRecord& set,
                            uint32_t index) noexcept {
  const CounterRecord& one = counters.counter(set, index);
  return {CountersView::text(one.name),
          CountersView::text(one.kind),
          CountersView::text(one.unit),
          CountersView::text(one.help),
          CountersView::text(one.words),
          counters.values(set, one),
          one.step_bits,
          counters.column(one)};
}

std::optional<std::string> SeenCounter::read_words() const {
  char text[kWordsBytesMax];
  TextWriter writer(text);
  if (!write_words(&writer)) return {};
  return std::string(text, writer.bytes());
}

bool SeenCounter::write_words(TextWriter* writer) const noexcept {
  if (is(CounterKind::kText)) {
    writer->text(SharedText::read(values).view());
    return true;
  }
  const bool is_state = is(CounterKind::kState);
  if (!is_state && !is(CounterKind::kFlags)) return false;
  uint64_t value = read();
  const char* separator = "";
  std::string_view rest = words;
  for (uint64_t i = 0; i < 64 && !rest.empty(); ++i) {
    const std::string_view word = take_choice(&rest);
    if (is_state && i == value) {
      writer->text(word);
      return true;
    }
    if (is_state || (value >> i & 1) == 0) continue;
    writer->text(separator).text(word);
    separator = " ";
    value &= ~(uint64_t{1} << i);
  }
  if (is_state || value != 0) {
    writer->text(separator).number(value);  // it has no word
  } else if (*separator == '\0') {
    writer->text("none");
  }
  return true;
}

const SeenCounter* SeenSet::find(std::string_view counter) const noexcept {
  const auto found = std::find_if(counters.begin(), counters.end(),
                                  [&](const SeenCounter& one) { return one.name == counter; });
  return found == counters.end() ? nullptr : &*found;
}

std::optional<uint64_t> SeenSet::read(std::string_view counter) const noexcept {
  const SeenCounter* found = find(counter);
  if (found == nullptr) return {};
  return found->read();
}

// All offsets must lie inside the file: another program may have written it.
bool CountersSnapshot::is_consistent() const noexcept {
  const CountersHeader& header = this->header();
  if (bytes_of(header, header.file_bytes) != bytes_ ||
      (header.rings.count > 0 && header.rings.offset != bytes_) ||
      !lie_in_file(header.sets, sizeof(CounterSetRecord), bytes_) ||
      !lie_in_file(header.labels, sizeof(CounterLabelRecord), bytes_) ||
      !lie_in_file(header.counters, kCounterRecordBytesMin, bytes_)) {
    return false;
  }
  const CounterRecords alerts = alert_records(header);
  if (alerts.count > 0 && !lie_in_file(alerts, sizeof(CounterAlertRecord), bytes_)) return false;
  const CountersView view(&header);
  for (uint32_t i = 0; i < view.alert_count(); ++i) {
    const CounterAlertRecord& alert = view.alert(i);
    if (alert.set >= view.set_count() || alert.counter >= view.set(alert.set).count) return false;
  }
  uint64_t counter_count = 0;
  for (uint32_t i = 0; i < view.set_count(); ++i) {
    const CounterSetRecord& set = view.set(i);
    if (uint64_t{set.first} + set.count > header.counters.count ||
        uint64_t{set.first_label} + set.label_count > header.labels.count ||
        set.values % sizeof(Counter) != 0 || set.values > bytes_ ||
        (counter_count += uint64_t{set.count} + set.label_count) > kCounterCountMax) {
      return false;
    }
    for (uint32_t k = 0; k < set.count; ++k) {
      const CounterRecord& one = view.counter(set, k);
      if (one.offset % sizeof(Counter) != 0 || one.bytes % sizeof(Counter) != 0 || one.bytes == 0 ||
          !lies_in(set.values + one.offset, one.bytes, bytes_)) {
        return false;
      }
    }
  }
  return true;
}

std::string_view CountersSnapshot::appliance() const noexcept {
  return CountersView::text(header().appliance.text);
}

void CountersSnapshot::read_sets() {
  const CountersView view(&header());
  for (uint32_t i = 0; i < view.set_count(); ++i) {
    if (!view.is_there(i)) continue;
    const CounterSetRecord& set = view.set(i);
    SeenSet& seen = sets_.emplace_back();
    seen.owner = CountersView::text(set.owner.text);
    seen.name = CountersView::text(set.name.text);
    seen.instance = CountersView::text(set.instance.text);
    for (uint32_t k = 0; k < set.label_count; ++k) {
      const CounterLabelRecord& label = view.label(set, k);
      seen.labels.emplace_back(CountersView::text(label.name), CountersView::text(label.value));
    }
    for (uint32_t k = 0; k < set.count; ++k) {
      seen.counters.push_back(SeenCounter::of(view, set, k));
    }
  }
}

Result<CountersSnapshot> CountersSnapshot::of_copy(std::unique_ptr<uint64_t[]> copy, uint64_t bytes,
                                                   uint64_t taken_ns, const std::string& source) {
  BP_TRY(check_length(bytes, source));
  CountersSnapshot snapshot(std::move(copy), bytes);
  BP_TRY(check_format(snapshot.header(), source));
  snapshot.taken_ns_ = taken_ns;
  if (!snapshot.is_consistent()) {
    return unusable(source).set_answer("%s", kLeadsOut).set_cure("%s", kSpoiled);
  }
  add_up_shards(*reinterpret_cast<CountersHeader*>(snapshot.copy_.get()));
  snapshot.read_sets();
  return snapshot;
}

Result<CountersSnapshot> CountersSnapshot::take(int fd, const std::string& path) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return unusable(path).set_answer_errno(errno);
  if (status.st_size < static_cast<off_t>(sizeof(CountersHeader))) {
    return unusable(path)
        .set_answer("the file is shorter than the header of a counters file")
        .set_cure("name the counters file of an appliance, or wait until it has booted");
  }
  // Reads the header alone first: a foreign file may be of any length.
  CountersHeader header;
  const ssize_t got = read_at(fd, &header, sizeof header, 0);
  if (got < 0) return unusable(path).set_answer_errno(errno);
  if (got < static_cast<ssize_t>(sizeof header)) header.magic.store(0, std::memory_order_relaxed);
  BP_TRY(check_format(header, path));
  const auto file_bytes = static_cast<uint64_t>(status.st_size);
  if (file_bytes < header.file_bytes) {
    return unusable(path)
        .set_answer("it was truncated: %llu of its %llu bytes are left",
                    static_cast<unsigned long long>(file_bytes),
                    static_cast<unsigned long long>(header.file_bytes))
        .set_cure("copy the whole file; if it is the appliance's own, restart the appliance");
  }
  const uint64_t bytes = bytes_of(header, file_bytes);
  BP_TRY(check_length(bytes, path));
  auto copy = std::make_unique<uint64_t[]>((bytes + 7) / 8);
  // The copy runs forward: the values of a set come after its record, so if the copied record is in
  // use, the copied values are at least as recent.
  if (read_at(fd, copy.get(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return unusable(path)
        .set_answer("it was truncated while it was read")
        .set_cure("read it again; if it is the appliance's own, restart the appliance");
  }
  if (reinterpret_cast<const CountersHeader*>(copy.get())->file_bytes != file_bytes) {
    return unusable(path).set_answer("%s", kLeadsOut).set_cure("%s", kSpoiled);
  }
  return of_copy(std::move(copy), bytes, monotonic_ns(), path);
}

}  // namespace bedplate
