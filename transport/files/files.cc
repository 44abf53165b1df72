#include "transport/files/files.h"

#include <cerrno>

#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/counter_table.h"
#include "platform/log.h"
#include "platform/units.h"

namespace bedplate {

Result<void> Files::open(std::span<const FileOptions> files, FileBackend& backend,
                         const KeyTable& keys, FileBackend* searcher, FileBackend* polled) {
  BP_ASSERT(backend_ == nullptr);
  uint32_t operation_count_max = 0;
  uint32_t search_count_max = 0;
  uint32_t polled_count_max = 0;
  for (const FileOptions& options : files) {
    BP_ASSERT(options.fd >= 0 && options.operation_count_max > 0 && options.counters != nullptr);
    const auto index = static_cast<uint32_t>(files_.size());
    files_.push_back(File(options, *this, index));
    operation_count_max += options.operation_count_max;
    if (options.tells_extents) search_count_max += options.operation_count_max;
    if (!options.polled.is_none()) polled_count_max += options.operation_count_max;
  }
  backend_ = &backend;
  BP_TRY(backend.open(*this, keys, operation_count_max));
  if (polled != nullptr && polled_count_max > 0) {
    polled_ = polled;
    BP_TRY(polled->open(*this, keys, polled_count_max));
  }
  if (searcher == nullptr || search_count_max == 0) return {};
  searcher_ = searcher;
  return searcher->open(*this, keys, search_count_max);
}

File* Files::find(std::string_view name) noexcept {
  for (File& file : files_) {
    if (file.name() == name) return &file;
  }
  return nullptr;
}

bool Files::close(uint64_t patience_ns) noexcept {
  if (backend_ == nullptr || is_closed_) return issued_count_ == 0;
  is_closed_ = true;
  for (File& file : files_) {
    while (!file.waiting_.is_empty()) finish(file.waiting_.pop(), -ECANCELED);
  }
  const uint64_t deadline_ns = monotonic_ns() + patience_ns;
  // Asks the backends in turns: a drive that does not answer then hides no outcome of the other
  // backend, and an operation that one backend ended in part may continue on the other.
  for (uint64_t now_ns = 0; polled_count_ > 0 || ordinary_count() > 0;) {
    if ((now_ns = monotonic_ns()) >= deadline_ns) break;
    const bool has_both = polled_count_ > 0 && ordinary_count() > 0;
    const uint64_t turn_ns = has_both ? std::min(deadline_ns, now_ns + kNsPerMs) : deadline_ns;
    if (polled_count_ > 0) polled_->wait(turn_ns);
    if (ordinary_count() > 0) backend_->wait(turn_ns);
  }
  while (searched_count_ > 0 && searcher_->wait(deadline_ns)) {
  }
  for (const File& file : files_) {
    if (file.in_flight_count_ == 0) continue;
    BP_LOG_ERROR("stopping: the kernel has not completed %u of the operations on the file %s "
                 "within %s; they stay open until the process ends; find what its disk or file "
                 "system waits for (dmesg)",
                 file.in_flight_count_, file.name().c_str(), format_rounded_ns(patience_ns).text);
  }
  // Each backend is told only of its own operations: a thread that is left running would use
  // objects that its owner may destroy.
  if (polled_ != nullptr) polled_->close(polled_count_ > 0);
  backend_->close(ordinary_count() > 0);
  if (searcher_ != nullptr) searcher_->close(searched_count_ > 0);
  return issued_count_ == 0;
}

void describe(CounterTable& table, FileCounters& counters) {
  table.counter("file_operations", counters.operations, "operations",
                "Completed operations on the file.");
  table.counter("file_read_bytes", counters.read_bytes, "bytes", "Bytes read from the file.");
  table.counter("file_written_bytes", counters.written_bytes, "bytes",
                "Bytes written to the file.");
  table.counter("file_polled", counters.polled, "operations",
                "Operations on the file completed by polling.");
  table
      .boolean("file_polling_ended", counters.polling_ended,
               "The kernel has refused to poll its drive, although polling is configured.")
      .alert_from(1, "the kernel no longer polls its drive, and the ordinary ring is used: check "
                     "queue/io_poll in /sys/block, and restart, or leave \"polled\" out");
  table.counter("file_errors", counters.errors, "operations", "Failed operations on the file.")
      .alert_as_it_grows(
          "{file_errors} operations on it failed so far: check whether its file system is full, "
          "and what the kernel's log says about its drive");
}

}  // namespace bedplate
