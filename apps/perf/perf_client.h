// The measuring side of `bedplate perf`: it asks the server for one operation and size at a time,
// warms up, verifies, and times. Threads: one.
#pragma once

#include "apps/perf/latency_histogram.h"
#include "apps/perf/perf_pace.h"
#include "apps/perf/perf_side.h"
#include "apps/perf/perf_stream.h"

namespace bedplate {

struct PerfTask {
  PerfOperation operation = PerfOperation::kSend;
  PerfMeasure measure = PerfMeasure::kLatency;
  PerfMode mode = PerfMode::kPolling;
  bool is_both = false;
  uint64_t count = 0;  // 0: as long as `duration_ns`
  uint64_t duration_ns = 0;
};

// The result for one message size.
struct PerfResult {
  uint64_t bytes = 0;
  uint64_t count = 0;       // measured operations, warm-up not counted
  LatencyHistogram times;   // latency: each operation's; send and put: round trips
  uint64_t elapsed_ns = 0;  // bandwidth only
  uint64_t back_count = 0;  // --both: counted by the server
  uint64_t back_elapsed_ns = 0;
  uint64_t verified_count = 0;  // on both sides, every byte compared
};

class PerfClient {
 public:
  explicit PerfClient(PerfSide& side);
  PerfClient(const PerfClient&) = delete;
  PerfClient& operator=(const PerfClient&) = delete;

  // Waits for the server. `address` is for messages only. Errors: it does not answer within 5 s;
  // this side cannot expose its memory.
  Result<void> connect(const std::string& address);
  // The most bytes of one message, put or get.
  uint64_t bytes_max(PerfOperation operation) const noexcept;

  // Requires: connect(), 0 < bytes <= bytes_max; a count or a duration; is_both only for bandwidth.
  // Errors: the server is gone, silent for 5 s, of another version, or measures with another
  // client; messages are lost; received bytes differ from those sent.
  Result<PerfResult> run(const PerfTask& task, uint64_t bytes);

 private:
  void handle(const Message& message) noexcept;
  Result<void> ask(const PerfTask& task, uint64_t bytes);
  Result<void> measure_latency(const PerfTask& task, PerfResult* result);
  Result<void> measure_bandwidth(const PerfTask& task, PerfResult* result);
  // Runs one operation; for send and put, it also waits for the answer.
  Result<void> round_trip(const PerfTask& task, uint64_t number);
  Result<void> await_tally(PerfMode mode);
  Result<void> end(const PerfTask& task, PerfResult* result);
  Result<void> send(AmId id, std::span<const std::byte> payload);
  // Checks that all started operations ended well, and that nothing was lost.
  Result<void> check_ends(const PerfTask& task) const;
  void count_verified(bool is_right) noexcept;

  // Polls until is_done().
  template <typename Done>
  Result<void> wait_until(PerfMode mode, Done is_done);
  Error trouble(const char* answer) const;
  Error trouble(SendStatus status) const;

  PerfSide& side_;
  PerfPace pace_;
  std::string address_;
  Endpoint* server_ = nullptr;
  bool is_connected_ = false;  // it was connected at least once
  bool is_displaced_ = false;
  RemoteMemory own_source_;
  RemoteMemory own_target_;
  PerfReady ready_;
  PerfTally tally_;
  bool is_ready_ = false;
  bool has_tally_ = false;
  uint64_t bytes_ = 0;
  uint64_t received_count_ = 0;
  uint64_t warm_up_count_ = 0;
  uint64_t verified_count_ = 0;
  uint64_t wrong_count_ = 0;
  PerfStream stream_;
};

}  // namespace bedplate
