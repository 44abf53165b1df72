// EAL in the pool: its memory lies in its carve and nowhere else, it knows all memory of the pool,
// it leaves no files, and its threads stay off the shards' cores.
#include "transport/dpdk/eal/eal.h"

#include <cstdio>
#include <string>

#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_malloc.h>
#include <rte_memory.h>
#include <rte_ring.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "platform/file.h"
#include "tests/support/death_test.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/dpdk/started_eal.h"
#include "transport/dpdk/eal/drivers.h"
#include "transport/dpdk/eal/eal_log.h"
#include "transport/dpdk/eal/eal_memory.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using test::started_eal;

namespace {

// Bytes that are mapped without a file outside the pool. Named mappings, such as the heap and the
// stack, are not counted.
uint64_t anonymous_bytes() {
  uint64_t sum = 0;
  const auto add = [](const char* line, void* context) {
    uintptr_t begin = 0, end = 0;
    char rights[8] = {}, rest[128] = {};
    unsigned long offset = 0, inode = 0;
    if (std::sscanf(line, "%lx-%lx %7s %lx %*s %lu %127s", &begin, &end, rights, &offset, &inode,
                    rest) < 5) {
      return;
    }
    if (inode == 0 && !in_pool_range(reinterpret_cast<void*>(begin)) && rest[0] != '[') {
      *static_cast<uint64_t*>(context) += end - begin;
    }
  };
  CHECK(read_lines("/proc/self/maps", add, &sum).ok());
  return sum;
}

bool lies_in(const void* pointer, std::span<std::byte> memory) {
  const auto* byte = static_cast<const std::byte*>(pointer);
  return byte >= memory.data() && byte < memory.data() + memory.size();
}

}  // namespace

TEST_GROUP(Eal){};

// Outside its carve, EAL takes its thread's stack and guard page, and memory of libc's malloc.
BP_PROBE(eal_takes_no_memory_beside_its_carve) {
  const uint64_t before = anonymous_bytes();
  started_eal();
  BP_PROBE_CHECK(anonymous_bytes() - before <= 2 * kMiB);
}
TEST(Eal, TakesNoMemoryBesideItsCarve) { BP_CHECK_PROBE(eal_takes_no_memory_beside_its_carve); }

TEST(Eal, WhatItHandsOutLiesInItsCarve) {
  const auto& eal = started_eal();
  void* block = rte_malloc("block", kMiB, 64);
  CHECK(lies_in(block, eal.own));
  rte_free(block);
  rte_ring* ring = rte_ring_create("ring", 1024, SOCKET_ID_ANY, 0);
  CHECK(lies_in(ring, eal.own));
  rte_ring_free(ring);
  CHECK(eal_memory_used_bytes() > test::kEalHeapBytes);
  CHECK(eal_memory_used_bytes() <= eal.own.size());
}

TEST(Eal, ItsHeapIsAsLargeAsWasAskedFor) {
  started_eal();
  rte_malloc_socket_stats stats = {};
  LONGS_EQUAL(0, rte_malloc_get_socket_stats(0, &stats));
  CHECK(stats.heap_totalsz_bytes >= test::kEalHeapBytes);
  const uint64_t before = eal_heap_used_bytes();
  void* block = rte_malloc("block", kMiB, 64);
  CHECK(eal_heap_used_bytes() >= before + kMiB);
  rte_free(block);
  LONGS_EQUAL(before, eal_heap_used_bytes());
}

TEST(Eal, KnowsTheAddressOfAnyByteOfThePool) {
  const auto& eal = started_eal();
  for (const std::span<std::byte> memory : {eal.own, eal.buffers}) {
    for (const size_t offset : {size_t{0}, memory.size() / 4 + 17}) {
      const std::byte* byte = memory.data() + offset;
      LONGS_EQUAL(reinterpret_cast<uintptr_t>(byte), rte_mem_virt2iova(byte));
    }
  }
}

TEST(Eal, LeavesNoFileBehind) {
  started_eal();
  LONGS_EQUAL(-1, access(rte_eal_get_runtime_dir(), F_OK));
}

TEST(Eal, AWishForAnAddressInThePoolMapsNothingThere) {
  void* wish = reinterpret_cast<void*>(kPoolBase + kPoolSpanBytes / 2);
  void* mapped = mmap64(wish, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  CHECK_FALSE(in_pool_range(mapped));
  LONGS_EQUAL(0, munmap(mapped, 4096));
}

BP_PROBE(eal_threads_keep_off_the_cores_of_shards) {
  cpu_set_t cores;
  sched_getaffinity(0, sizeof cores, &cores);
  if (CPU_COUNT(&cores) < 2) test::probe_skipped("there is one core only");
  int shard_cpu = 0;
  while (!CPU_ISSET(static_cast<size_t>(shard_cpu), &cores)) ++shard_cpu;
  const int cpus[] = {shard_cpu};
  static PinnedPool pool(test::kEalPoolBase);
  EalOptions options;
  const uint64_t bytes = eal_memory_bytes(test::kEalHeapBytes);
  options.memory = pool.create_segment("dpdk", bytes, PageSize::k4KiB, 1).take()->memory();
  options.name = "bedplate-cores";
  options.shard_cpus = cpus;
  BP_PROBE_CHECK(start_eal(options).ok());
  const std::string threads = eal_threads();
  BP_PROBE_CHECK(threads.starts_with("eal-intr"));
  const std::string word = "," + threads.substr(threads.rfind(' ') + 1) + ",";
  BP_PROBE_CHECK(word.find("," + std::to_string(shard_cpu) + ",") == std::string::npos);
  cpu_set_t now;  // the caller has its cores again
  sched_getaffinity(0, sizeof now, &now);
  BP_PROBE_CHECK(CPU_EQUAL(&cores, &now));
}
TEST(Eal, ItsThreadsAreNamedAndKeepOffTheCoresOfShards) {
  BP_CHECK_PROBE(eal_threads_keep_off_the_cores_of_shards);
}

TEST(Eal, WhatItSaysGoesToOurLog) {
  started_eal();
  (void)take_eal_error();
  test::StderrCapture capture;
  rte_log(RTE_LOG_ERR, RTE_LOGTYPE_EAL, "EAL: something is wrong\n");
  rte_log(RTE_LOG_INFO, RTE_LOGTYPE_EAL, "EAL: a detail\n");
  const std::string text = capture.finish();
  CHECK(text.find("bedplate: error: dpdk: EAL: something is wrong\n") != std::string::npos);
  CHECK(text.find("a detail") == std::string::npos);
  STRCMP_EQUAL("EAL: something is wrong", take_eal_error());
  STRCMP_EQUAL("", take_eal_error());
}

TEST(Eal, DriversAreKnownByTheirNames) {
  CHECK(has_dpdk_driver("ring"));
  CHECK(has_dpdk_driver("null"));
  CHECK_FALSE(has_dpdk_driver("rin"));
  CHECK_FALSE(has_dpdk_driver(""));
  CHECK_FALSE(has_dpdk_driver("no_such_driver"));
}
