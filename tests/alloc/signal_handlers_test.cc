// A signal handler blocks in a thread that it interrupted within malloc. Other threads, whose
// requests are refused meanwhile, neither wait for the thread nor touch its heaps.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "alloc/confined_heap.h"
#include "platform/units.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::allocate;
using bedplate::test::BlockList;
using bedplate::test::keep;

namespace {

constexpr int kSignal = SIGUSR1;

std::atomic<bool> is_in_handler{false};
int release_pipe[2];

// Blocks until the test releases it. Calls only functions that POSIX allows in handlers.
void block_in_handler(int) {
  is_in_handler.store(true);
  char byte;
  while (read(release_pipe[0], &byte, 1) != 1) {
  }
}

void install_handler(int flags) {
  BP_PROBE_CHECK(pipe(release_pipe) == 0);
  struct sigaction action = {};
  action.sa_handler = &block_in_handler;
  action.sa_flags = flags;
  BP_PROBE_CHECK(sigaction(kSignal, &action, nullptr) == 0);
}

// Interrupts `thread` at any instruction, calls `meanwhile`, and releases the thread.
template <typename Meanwhile>
void hold_in_handler(pthread_t thread, Meanwhile&& meanwhile) {
  is_in_handler.store(false);
  BP_PROBE_CHECK(pthread_kill(thread, kSignal) == 0);
  while (!is_in_handler.load()) sched_yield();
  meanwhile();
  BP_PROBE_CHECK(write(release_pipe[1], "", 1) == 1);
}

// Makes a request that is refused after a search of all heaps.
void be_refused() {
  volatile size_t everything = heap_block_bytes_max();
  BP_PROBE_CHECK(allocate(everything) == nullptr);
}

// Takes and frees blocks of many sizes, each marked with a byte, until `must_end`.
void use_heap(const std::atomic<bool>& must_end) {
  struct Block {
    unsigned char* memory = nullptr;
    size_t bytes = 0;
    unsigned char fill = 0;
  };
  Block blocks[256];
  uint32_t dice = 1;
  for (uint32_t i = 0; !must_end.load(std::memory_order_relaxed); ++i) {
    dice = dice * 1664525 + 1013904223;
    Block& block = blocks[(dice >> 8) % 256];
    if (block.bytes != 0) {
      BP_PROBE_CHECK(block.memory[0] == block.fill);
      BP_PROBE_CHECK(block.memory[block.bytes - 1] == block.fill);
    }
    std::free(block.memory);
    block.bytes = 8 + (dice >> 16) % 400;
    block.fill = static_cast<unsigned char>(i);
    block.memory = static_cast<unsigned char*>(keep(std::malloc(block.bytes)));
    BP_PROBE_CHECK(block.memory != nullptr);
    // Only the block's ends, so that most of the time passes in malloc and free.
    block.memory[0] = block.memory[block.bytes - 1] = block.fill;
  }
  for (const Block& block : blocks) std::free(block.memory);
}

// Sleeps with memory that other threads can take back. They search it with the list's lock held,
// which takes time.
void sleep_with_memory(const std::atomic<bool>& must_end) {
  std::vector<void*> kept;
  for (int i = 0; i < 100; ++i) kept.push_back(allocate(1000));
  while (!must_end.load()) usleep(20'000);
  for (void* block : kept) std::free(block);
}

}  // namespace

BP_PROBE(HandlerInARefusal) {
  install_handler(0);
  std::atomic<bool> must_end{false};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 16; ++i) sleepers.emplace_back([&] { sleep_with_memory(must_end); });
  std::thread refused([&] {
    while (!must_end.load()) be_refused();
  });
  for (int round = 0; round < 40; ++round) {
    hold_in_handler(refused.native_handle(), [] {
      be_refused();
      std::thread([] { std::free(allocate(100)); }).join();  // another thread begins and ends
    });
  }
  must_end.store(true);
  refused.join();
  for (std::thread& sleeper : sleepers) sleeper.join();
}

void interrupt_malloc(int flags) {
  install_handler(flags);
  std::atomic<bool> must_end{false};
  std::thread victim([&] { use_heap(must_end); });
  for (int round = 0; round < 400; ++round) {
    hold_in_handler(victim.native_handle(), [] {
      be_refused();
      // Takes more memory than this thread has, so that memory taken from the victim would be used.
      BlockList blocks;
      for (size_t i = 0; i < 20'000; ++i) BP_PROBE_CHECK(blocks.add(8 + i % 400));
    });
    if (round % 16 == 0) sched_yield();
  }
  must_end.store(true);
  victim.join();
}

BP_PROBE(HandlerInMalloc) { interrupt_malloc(0); }
BP_PROBE(HiddenHandlerInMalloc) { interrupt_malloc(SA_NODEFER); }

TEST_GROUP(SignalHandlers){};

TEST(SignalHandlers, OneThatBlocksInARefusalKeepsNobodyWaiting) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(HandlerInARefusal, "BEDPLATE_BOOT_BYTES=128 MiB");
}

TEST(SignalHandlers, TheHeapsOfAThreadThatIsInOneAreItsOwn) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(HandlerInMalloc);
}

TEST(SignalHandlers, AlsoWhereTheSignalStaysOpen) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(HiddenHandlerInMalloc);
}
