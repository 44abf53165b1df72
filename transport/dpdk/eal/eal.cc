#include "transport/dpdk/eal/eal.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <iterator>
#include <vector>

#include <dirent.h>
#include <libgen.h>
#include <pthread.h>
#include <sched.h>
#include <syslog.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_cpuflags.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_memory.h>

#include "pinned_pool/pinned_pool.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/text.h"
#include "platform/thread_stack.h"
#include "platform/units.h"
#include "transport/dpdk/eal/eal_log.h"
#include "transport/dpdk/eal/eal_memory.h"

namespace bedplate {
namespace {

// Space for all memory zones, for files as long as the tables of segments, and for rounding.
constexpr uint64_t kTablesBytes = kMiB;
constexpr uint64_t kPageBytes = 4 * kKiB;  // EAL's page size without hugepages
// An upper bound of EAL's record of a page.
constexpr uint64_t kRecordBytes = 96;
static_assert(sizeof(rte_memseg) <= kRecordBytes);

std::atomic<bool> is_started = false;
char threads_text[256];

Error eal_error(const char* doing) {
  const char* said = take_eal_error();
  Error error = error_while("%s", doing);
  if (said[0] == '\0') said = rte_strerror(rte_errno);
  error.set_answer("%s", said);
  return error;
}

// The cores for EAL's threads: all of the process but the shards', if any are left.
cpu_set_t cores_beside(const cpu_set_t& usable, std::span<const int> shard_cpus) noexcept {
  cpu_set_t cores = usable;
  for (const int cpu : shard_cpus) CPU_CLR(static_cast<size_t>(cpu), &cores);
  return CPU_COUNT(&cores) > 0 ? cores : usable;
}

std::string text_of(const cpu_set_t& cores) {
  std::string text;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &cores)) text += (text.empty() ? "" : ",") + std::to_string(cpu);
  }
  return text;
}

// The ids of this process's threads.
std::vector<std::string> thread_numbers() {
  std::vector<std::string> numbers;
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return numbers;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') numbers.emplace_back(entry->d_name);
  }
  closedir(folder);
  return numbers;
}

void name_new_threads(const std::vector<std::string>& before, const std::string& cores) {
  std::string names;
  for (const std::string& number : thread_numbers()) {
    if (std::find(before.begin(), before.end(), number) != before.end()) continue;
    char name[32] = {};
    if (!read_text_file(("/proc/self/task/" + number + "/comm").c_str(), name, sizeof name))
      continue;
    std::string_view text = name;
    while (text.ends_with('\n')) text.remove_suffix(1);
    add_word(&names, text);
  }
  std::snprintf(threads_text, sizeof threads_text, "%s on core%s %s", names.c_str(),
                cores.find(',') == std::string::npos ? "" : "s", cores.c_str());
}

// EAL makes its folder even if it puts no file into it. Removes the folder and its parent, if they
// are empty.
void remove_empty_folder() {
  std::string path = rte_eal_get_runtime_dir();
  if (rmdir(path.c_str()) == 0) rmdir(dirname(path.data()));
}

Result<void> initialise(const EalOptions& options, const std::string& cores) {
  const uint64_t heap_bytes =
      (options.memory.size() - kTablesBytes) * kPageBytes / (kPageBytes + kRecordBytes);
  char address[32], megabytes[32];
  std::snprintf(address, sizeof address, "0x%" PRIxPTR,
                reinterpret_cast<uintptr_t>(options.memory.data()));
  std::snprintf(megabytes, sizeof megabytes, "%" PRIu64, heap_bytes / kMiB);
  // EAL probes no device at its start: each is attached by name later, so errors name one device.
  std::vector<std::string> words = {options.name,
                                    "--no-huge",
                                    "-m",
                                    megabytes,
                                    "--no-shconf",
                                    "--iova-mode=va",
                                    "--base-virtaddr",
                                    address,
                                    "--file-prefix=" + options.name,
                                    "--lcores",
                                    "0@(" + cores + ")",
                                    "-a",
                                    "0000:00:00.0"};
  if (!options.has_telemetry) words.emplace_back("--no-telemetry");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  open_eal_memory(options.memory);
  const int outcome = rte_eal_init(static_cast<int>(arguments.size()), arguments.data());
  closelog();
  if (outcome < 0) return eal_error("starting EAL");
  if (!options.has_telemetry) remove_empty_folder();
  return {};
}

