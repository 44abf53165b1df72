// The constructor of libbedplate-heap.so, a library that the benchmark preloads into programs. It
// gives a program the same heap as an appliance. Before main, it creates a heap segment on 2 MiB
// hugepages, retires segment 0, locks the program's memory and seals the pool. This is what
// apps/boot/appliance.cc does at boot.
//
// BEDPLATE_BENCH_HEAP_BYTES is the size of that segment, in the configuration's syntax ("1 GiB").
#include <cstdlib>

#include <sys/mman.h>

#include "alloc/confined_heap.h"
#include "alloc/exhaustion.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/cpu.h"
#include "platform/log.h"
#include "platform/units.h"

using namespace bedplate;

namespace {

constexpr const char* kVariable = "BEDPLATE_BENCH_HEAP_BYTES";

[[noreturn]] void fail(const char* answer, const char* cure) noexcept {
  stop_with(error_while("making the heap for the benchmark")
                .set_answer("%s", answer)
                .set_cure("%s", cure));
}

__attribute__((constructor)) void boot_heap() noexcept {
  const char* text = getenv(kVariable);
  const auto bytes = text == nullptr ? std::nullopt : parse_bytes(text);
  if (!bytes.has_value() || *bytes == 0 || *bytes % kHeapGranularityBytes != 0) {
    fail("BEDPLATE_BENCH_HEAP_BYTES is not a multiple of 4 MiB", "set it, as in \"1 GiB\"");
  }
  heap_create();
  expect_appliance();
  auto created = process_pool().create_segment("heap", *bytes, PageSize::k2MiB,
                                               static_cast<unsigned>(usable_cpu_count()));
  if (!created.ok()) stop_with(created.error());
  Segment& heap = *created.value();
  process_pool().carve(heap, heap.owner, heap.bytes);
  if (!add_heap_memory(heap.memory())) {
    fail("its tables do not fit into segment 0", "make the heap smaller");
  }
  retire_boot_heap();
  if (mlockall(MCL_CURRENT) != 0) fail("the program cannot be locked", "run as root");
  process_pool().seal();
}

}  // namespace
