// A shard without a thread: the parts of boot/shard.h, on the test's thread and clock, with files
// in memory. Only TestAppliance uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "apps/boot/runtime_counters.h"
#include "apps/boot/service_context.h"
#include "apps/boot/shard_messenger.h"
#include "apps/testing/memory_files.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/shard_plan.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate::testing {

// A planned file, with its content.
struct TestFile {
  FileOptions options;  // but for its length, which is that of the content at the start
  bool is_writable = false;
  MemoryFile content;
};

struct TestShardOptions {
  ShardNeeds needs;                      // of all services
  std::optional<ShardPlan> plan;         // of all services; set
  const uint64_t* clock_ns = nullptr;    // outlives the shard
  ShardCounters* counters = nullptr;     // outlive the shard
  std::vector<TestFile*> files;          // outlive the shard
  ShardMessenger* messenger = nullptr;   // outlives the shard; nullptr: no messages
  std::span<TraceRecord> trace_records;  // empty: no traces
};

class TestShard {
 public:
  TestShard() = default;
  TestShard(const TestShard&) = delete;
  TestShard& operator=(const TestShard&) = delete;

  // Errors: the system's, for the loop's doorbell or epoll.
  Result<void> create(const TestShardOptions& options);

  EventLoop& loop() noexcept { return loop_; }
  ShardParts parts() noexcept;
  // Ends all operations on files; callbacks run. Does nothing on a second call.
  void close() noexcept { files_.close(kNsPerSecond); }

 private:
  std::optional<ShardPlan> plan_;
  EventLoop loop_;
  std::unique_ptr<StreamSockets> sockets_;
  KeyTable keys_;  // without a device
  MemoryFiles memory_files_;
  Files files_;
  TraceRing trace_ring_;
  ShardMessenger* messenger_ = nullptr;
};

}  // namespace bedplate::testing