// Registers the segment in the largest parts that its size allows: EAL keeps a record of each.
Result<void> make_known(const Segment& segment) {
  const uint64_t piece_bytes = std::min(uint64_t{1} << std::countr_zero(segment.bytes), kGiB);
  const auto count = static_cast<unsigned>(segment.bytes / piece_bytes);
  std::vector<rte_iova_t> addresses;
  for (unsigned i = 0; i < count; ++i) {
    addresses.push_back(reinterpret_cast<uintptr_t>(segment.address) + i * piece_bytes);
  }
  if (rte_extmem_register(segment.address, segment.bytes, addresses.data(), count, piece_bytes) ==
      0) {
    return {};
  }
  Error error = eal_error("registering memory of the pool with EAL");
  return error.set_doing("registering the segment %s with EAL", segment.owner.text);
}

Result<void> make_known(const PinnedPool& pool, std::span<const std::byte> own) {
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const Segment& segment = pool.segment(i);
    if (!segment.is_for_devices || segment.address == own.data()) continue;
    BP_TRY(make_known(segment));
  }
  return {};
}

}  // namespace

uint64_t eal_memory_bytes(uint64_t heap_bytes) noexcept {
  const uint64_t pages = align_up(heap_bytes, kMiB) / kPageBytes;
  return align_up(kTablesBytes + kMiB + pages * (kPageBytes + kRecordBytes), 2 * kMiB);
}

const char* eal_is_impossible() noexcept {
  return rte_cpu_is_supported() != 0
             ? nullptr
             : "the processor lacks instructions that DPDK was compiled for";
}

bool eal_is_started() noexcept { return is_started.load(std::memory_order_acquire); }

const char* eal_threads() noexcept { return threads_text; }

Result<void> start_eal(const EalOptions& options) {
  BP_ASSERT(!eal_is_started());
  BP_ASSERT(reinterpret_cast<uintptr_t>(options.memory.data()) % kEalMemoryAlignment == 0);
  BP_TRY(open_eal_log());
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) {
    return error_from_errno("asking for the cores of this process");
  }
  const cpu_set_t cores = cores_beside(usable, options.shard_cpus);
  // EAL's threads inherit these settings: the cores, and stacks no larger than ours.
  pthread_attr_t usual, small;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, kThreadStackBytes);
  pthread_setattr_default_np(&small);
  sched_setaffinity(0, sizeof cores, &cores);
  const std::vector<std::string> before = thread_numbers();
  Result<void> outcome = initialise(options, text_of(cores));
  if (outcome.ok()) name_new_threads(before, text_of(cores));
  pthread_setattr_default_np(&usual);
  pthread_attr_destroy(&usual);
  pthread_attr_destroy(&small);
  sched_setaffinity(0, sizeof usable, &usable);
  if (outcome.ok() && options.pool != nullptr) {
    auto known = make_known(*options.pool, options.memory);
    close_eal_memory();
    if (!known.ok()) return known;
  }
  close_eal_memory();
  if (!outcome.ok()) return outcome.error();
  is_started.store(true, std::memory_order_release);
  return {};
}

Result<void> enter_eal() noexcept {
  if (rte_thread_register() == 0) return {};
  return eal_error("registering a shard's thread with EAL");
}

uint64_t eal_heap_used_bytes() noexcept {
  rte_malloc_socket_stats stats = {};
  if (rte_malloc_get_socket_stats(0, &stats) != 0) return 0;
  return stats.heap_allocsz_bytes;
}

}  // namespace bedplate

// Replaces dlopen in the static programs of this tree (DPDK_LOOKUPS in scripts/mk/flags.mk).
extern "C" void* bedplate_loads_nothing() noexcept { return nullptr; }
