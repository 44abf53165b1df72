#include "apps/counters/trace_snapshot.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "apps/counters/counters_snapshot.h"
#include "apps/counters/counters_view.h"

namespace bedplate {

size_t SeenRequest::slowest() const noexcept {
  size_t slowest = 0;
  uint64_t longest_ns = 0;
  for (size_t i = 1; i < stations.size(); ++i) {
    const uint64_t before_ns = stations[i - 1].after_ns;
    const uint64_t ns = stations[i].after_ns > before_ns ? stations[i].after_ns - before_ns : 0;
    if (ns <= longest_ns) continue;
    longest_ns = ns;
    slowest = i;
  }
  return slowest;
}

namespace {

// Four copies of a ring, taken one after the other.
struct RingCopies {
  std::vector<std::byte> copies[4];

  // Returns false if the file was cut.
  bool take(int fd, const CounterRecords& records) {
    for (auto& copy : copies) {
      copy.resize(uint64_t{records.count} * records.record_bytes);
      if (read_at(fd, copy.data(), copy.size(), records.offset) !=
          static_cast<ssize_t>(copy.size())) {
        return false;
      }
    }
    return true;
  }
  uint64_t number_at(int copy, uint64_t offset) const noexcept {
    static_assert(offsetof(TraceRecord, number) == 0);
    uint64_t number = 0;
    std::memcpy(&number, copies[copy].data() + offset, sizeof number);
    return number;
  }
  TraceRecord record_at(uint64_t offset) const noexcept {
    TraceRecord record;
    std::memcpy(static_cast<void*>(&record), copies[2].data() + offset, sizeof record);
    return record;
  }
};

std::string word_of(std::string_view words, uint64_t index) {
  const auto word = CountersView::word_at(words, index);
  return word && !word->empty() ? std::string(*word) : std::to_string(index);
}

}  // namespace

// A copy of the tables that describe the rings and their records.
class TraceTables {
 public:
  // Returns false if the tables point out of the file.
  bool locate(const CountersHeader& header) noexcept {
    begin_ = header.rings.offset;
    file_bytes_ = header.file_bytes;
    rings_ = header.rings;
    sources_ = header.sources;
    subjects_ = header.subjects;
    return has(rings_, sizeof(TraceRingRecord)) && has(sources_, sizeof(TraceSourceRecord)) &&
           has(subjects_, sizeof(OwnerName));
  }
  // Returns false if the file was cut.
  bool take(int fd) {
    uint64_t end = begin_;
    for (const CounterRecords& records : {rings_, sources_, subjects_}) {
      end = std::max(end, records.offset + uint64_t{records.count} * records.record_bytes);
    }
    copy_.resize(end - begin_);
    return read_at(fd, copy_.data(), copy_.size(), begin_) == static_cast<ssize_t>(copy_.size());
  }
  // Rings must follow one another: overlapping rings would be read again and again.
  bool are_consistent() const noexcept {
    uint64_t end = begin_;
    for (uint32_t i = 0; i < rings_.count; ++i) {
      const CounterRecords records = at<TraceRingRecord>(rings_, i).records;
      if (!has(records, sizeof(TraceRecord)) || records.offset < end) return false;
      end = records.offset + uint64_t{records.count} * records.record_bytes;
    }
    for (uint32_t i = 0; i < sources_.count; ++i) {
      const auto source = at<TraceSourceRecord>(sources_, i);
      if (uint64_t{source.first_subject} + source.subject_count > subjects_.count) return false;
    }
    return true;
  }

  // Returns false if the file was cut.
  bool read(int fd, const ToldRequests& told, TraceSnapshot* snapshot) const {
    for (uint32_t i = 0; i < sources_.count; ++i) {
      const auto source = at<TraceSourceRecord>(sources_, i);
      snapshot->services_.emplace_back(CountersView::text(source.service.text));
    }
    for (uint32_t i = 0; i < rings_.count; ++i) {
      const auto ring = at<TraceRingRecord>(rings_, i);
      const std::string shard(CountersView::text(ring.shard.text));
      const auto found = told.find(shard);
      const uint64_t after = found == told.end() ? 0 : found->second;
      if (!read_ring(fd, shard, ring.records, after, &snapshot->requests_)) return false;
    }
    return true;
  }

