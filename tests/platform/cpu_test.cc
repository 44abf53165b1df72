#include "platform/cpu.h"

#include <thread>

#include <sched.h>

#include "CppUTest/TestHarness.h"
#include "tests/support/skip.h"

using namespace bedplate;

namespace {

int first_usable_cpu() {
  int cpu = 0;
  while (!cpu_is_usable(cpu)) ++cpu;
  return cpu;
}

cpu_set_t mask_of_this_thread() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  LONGS_EQUAL(0, sched_getaffinity(0, sizeof cpus, &cpus));
  return cpus;
}

// Runs `body` in a separate thread, so that the test runner itself is not pinned.
template <typename Body>
void in_thread(const Body& body) {
  std::thread(body).join();
}

}  // namespace

TEST_GROUP(Cpu){};

TEST(Cpu, ThoseOfTheAffinityMaskAreUsable) {
  const cpu_set_t cpus = mask_of_this_thread();
  LONGS_EQUAL(CPU_COUNT(&cpus), usable_cpu_count());
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<unsigned>(cpu), &cpus)) CHECK(cpu_is_usable(cpu));
  }
}

// The kernel leaves isolated cores out of all masks, but lets them pin threads there.
TEST(Cpu, OneOutsideTheMaskIsUsableIfAThreadMayBePinnedToIt) {
  if (usable_cpu_count() < 2) BP_SKIP("there is one core");
  const int cpu = first_usable_cpu();
  int other = cpu + 1;
  while (!cpu_is_usable(other)) ++other;
  bool is_usable = false;
  bool stays = false;
  in_thread([&] {
    if (!pin_this_thread(cpu).ok()) return;
    is_usable = cpu_is_usable(other);
    stays = is_pinned(0, cpu);
  });
  CHECK(is_usable);
  CHECK(stays);
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
