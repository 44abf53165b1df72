// The two queues as the controller sees them, and the pages of a transfer.
#include "transport/nvme/nvme_queue_datapath.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/transport/nvme/fake_nvme.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct Ended : NvmeCall {
  Ended() {
    completed = [](NvmeCall& call, uint16_t with, uint32_t answer) noexcept {
      auto& self = static_cast<Ended&>(call);
      ++self.count;
      self.status = with;
      self.result = answer;
    };
  }
  int count = 0;
  uint16_t status = 0;
  uint32_t result = 0;
};

}  // namespace

TEST_GROUP(NvmeQueue) {
  static constexpr uint32_t kEntries = 4;
  std::byte* memory = nullptr;
  std::byte* registers = nullptr;
  NvmeQueue queue;
  Ended ended;
  uint32_t tail = 0;  // the controller's tail of the completion queue
  uint16_t phase = 1;

  void setup() override {
    const uint64_t bytes = NvmeQueue::bytes_for(kEntries, true);
    memory = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
    registers = static_cast<std::byte*>(std::aligned_alloc(4096, 8192));
    std::memset(registers, 0, 8192);
    queue.create(1, kEntries, true, {memory, bytes}, registers, 8);
  }
  void teardown() override {
    std::free(memory);
    std::free(registers);
  }
  uint32_t doorbell(size_t offset) const {
    uint32_t value;
    std::memcpy(&value, registers + nvme::kDoorbells + offset, sizeof value);
    return value;
  }
  nvme::Command submission(size_t index) const {
    nvme::Command command;
    std::memcpy(static_cast<void*>(&command), queue.submissions() + index * sizeof command,
                sizeof command);
    return command;
  }
  void complete(uint16_t id, uint16_t status = 0, uint32_t result = 0) {
    const nvme::Completion entry = {result, 0,  0,
                                    1,      id, static_cast<uint16_t>(status << 1 | phase)};
    std::memcpy(const_cast<std::byte*>(queue.completions()) + tail * sizeof entry, &entry,
                sizeof entry);
    if (++tail == kEntries) {
      tail = 0;
      phase ^= 1;
    }
  }
};

TEST(NvmeQueue, ACommandIsRungForAndCompletes) {
  nvme::Command* command = queue.try_begin(ended, 0).command;
  command->opcode = nvme::kRead;
  const uint16_t id = command->id;
  LONGS_EQUAL(0, doorbell(16));
  queue.ring();
  LONGS_EQUAL(1, doorbell(16));
  LONGS_EQUAL(nvme::kRead, submission(0).opcode);
  LONGS_EQUAL(0, queue.poll(8));
  complete(id, 0x281, 42);
  LONGS_EQUAL(1, queue.poll(8));
  LONGS_EQUAL(1, ended.count);
  LONGS_EQUAL(0x281, ended.status);
  LONGS_EQUAL(42, ended.result);
  LONGS_EQUAL(0, doorbell(24));  // ring() alone writes registers
  queue.ring();
  LONGS_EQUAL(1, doorbell(24));
  LONGS_EQUAL(1, doorbell(16));
  LONGS_EQUAL(0, queue.outstanding());
  CHECK(queue.is_valid());
}

TEST(NvmeQueue, BothQueuesWrapAndThePhaseTurns) {
  for (int round = 0; round < 50; ++round) {
    nvme::Command* command = queue.try_begin(ended, 0).command;
    CHECK(command != nullptr);
    command->word15 = static_cast<uint32_t>(round);
    const uint16_t id = command->id;
    queue.ring();
    LONGS_EQUAL((round + 1) % kEntries, doorbell(16));
    LONGS_EQUAL(round, submission(static_cast<size_t>(round) % kEntries).word15);
    LONGS_EQUAL(0, queue.poll(8));  // the entry there belongs to the previous lap
    complete(id);
    LONGS_EQUAL(1, queue.poll(8));
    queue.ring();
    LONGS_EQUAL((round + 1) % kEntries, doorbell(24));
    CHECK(queue.is_valid());
  }
  LONGS_EQUAL(50, ended.count);
}

TEST(NvmeQueue, IsFullOneBeforeItsLastEntry) {
  uint16_t ids[kEntries - 1];
  for (uint16_t& id : ids) id = queue.try_begin(ended, 0).command->id;
  POINTERS_EQUAL(nullptr, queue.try_begin(ended, 0).command);
  queue.ring();
  complete(ids[1]);
  LONGS_EQUAL(1, queue.poll(8));
  const NvmeQueue::Entry next = queue.try_begin(ended, 0);
  LONGS_EQUAL(ids[1], next.command->id);
  POINTERS_EQUAL(nullptr, queue.try_begin(ended, 0).command);
}

