#include "platform/cpu.h"

#include <thread>

#include <sched.h>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

int first_usable_cpu() {
  int cpu = 0;
  while (!cpu_is_usable(cpu)) ++cpu;
  return cpu;
}

// Runs `body` in a separate thread, so that the test runner itself is not pinned.
template <typename Body>
void in_thread(const Body& body) {
  std::thread(body).join();
}

}  // namespace

TEST_GROUP(Cpu){};

TEST(Cpu, UsableOnesAreThoseOfTheAffinityMask) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  LONGS_EQUAL(0, sched_getaffinity(0, sizeof cpus, &cpus));
  LONGS_EQUAL(CPU_COUNT(&cpus), usable_cpu_count());
  int usable = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) usable += cpu_is_usable(cpu);
  LONGS_EQUAL(usable_cpu_count(), usable);
}

TEST(Cpu, ThoseThatDoNotExistAreNotUsable) {
  CHECK_FALSE(cpu_is_usable(-1));
  CHECK_FALSE(cpu_is_usable(CPU_SETSIZE));
  CHECK_FALSE(cpu_is_usable(1 << 30));
}

TEST(Cpu, PinnedThreadMayRunThereOnly) {
  const int cpu = first_usable_cpu();
  bool pinned = false;
  int count = 0;
  int current = -1;
  in_thread([&] {
    pinned = pin_this_thread(cpu).ok();
    count = usable_cpu_count();
    current = sched_getcpu();
  });
  CHECK(pinned);
  LONGS_EQUAL(1, count);
  LONGS_EQUAL(cpu, current);
}

TEST(Cpu, PinningToAMissingCoreIsRefusedWithACure) {
  for (const int cpu : {-1, CPU_SETSIZE - 1, CPU_SETSIZE, 1 << 30}) {
    if (cpu_is_usable(cpu)) continue;
    Error error;
    in_thread([&] {
      const Result<void> result = pin_this_thread(cpu);
      if (!result.ok()) error = result.error();
    });
    STRCMP_EQUAL("Invalid argument", error.answer);
    STRCMP_CONTAINS("pinning a thread to core", error.doing);
    STRCMP_CONTAINS("nproc", error.cure);
  }
}
