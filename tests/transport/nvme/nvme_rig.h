// A controller's driver and the controller that a test plays, with a clock that the test turns.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/transport/nvme/fake_nvme.h"

namespace bedplate::test {

// An operation that remembers how it ended.
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
  NvmeOptions options = {.queue_entries = 8, .timeout_ns = kNsPerSecond};
  NvmeCounters counters;
  NvmeController controller;
  std::byte* memory = nullptr;
  std::byte* data = static_cast<std::byte*>(std::aligned_alloc(4096, kDataBytes));
  uint64_t now_ns = 1000 * kNsPerSecond;

  NvmeRig() { std::memset(data, 0, kDataBytes); }
  NvmeRig(const NvmeRig&) = delete;
  NvmeRig& operator=(const NvmeRig&) = delete;
  ~NvmeRig() {
    std::free(memory);
    std::free(data);
  }

  void create() {
    const uint64_t bytes = NvmeController::bytes_for(options);
    memory = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
    std::memset(memory, 0, bytes);
    drive.power_on();
    controller.create(drive, {memory, bytes}, options, counters, now_ns);
  }
  void round() {
    now_ns += kNsPerMs;
    controller.look(now_ns);
    drive.step();
    controller.poll(64, now_ns);
  }
  void turn(uint64_t ms) {
    for (uint64_t i = 0; i < ms; ++i) round();
  }
  // Whether it comes to that within so many turns of the clock.
  bool reaches(State state, uint64_t ms = 100) {
    for (uint64_t i = 0; i < ms && controller.state() != state; ++i) round();
    return controller.state() == state;
  }
  bool start() {
    create();
    return reaches(State::kReady);
  }

  void begin(NvmeAsked& asked, NvmeAction action, uint64_t first, uint64_t count,
             uint64_t data_offset = 0) {
    asked.action = action;
    asked.space = &controller.space(0);
    asked.memory = data + data_offset;
    asked.first_block = first;
    asked.block_count = count;
    controller.io().begin(asked, now_ns);
  }
};

}  // namespace bedplate::test