TEST(NvmeQueue, KnowsTheMostThatWereOutstanding) {
  const uint16_t first = queue.try_begin(ended, 0).command->id;
  const uint16_t second = queue.try_begin(ended, 0).command->id;
  queue.ring();
  complete(first);
  complete(second);
  LONGS_EQUAL(2, queue.poll(8));
  queue.try_begin(ended, 0);
  LONGS_EQUAL(1, queue.outstanding());
  LONGS_EQUAL(2, queue.outstanding_peak());
}

TEST(NvmeQueue, EndsNoMoreThanItMay) {
  uint16_t ids[kEntries - 1];
  for (uint16_t& id : ids) id = queue.try_begin(ended, 0).command->id;
  for (const uint16_t id : ids) complete(id);
  LONGS_EQUAL(2, queue.poll(2));
  LONGS_EQUAL(2, ended.count);
  LONGS_EQUAL(1, queue.poll(2));
  LONGS_EQUAL(3, ended.count);
}

TEST(NvmeQueue, ACompletionOfNothingIsCounted) {
  const uint16_t id = queue.try_begin(ended, 0).command->id;
  complete(kEntries);
  complete(static_cast<uint16_t>(id + 1));
  LONGS_EQUAL(2, queue.poll(8));
  LONGS_EQUAL(2, queue.bad_completions());
  LONGS_EQUAL(0, ended.count);
  complete(id);
  LONGS_EQUAL(1, queue.poll(8));
  LONGS_EQUAL(1, ended.count);
}

TEST(NvmeQueue, KnowsWhatIsLate) {
  const uint16_t first = queue.try_begin(ended, 100).command->id;
  const uint16_t second = queue.try_begin(ended, 200).command->id;
  LONGS_EQUAL(NvmeQueue::kNone, queue.find_overdue(100));
  LONGS_EQUAL(first, queue.find_overdue(101));
  queue.mark(first, 300);
  CHECK(queue.is_marked(first) && !queue.is_marked(second));
  LONGS_EQUAL(second, queue.find_overdue(300));
  queue.fail_all();
  LONGS_EQUAL(2, ended.count);
  LONGS_EQUAL(nvme::kNoAnswer, ended.status);
  LONGS_EQUAL(NvmeQueue::kNone, queue.find_overdue(1000));
  CHECK(queue.is_valid());
}

TEST_GROUP(NvmePages) {
  std::byte* memory = static_cast<std::byte*>(std::aligned_alloc(4096, 3 << 20));
  alignas(4096) uint64_t list[512];
  nvme::Command command;

  void setup() override { std::memset(list, 0, sizeof list); }
  void teardown() override { std::free(memory); }
  static uint64_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }
  void set(uint64_t offset, uint64_t bytes) {
    set_pages(command, memory + offset, bytes, reinterpret_cast<std::byte*>(list));
  }
};

TEST(NvmePages, OnePageNeedsOneEntry) {
  set(512, 3584);
  UNSIGNED_LONGS_EQUAL(address(memory) + 512, command.prp1);
  UNSIGNED_LONGS_EQUAL(0, command.prp2);
}

TEST(NvmePages, TwoPagesNeedNoList) {
  set(3584, 1024);
  UNSIGNED_LONGS_EQUAL(address(memory) + 3584, command.prp1);
  UNSIGNED_LONGS_EQUAL(address(memory) + 4096, command.prp2);
  set(0, 8192);
  UNSIGNED_LONGS_EQUAL(address(memory) + 4096, command.prp2);
}

TEST(NvmePages, MoreHaveAListOfWholePages) {
  set(512, 8192);
  UNSIGNED_LONGS_EQUAL(address(list), command.prp2);
  UNSIGNED_LONGS_EQUAL(address(memory) + 4096, list[0]);
  UNSIGNED_LONGS_EQUAL(address(memory) + 8192, list[1]);
  UNSIGNED_LONGS_EQUAL(0, list[2]);
}

TEST(NvmePages, TheLongestFillsTheListAtAnyAlignment) {
  set(4, kNvmeTransferBytesMax);
  UNSIGNED_LONGS_EQUAL(address(memory) + 512 * 4096, list[511]);
  set(0, kNvmeTransferBytesMax);
  UNSIGNED_LONGS_EQUAL(address(memory) + 511 * 4096, list[510]);
}