 private:
  // Whether the records lie after the counters, and inside the file.
  bool has(const CounterRecords& records, size_t known_bytes) const noexcept {
    return lie_in_file(records, known_bytes, file_bytes_) && records.offset >= begin_;
  }
  template <typename Record>
  Record at(const CounterRecords& records, uint32_t index) const noexcept {
    Record record;
    std::memcpy(static_cast<void*>(&record),
                copy_.data() + (records.offset - begin_) + uint64_t{index} * records.record_bytes,
                sizeof record);
    return record;
  }

  bool read_ring(int fd, const std::string& shard, const CounterRecords& records, uint64_t after,
                 std::vector<SeenRequest>* requests) const {
    RingCopies ring;
    if (!ring.take(fd, records)) return false;
    const uint64_t bytes = uint64_t{records.count} * records.record_bytes;
    uint64_t last = 0;
    for (uint64_t offset = 0; offset < bytes; offset += records.record_bytes) {
      last = std::max(last, ring.number_at(0, offset));
    }
    const auto first = static_cast<std::ptrdiff_t>(requests->size());
    for (uint64_t offset = 0; offset < bytes; offset += records.record_bytes) {
      const uint64_t number = ring.number_at(1, offset);
      if (number <= after || number > last || number != ring.number_at(3, offset)) continue;
      SeenRequest seen;
      seen.shard = shard;
      seen.number = number;
      if (explain(ring.record_at(offset), &seen)) requests->push_back(std::move(seen));
    }
    std::sort(requests->begin() + first, requests->end(),
              [](const auto& one, const auto& other) { return one.number < other.number; });
    return true;
  }

  // Returns false if the file does not name the record's service.
  bool explain(const TraceRecord& record, SeenRequest* seen) const {
    if (record.source >= sources_.count) return false;
    const auto source = at<TraceSourceRecord>(sources_, record.source);
    const std::string_view stations = CountersView::text(source.stations);
    seen->service = CountersView::text(source.service.text);
    seen->kind = word_of(CountersView::text(source.kinds), record.kind);
    if (record.subject < source.subject_count) {
      const auto name = at<OwnerName>(subjects_, source.first_subject + record.subject);
      seen->subject = CountersView::text(name.text);
    }
    seen->begin_ns = record.begin_ns;
    seen->handle = record.handle;
    seen->bytes = record.bytes;
    seen->stations.push_back({word_of(stations, 0), 0});
    for (uint32_t i = 0; i < kTraceStationMax; ++i) {
      if (record.passed[i] == kTraceNotPassed) continue;
      seen->stations.push_back(
          {word_of(stations, i + 1), uint64_t{record.passed[i]} << kTraceStepLog2});
    }
    return true;
  }

  uint64_t begin_ = 0;  // offset in the file
  uint64_t file_bytes_ = 0;
  CounterRecords rings_;
  CounterRecords sources_;
  CounterRecords subjects_;
  std::vector<std::byte> copy_;
};

Result<TraceSnapshot> TraceSnapshot::take(int fd, const std::string& path,
                                          const ToldRequests& told) {
  // Checks the header and the file as a whole, and reports defects.
  auto counters = CountersSnapshot::take(fd, path);
  if (!counters.ok()) return counters.error();
  const CountersHeader& header = counters.value().header();
  Error unusable;
  unusable.set_doing("reading the last requests from %s", path.c_str());
  if (header.rings.count == 0) {
    return unusable.set_answer("it has none")
        .set_cure("set [appliance] trace_requests above 0, and use a service that traces its "
                  "requests (docs/trace.md)");
  }
  const char* spoiled = "copy the whole file; otherwise it is damaged, or not a counters file";
  if (header.file_bytes - header.rings.offset > kBytesMax) {
    return unusable.set_answer("there are more than a file can have").set_cure("%s", spoiled);
  }
  TraceTables tables;
  TraceSnapshot snapshot;
  const bool is_located = tables.locate(header);
  const bool is_cut = is_located && !tables.take(fd);
  if (!is_located || (!is_cut && !tables.are_consistent())) {
    return unusable.set_answer("its records point outside the file").set_cure("%s", spoiled);
  }
  if (is_cut || !tables.read(fd, told, &snapshot)) {
    return unusable.set_answer("it was truncated while it was read")
        .set_cure("read it again; if it is the appliance's own, restart the appliance");
  }
  return snapshot;
}

}  // namespace bedplate
