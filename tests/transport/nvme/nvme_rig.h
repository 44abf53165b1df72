// A controller's driver, a simulated controller, and a clock that the test advances. One thread
// plays all shards.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/transport/nvme/fake_nvme.h"

namespace bedplate::test {

// An operation that records its outcome.
struct NvmeAsked : NvmeOperation {
  NvmeAsked() {
    done = [](void* self, int with) noexcept {
      static_cast<NvmeAsked*>(self)->outcome = with;
      ++static_cast<NvmeAsked*>(self)->done_count;
    };
    context = this;
  }
  NvmeAsked(const NvmeAsked&) = delete;
  NvmeAsked& operator=(const NvmeAsked&) = delete;
  bool is_done() const { return done_count == 1; }

  int outcome = -1;
  int done_count = 0;
};

struct NvmeRig {
  using State = NvmeController::State;
  static constexpr uint64_t kDataBytes = 5 << 20;

  FakeNvme drive;
  uint32_t queue_count = 1;  // the number that is requested
  NvmeOptions options = {.queue_entries = 8, .timeout_ns = kNsPerSecond};
  NvmeCounters counters;
  NvmeQueueCounters queue_counters[FakeNvme::kQueueCountMax];
  NvmeController controller;
  std::vector<std::byte*> taken;
  std::byte* data = static_cast<std::byte*>(std::aligned_alloc(4096, kDataBytes));
  uint64_t now_ns = 1000 * kNsPerSecond;

  NvmeRig() { std::memset(data, 0, kDataBytes); }
  NvmeRig(const NvmeRig&) = delete;
  NvmeRig& operator=(const NvmeRig&) = delete;
  ~NvmeRig() {
    for (std::byte* each : taken) std::free(each);
    std::free(data);
  }

  void create() {
    const std::span<std::byte> memory = take(NvmeController::bytes_for());
    std::vector<NvmeQueueMemory> queues;
    for (uint32_t i = 0; i < queue_count; ++i) {
      queues.push_back({take(NvmeQueuePair::bytes_for(options.queue_entries)), &queue_counters[i]});
    }
    drive.power_on();
    controller.create(drive, memory, queues, options, counters, now_ns);
  }
  std::span<std::byte> take(uint64_t bytes) {
    taken.push_back(static_cast<std::byte*>(std::aligned_alloc(4096, bytes)));
    std::memset(taken.back(), 0, bytes);
    return {taken.back(), bytes};
  }
  void round() {
    now_ns += kNsPerMs;
    controller.look(now_ns);
    for (uint32_t i = 0; i < controller.queue_count(); ++i) pair(i).look(now_ns);
    drive.step();
    poll();
  }
  void poll(uint32_t budget = 64) {
    for (uint32_t i = 0; i < controller.queue_count(); ++i) pair(i).poll(budget, now_ns);
  }
  NvmeQueuePair& pair(size_t index = 0) { return controller.queue_pair(index); }
  void turn(uint64_t ms) {
    for (uint64_t i = 0; i < ms; ++i) round();
  }
  // Whether the controller reaches `state` within `ms` milliseconds.
  bool reaches(State state, uint64_t ms = 100) {
    for (uint64_t i = 0; i < ms && controller.state() != state; ++i) round();
    return controller.state() == state;
  }
  bool start() {
    create();
    return reaches(State::kReady);
  }

  void begin(NvmeAsked& asked, NvmeAction action, uint64_t first, uint64_t count,
             uint64_t data_offset = 0, size_t queue = 0) {
    asked.action = action;
    asked.space = &controller.space(0);
    asked.memory = data + data_offset;
    asked.first_block = first;
    asked.block_count = count;
    pair(queue).io().begin(asked, now_ns);
  }
};

}  // namespace bedplate::test
