// The volumes' side of blockd over a simulated store. Tests push requests into its lanes.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "apps/blockd/stores/store_queue_datapath.h"
#include "apps/blockd/volume.h"
#include "apps/blockd/volume_datapath.h"
#include "tests/apps/blockd/stores/made_up_store.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

struct LaneMemory {
  static constexpr uint64_t kItems = 256;
  alignas(kCacheLineBytes) std::byte requests[BlockRequestFifo::bytes_for(kItems)];
  alignas(kCacheLineBytes) std::byte replies[BlockRequestFifo::bytes_for(kItems)];
  VolumeCounters counters;
  StoreCounters store_counters[2];
};

class StoreQueueFixture : public Utest {
 public:
  static constexpr uint64_t kBytes = 256 * kKiB;
  static constexpr uint32_t kBlock = MadeUpStore::kBlockBytes;

  std::unique_ptr<LaneMemory> lanes = std::make_unique<LaneMemory>();
  BlockRequestFifo* requests = nullptr;
  BlockRequestFifo* replies = nullptr;
  EventLoop loop;       // tells the time
  VolumeLanes ends[1];  // of the service
  VolumeService service;
  std::vector<std::span<std::byte>> memory;
  std::deque<Volume> volumes;
  MadeUpStore* store = nullptr;  // of the first volume
  Volume* volume = nullptr;      // the volume of request(); a test may set another

  void setup() override {
    requests = BlockRequestFifo::create(lanes->requests, LaneMemory::kItems);
    replies = BlockRequestFifo::create(lanes->replies, LaneMemory::kItems);
    ends[0] = {requests, {replies}};
    service.create(ends, loop);
    store = &add_volume(4, kBytes);
    volume = &volumes.front();
    for (uint64_t i = 0; i < kBytes; ++i) {
      store->seen[i] = store->durable[i] = static_cast<std::byte>(1 + i % 251);
    }
  }
  void teardown() override {
    for (const std::span<std::byte> each : memory) munmap(each.data(), each.size());
  }

  // Adds a volume after the others. Returns its store.
  MadeUpStore& add_volume(uint32_t task_count, uint64_t bytes, bool has_extents = true,
                          bool zeroes_fast = true) {
    const StoreQueueShape shape = {align_up(StoreQueue::kBufferBytesMin, kMiB), task_count};
    const std::span<std::byte> buffers = zeroed(shape.buffer_bytes);
    auto made = std::make_unique<MadeUpStore>(bytes, has_extents, zeroes_fast);
    MadeUpStore& its_store = *made;
    Volume& added = volumes.emplace_back();
    added.store = std::move(made);
    added.counters = &lanes->counters;
    added.queue = std::make_unique<StoreQueue>();
    added.queue->create(its_store, shape, buffers, zeroed(StoreQueue::bytes_for(shape)), ends, loop,
                        lanes->store_counters[volumes.size() - 1]);
    return its_store;
  }
  // Maps pages: the heap may be so fragmented by other tests that no free block of 33 MiB is left.
  std::span<std::byte> zeroed(uint64_t bytes) {
    void* const pages =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    return memory.emplace_back(static_cast<std::byte*>(pages), bytes);
  }

  BlockRequest request(nbd::Command command, uint64_t offset, uint32_t length,
                       uint16_t flags = 0) const {
    BlockRequest made;
    made.wire = {command, flags, length, 1, offset};
    made.volume = volume;
    return made;
  }
  void push(BlockRequest& each) {
    CHECK(requests->try_push(&each));
    service.poll(64);
  }
  // Returns the next request that comes back; nullptr: none.
  BlockRequest* reply() {
    service.poll(64);
    BlockRequest* one[1] = {};
    return replies->pop_batch(one) == 1 ? one[0] : nullptr;
  }
  void give_back(BlockRequest& each, RequestStep step = RequestStep::kRelease) {
    each.step = step;
    push(each);
  }
  // Leads a write through its steps: the grant of a buffer, the payload, the commit.
  void commit(BlockRequest& write, std::byte fill) {
    push(write);
    POINTERS_EQUAL(&write, reply());
    CHECK(write.data != nullptr && write.has_buffer);
    std::memset(write.data, static_cast<int>(fill), write.wire.length);
    give_back(write, RequestStep::kCommit);
  }
  // Completes all operations of the store. Returns the error in the reply to `each`.
  nbd::ErrorCode done(BlockRequest& each) {
    store->complete_all();
    POINTERS_EQUAL(&each, reply());
    return each.error;
  }
  nbd::ErrorCode do_one(nbd::Command command, uint64_t offset, uint32_t length,
                        uint16_t flags = 0) {
    BlockRequest each = request(command, offset, length, flags);
    if (command == nbd::Command::kWrite) {
      commit(each, std::byte{0xaa});
    } else {
      push(each);
    }
    const nbd::ErrorCode error = done(each);
    if (each.has_buffer) {
      give_back(each);
      POINTERS_EQUAL(&each, reply());
    }
    return error;
  }
  // Returns when the request passed `station`, in steps of the trace since its first station;
  // kTraceNotPassed: it has not.
  static uint32_t passed(const BlockRequest& each, RequestStation station) {
    TraceRecord record[1];
    TraceRing ring;
    ring.create(record);
    ring.write(0, each.trace, {});
    return record[0].passed[station - 1];
  }
  static bool has_passed(const BlockRequest& each, RequestStation station) {
    return passed(each, station) != kTraceNotPassed;
  }
  // Waits for two steps of the trace, so that two recorded times differ.
  void let_time_pass() {
    const uint64_t before_ns = loop.look_at_clock();
    while (loop.look_at_clock() < before_ns + 2 * (1U << kTraceStepLog2)) {
    }
  }
  StoreCounters& counted() { return lanes->store_counters[0]; }
  void expect_quiet() {
    POINTERS_EQUAL(nullptr, reply());
    CHECK(store->begun.empty());
    CHECK_EQUAL(0, counted().operations.read());
    CHECK_EQUAL(0, counted().requests_waiting.read());
    CHECK_EQUAL(0, counted().buffer_bytes.read());
    for (const Volume& each : volumes) CHECK(each.queue->is_valid());
  }
};

}  // namespace bedplate::test
