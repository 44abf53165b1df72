// The format of a counters file: a header, four tables of records (sets, labels, counters, alerts),
// and the values; then, if requests are traced, three tables (rings, sources, subjects), and a ring
// of the last requests of each shard; last the record of the crash that has ended the appliance.
//
// The file describes itself: it lists the sets of counters, and the name, kind, unit, help and
// offset of each counter. So a program can read a file of another build. Records may grow at their
// ends: the header has the size of each kind. The format's number changes only if the meaning of a
// field here changes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "pinned_pool/owner_name.h"
#include "platform/cache_line.h"
#include "platform/trace_ring.h"
#include "platform/units.h"

namespace bedplate {

inline constexpr uint64_t kCountersMagic = 0x32'73'74'61'74'73'70'62;  // "bpstats2"
inline constexpr uint32_t kCountersFormat = 2;

// A table: records of one kind in a row.
struct CounterRecords {
  uint64_t offset = 0;  // in the file
  uint32_t count = 0;
  uint32_t record_bytes = 0;  // of each
};

struct CountersHeader {
  std::atomic<uint64_t> magic{0};  // stored last at creation, with release
  uint32_t format = 0;
  int32_t pid = 0;
  OwnerName appliance;
  uint64_t file_bytes = 0;
  CounterRecords sets;      // CounterSetRecord
  CounterRecords labels;    // CounterLabelRecord
  CounterRecords counters;  // CounterRecord
  // Tables of the traces, which go from `rings` to the record of a crash. The header of a build
  // without traces ends before these fields; its file has zeros here, as padding.
  CounterRecords rings;     // TraceRingRecord
  CounterRecords sources;   // TraceSourceRecord
  CounterRecords subjects;  // OwnerName
  // CounterAlertRecord: these records begin where the records of counters end (alert_records).
  uint32_t alert_count = 0;
  uint32_t alert_record_bytes = 0;
  // CLOCK_REALTIME when the file was made: two runs may have the same pid, as in an image. A file
  // of an older build has its first record here, which is as constant.
  uint64_t created_ns = 0;
  uint64_t begun_ns = 0;  // the same moment in monotonic_ns()
  // One CrashRecord (platform/crash_record.h). The header of an older build ends before this field.
  CounterRecords crash;
};
static_assert(sizeof(CountersHeader) <= 256);

inline CounterRecords alert_records(const CountersHeader& header) noexcept {
  const CounterRecords& before = header.counters;
  const uint64_t end = before.offset + uint64_t{before.count} * before.record_bytes;
  return {align_up(end, kCacheLineBytes), header.alert_count, header.alert_record_bytes};
}

// One struct of counters: CounterSet.
struct CounterSetRecord {
  OwnerName owner;  // the service; empty: the runtime
  OwnerName name;
  OwnerName instance;  // names one of several sets
  uint32_t first = 0;  // index of its first counter record
  uint32_t count = 0;
  uint32_t first_label = 0;
  uint32_t label_count = 0;
  uint64_t values = 0;                // offset in the file, on a cache line
  std::atomic<uint32_t> is_there{0};  // 0: spare, not taken yet; stored last, with release
  uint32_t role = 0;                  // CounterSetRole; 0 in files of older builds
};

// A label of a set, a fact that is no number: "backend", "io_uring".
struct CounterLabelRecord {
  char name[32] = {};
  char value[160] = {};
};

// One counter: CounterDescription. Sets with the same counters share the records.
struct CounterRecord {
  char name[48] = {};
  char kind[16] = {};  // to_text(CounterKind)
  char unit[16] = {};
  char help[160] = {};
  char words[160] = {};    // names of a state's values or of flags: "stopped|open"
  uint32_t offset = 0;     // from its set's values
  uint32_t bytes = 0;      // of its value: 8, a text's words, or a histogram's buckets
  uint32_t step_bits = 0;  // of a histogram: each power of two in 2^step_bits steps
  uint32_t reserved = 0;
  // The heading of a counter that `top` shows in a column. Records of older builds end before it.
  char column[16] = {};
};
inline constexpr size_t kCounterRecordBytesMin = offsetof(CounterRecord, column);

// The last requests that ended on one shard (platform/trace_ring.h).
struct TraceRingRecord {
  OwnerName shard;
  CounterRecords records;  // TraceRecord
};

// A service whose requests are traced; records have its index in this table.
struct TraceSourceRecord {
  OwnerName service;
  char kinds[160] = {};     // "read|write": names of the record's number
  char stations[160] = {};  // "received|stored|sent": in order; the first is at begin_ns
  uint32_t first_subject = 0;
  uint32_t subject_count = 0;
};

// A rule that can raise an alert on a counter of one set (CounterAlert). The appliance itself
// evaluates it, so all readers of the file see the same.
struct CounterAlertRecord {
  uint32_t set = 0;
  uint32_t counter = 0;  // index in the set
  char says[160] = {};   // {NAME} stands for the counter or label of that name in the set
  std::atomic<uint64_t> since_ns{0};  // monotonic_ns() when it was raised; 0: it is not
};
static_assert(sizeof(CounterAlertRecord) % 8 == 0);
static_assert(sizeof(CounterSetRecord) % 8 == 0 && sizeof(CounterLabelRecord) % 8 == 0 &&
              sizeof(CounterRecord) % 8 == 0 && sizeof(TraceRingRecord) % 8 == 0 &&
              sizeof(TraceSourceRecord) % 8 == 0);

}  // namespace bedplate
