#include "apps/boot/preflight.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <set>
#include <string>

#include <liburing.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "apps/boot/appliance_user.h"
#include "apps/boot/outsiders.h"
#include "apps/services/service.h"
#include "apps/services/service_calls.h"
#include "pinned_pool/boot_segment.h"
#include "pinned_pool/join/join_server.h"
#include "pinned_pool/pinned_pool.h"
#include "pinned_pool/take_error.h"
#include "platform/cgroup.h"
#include "platform/cpu.h"
#include "platform/file.h"
#include "platform/hugepage.h"
#include "platform/numa.h"
#include "platform/product.h"
#include "platform/surplus_hugepages.h"
#include "platform/text.h"
#include "platform/units.h"
#include "platform/user.h"
#include "transport/uring/uring_device.h"
#include "transport/vfio/vfio_preflight.h"

namespace bedplate {
namespace {

// Descriptors that are not counted one by one: listeners, rings, eventfds, the counters file,
// standard streams.
constexpr uint64_t kOtherDescriptors = 64;

constexpr uint64_t kLeftBytes = 64 * kMiB;  // left to the kernel

uint64_t available_memory_bytes() noexcept {
  return read_number_field("/proc/meminfo", "MemAvailable").value_or(0) * kKiB;
}

// Raises the soft limit as far as it goes, and returns it.
uint64_t raised_limit(__rlimit_resource resource) noexcept {
  rlimit limit = {};
  getrlimit(resource, &limit);
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(resource, &limit);
    getrlimit(resource, &limit);
  }
  return limit.rlim_cur;
}

// Bytes that are still to be taken, in pages of any size, or of one size (on one node). Segment 0
// is left out: it exists already, at least in part, and counts as used.
uint64_t bytes_to_take(const AppliancePlan& plan) noexcept {
  uint64_t bytes = 0;
  for (const SegmentPlan& segment : plan.pool.segments) {
    const bool is_boot = segment.owner == OwnerName("boot");
    bytes += segment.bytes - (is_boot ? std::min(segment.bytes, boot_segment().bytes) : 0);
  }
  return bytes;
}
uint64_t bytes_to_take(const AppliancePlan& plan, PageSize page, int node = kAnyNode) noexcept {
  uint64_t bytes = plan.pool.bytes_with(page, node);
  for (const SegmentPlan& segment : plan.pool.segments) {
    const bool is_counted = segment.page == page && (node == kAnyNode || segment.node == node);
    if (segment.owner == OwnerName("boot") && is_counted) {
      bytes -= std::min(segment.bytes, boot_segment().bytes);
    }
  }
  return bytes;
}

void check_nodes(const AppliancePlan& plan, std::vector<Error>* problems) {
  const NodeSet there = memory_nodes();
  std::string list;
  for (size_t node = 0; node < there.size(); ++node) {
    if (there[node]) add_word(&list, std::to_string(node));
  }
  for (const SegmentPlan& segment : plan.pool.segments) {
    if (segment.node == kAnyNode || there[static_cast<size_t>(segment.node)]) continue;
    problems->push_back(
        error_while("checking NUMA node %d for %s", segment.node, segment.owner.text)
            .set_answer("this machine has memory on node %s only", list.c_str())
            .set_cure("name an existing node, or leave the node out of the configuration"));
  }
}

// Whether the kernel makes the missing pages on demand (vm.nr_overcommit_hugepages). Tried, since
// free memory may be fragmented. The setting is the machine's, not a node's.
bool may_be_made(const HugepageNeed& need, const HugepageCounts& counts) noexcept {
  if (need.node != kAnyNode) return false;
  const uint64_t missing = need.count - counts.available_count;
  return missing <= surplus_hugepages_left(need.page) && try_hugepages(need.page, need.count).ok();
}

void check_hugepages(const HugepageNeed& need, std::vector<Error>* problems) {
  const auto [page, node, needed] = need;
  const HugepageCounts counts = hugepage_counts(page, node);
  const bool is_largest = page == PageSize::k1GiB;
  char where[24] = "";
  if (node != kAnyNode) std::snprintf(where, sizeof where, " on node %d", node);
  Error error = error_while("checking hugepages of %s%s", is_largest ? "1 GiB" : "2 MiB", where);
  if (!counts.supported) {
    error.set_answer("this kernel does not support this size");
    error.set_cure("set [pool] pages to another size (`%s doctor` lists them)", product().name);
    problems->push_back(error);
  } else if (counts.available_count < needed && !may_be_made(need, counts)) {
    const uint64_t total = counts.total_count + needed - counts.available_count;
    error.set_answer("%" PRIu64 " are free, %" PRIu64 " are needed", counts.available_count,
                     needed);
    // A running kernel seldom finds a contiguous GiB of memory.
    error.set_cure("echo %" PRIu64 " > %s%s", total, hugepage_count_file(page, node).path,
                   is_largest ? "; if that fails, start the kernel with hugepagesz=1G "
                                "hugepages=COUNT"
                              : "");
    problems->push_back(error);
  }
}

void check_cgroup(CgroupResource resource, const char* what, uint64_t needed,
                  const std::string& root, std::vector<Error>* problems) {
  constexpr uint64_t kCountingBytes = 8 * kMiB;
  const bool is_exact = resource != CgroupResource::kMemory;  // hugepages are charged one by one
  if (needed == 0) return;
  for (const CgroupLimit& limit : cgroup_limits(resource, root)) {
    if (limit.available_bytes >= needed) continue;
    const uint64_t used = limit.limit_bytes - limit.available_bytes;
    Error error =
        error_while("checking the control group's limit of %s", what)
            .set_answer("%" PRIu64 " KiB are allowed, %" PRIu64 " KiB of them used, %" PRIu64
                        " KiB more are needed",
                        limit.limit_bytes / kKiB, used / kKiB, (needed + kKiB - 1) / kKiB);
    // With a margin: the kernel counts in batches on each core, so two readings differ.
    error.set_cure("echo %" PRIu64 " > %s, or make [pool] bytes smaller",
                   used + needed + (is_exact ? 0 : kCountingBytes), limit.file.c_str());
    problems->push_back(error);
  }
}

uint64_t polled_shard_count(const Configuration& configuration, const AppliancePlan& plan) {
  std::vector<bool> is_polled(configuration.shards.size());
  for (const ServiceNeeds& service : plan.services) {
    for (const FileNeed& file : service.files) {
      if (file.plan.is_polled) is_polled[file.shard] = true;
    }
  }
  return static_cast<uint64_t>(std::count(is_polled.begin(), is_polled.end(), true));
}

// Memory of this program, in bytes; `field`: a field of /proc/self/status, as "VmSize" or "VmRSS".
uint64_t own_bytes(const char* field) noexcept {
  return read_number_field("/proc/self/status", field).value_or(0) * kKiB;
}

// Bytes that the kernel will charge to the control group once the appliance serves, without
// hugepages and without the memory that is charged already:
// - small pages, each with 8 bytes of page tables, 9 of the file's index and 24 for each ring;
// - memory that is mapped but not populated yet, since all of it gets locked;
// - the program's text, which counts as free until it is locked;
// - stacks of threads, and the kernel's stacks for them;
// - the kernel's memory for rings, descriptors and queues of datagrams.
// Estimates are rounded up: the kernel kills a process silently if its group is too small.
uint64_t charged_bytes(const Configuration& configuration, const AppliancePlan& plan) noexcept {
  constexpr uint64_t kPageBytes = 4 * kKiB;
  constexpr uint64_t kKernelStackBytes = 32 * kKiB;
  constexpr uint64_t kDescriptorBytes = 8 * kKiB;  // a connection's records, its small buffers
  constexpr uint64_t kShardBytes = 4 * kMiB;
  constexpr uint64_t kProgramBytes = 8 * kMiB;  // maps of its own from now on: counters, rings
  const bool has_rings = configuration.event_loop.sockets != SocketBackendChoice::kEpoll;
  const uint64_t rings =
      (has_rings ? configuration.shards.size() : 0) + polled_shard_count(configuration, plan);
  const uint64_t small_bytes = bytes_to_take(plan, PageSize::k4KiB);
  uint64_t bytes = small_bytes + (small_bytes / kPageBytes) * (8 + 9 + 24 * rings) +
                   plan.stacks.total_bytes() + plan.stacks.count * kKernelStackBytes +
                   configuration.shards.size() * kShardBytes + kProgramBytes;
  // Except with a heap in ordinary memory: most of its mapping is never populated.
  if (interception_decision().backing != HeapBacking::kOrdinary) {
    bytes += own_bytes("VmSize") - own_bytes("VmRSS");
  }
  bytes += own_bytes("RssFile");
  for (const ServiceNeeds& service : plan.services) {
    bytes += service.descriptors * kDescriptorBytes;
    for (const DatagramNeed& need : service.datagrams) {
      if (!need.opening) continue;
      const DatagramOptions& options = need.opening->options;
      bytes += 2 * (uint64_t{options.receive_queue_bytes} + options.send_queue_bytes);
    }
  }
  return bytes;
}

void check_cgroups(const Configuration& configuration, const AppliancePlan& plan,
                   const std::string& root, std::vector<Error>* problems) {
  check_cgroup(CgroupResource::kHugepages2MiB, "hugepages of 2 MiB",
               bytes_to_take(plan, PageSize::k2MiB), root, problems);
  check_cgroup(CgroupResource::kHugepages1GiB, "hugepages of 1 GiB",
               bytes_to_take(plan, PageSize::k1GiB), root, problems);
  check_cgroup(CgroupResource::kMemory, "memory", charged_bytes(configuration, plan), root,
               problems);
}

// Whether memory may be locked beyond the limit (CAP_IPC_LOCK): tried, since capabilities have more
// rules than a check would know. A read-only mapping counts neither as data nor as committed
// memory. So mmap fails only for lack of address space, which check_address_space reports.
bool may_lock(uint64_t bytes) noexcept {
  void* memory =
      mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return true;
  // MLOCK_ONFAULT checks the limit without populating the pages. If the call is unknown (valgrind),
  // libc turns that into EINVAL; the locking itself reports problems then.
  const bool locked = mlock2(memory, bytes, MLOCK_ONFAULT) == 0 || errno == EINVAL;
  munmap(memory, bytes);
  return locked;
}

// Mapped memory beside the pool and the stacks: rings, the counters file, libraries' own maps.
// Measured: 3 MiB, and less than 1 MiB for each shard.
uint64_t other_mapped_bytes(const Configuration& configuration) noexcept {
  return (8 + 4 * configuration.shards.size()) * kMiB;
}

// The address space of the process once it serves.
uint64_t address_bytes(const Configuration& configuration, const AppliancePlan& plan) noexcept {
  return own_bytes("VmSize") + bytes_to_take(plan) + plan.stacks.total_bytes() +
         other_mapped_bytes(configuration);
}

void check_limit(__rlimit_resource resource, const char* what, char option, uint64_t needed,
                 std::vector<Error>* problems) {
  const uint64_t limit = raised_limit(resource);
  if (limit >= needed) return;
  problems->push_back(
      error_while("checking the limit of %s", what)
          .set_answer("%" PRIu64 " KiB are allowed, %" PRIu64 " KiB are needed", limit / kKiB,
                      (needed + kKiB - 1) / kKiB)
          .set_cure("ulimit -%c %" PRIu64 ", or unlimited", option, (needed + kKiB - 1) / kKiB));
}

void check_address_space(const Configuration& configuration, const AppliancePlan& plan,
                         std::vector<Error>* problems) {
  check_limit(RLIMIT_AS, "address space", 'v', address_bytes(configuration, plan), problems);
  // The pool is shared memory, which does not count as data.
  check_limit(RLIMIT_DATA, "data", 'd',
              own_bytes("VmData") + plan.stacks.total_bytes() + other_mapped_bytes(configuration),
              problems);
}

// Small pages: the kernel hands them out until the machine has none, and then kills processes.
void check_memory(const AppliancePlan& plan, std::vector<Error>* problems) {
  const uint64_t needed = bytes_to_take(plan, PageSize::k4KiB) + plan.stacks.total_bytes();
  const uint64_t available = available_memory_bytes();
  if (available != 0 && needed + kLeftBytes > available) {
    problems->push_back(error_while("checking memory in pages of 4 KiB")
                            .set_answer("%" PRIu64 " MiB are free, %" PRIu64 " MiB are needed, and "
                                        "%" PRIu64 " MiB are left to the kernel",
                                        available / kMiB, needed / kMiB, kLeftBytes / kMiB)
                            .set_cure("make [pool] bytes smaller, or add memory"));
  }
  if (!promises_strictly()) return;
  const auto limit_kib = read_number_field("/proc/meminfo", "CommitLimit");
  const auto given_kib = read_number_field("/proc/meminfo", "Committed_AS");
  if (!limit_kib || !given_kib) return;
  const uint64_t left = (*limit_kib - std::min(*limit_kib, *given_kib)) * kKiB;
  if (left >= needed) return;
  problems->push_back(
      error_while("checking the kernel's commit limit (vm.overcommit_memory is 2)")
          .set_answer("%" PRIu64 " MiB can still be committed, %" PRIu64 " MiB are needed",
                      left / kMiB, needed / kMiB)
          .set_cure(
              "sysctl vm.overcommit_memory=0, or raise vm.overcommit_ratio, or make [pool] bytes "
              "smaller"));
}

void check_locked_memory(const Configuration& configuration, const AppliancePlan& plan,
                         std::vector<Error>* problems) {
  const uint64_t limit = raised_limit(RLIMIT_MEMLOCK);
  // Small pages and stacks are locked; each ring is charged for all memory registered with it.
  uint64_t needed = plan.pool.bytes_with(PageSize::k4KiB) + plan.stacks.total_bytes();
  if (configuration.event_loop.sockets != SocketBackendChoice::kEpoll) {
    needed += plan.pool.bytes_for_devices() * configuration.shards.size();
  }
  // A shard has a second ring for files that are polled.
  needed += plan.pool.bytes_for_devices() * polled_shard_count(configuration, plan);
  // An RDMA device is charged in the same way, and counts if it is required. Processes that join
  // have limits of their own.
  if (plan.peers.is_required && !plan.verbs.empty()) needed += plan.verbs[0].locked_bytes;
  // A VFIO container, which all services' PCI devices share, is charged in the same way.
  if (!plan.vfio_devices().empty()) needed += plan.pool.bytes_for_devices();
  // The seal locks the whole program; the kernel compares all its mapped memory with the limit.
  needed = std::max(needed, address_bytes(configuration, plan));
  if (limit >= needed) return;
  const auto look = [&](std::vector<Error>* seen) {
    if (may_lock(needed)) return;
    seen->push_back(error_while("checking the limit of locked memory")
                        .set_answer("%" PRIu64 " KiB are allowed, %" PRIu64 " KiB are needed",
                                    limit / kKiB, needed / kKiB)
                        .set_cure("%sulimit -l %" PRIu64,
                                  configuration.appliance.user.empty() ? cure_for_lock_limit() : "",
                                  (needed + kKiB - 1) / kKiB));
  };
  look_as_appliance(configuration, plan, look, problems);
}

// A segment is a file, too. Files of services are checked as they are opened (planned_files.h).
void check_file_size(const AppliancePlan& plan, std::vector<Error>* problems) {
  const uint64_t limit = raised_limit(RLIMIT_FSIZE);
  uint64_t needed = 0;
  for (const SegmentPlan& segment : plan.pool.segments) needed = std::max(needed, segment.bytes);
  if (limit >= needed) return;
  problems->push_back(error_while("checking the limit of file sizes")
                          .set_answer("%" PRIu64 " KiB are allowed, %" PRIu64 " KiB are needed",
                                      limit / kKiB, needed / kKiB)
                          .set_cure("ulimit -f unlimited, or LimitFSIZE=infinity in its unit"));
}

// The pseudo file systems that boot reads.
void check_file_systems(std::vector<Error>* problems) {
  const struct {
    const char* file;
    const char* cure;
  } kNeeded[] = {{"/proc/self/smaps", "mount -t proc proc /proc"},
                 {"/sys/kernel/mm", "mount -t sysfs sysfs /sys"}};
  for (const auto& each : kNeeded) {
    if (access(each.file, R_OK) == 0) continue;
    problems->push_back(error_from_errno("checking %s", each.file).set_cure("%s", each.cure));
  }
}

uint64_t needed_descriptors(const Configuration& configuration, const AppliancePlan& plan) {
  uint64_t needed = kOtherDescriptors + plan.pool.segments.size() + plan.peers.descriptors;
  for (const ServiceNeeds& service : plan.services) needed += service.descriptors;
  if (plan.groups.empty()) return needed;
  uint64_t process_count = 0;
  for (const ProcessSettings& process : configuration.processes) {
    process_count += process.place_count();
  }
  // Segments are opened a second time, for processes that may only read them.
  return std::max(
      needed + plan.pool.segments.size() + JoinServer::descriptor_count_max(process_count),
      JoinServer::open_files_min(process_count));
}

void check_descriptors(const Configuration& configuration, const AppliancePlan& plan,
                       std::vector<Error>* problems) {
  const uint64_t limit = raised_limit(RLIMIT_NOFILE);
  const uint64_t needed = needed_descriptors(configuration, plan);
  if (limit >= needed) return;
  Error error = error_while("checking the limit of open files")
                    .set_answer("%" PRIu64 " are allowed, %" PRIu64 " are needed", limit, needed);
  std::string keys;
  for (const ServiceNeeds& service : plan.services) {
    if (!service.descriptor_keys.empty()) add_word(&keys, service.descriptor_keys);
  }
  error.set_cure("ulimit -n %" PRIu64 ", or lower %s%smax_peers in [verbs] or max_count in "
                 "[[process]]",
                 needed, keys.c_str(), keys.empty() ? "" : ", ");
  problems->push_back(error);
}

void check_cores(const Configuration& configuration, std::vector<Error>* problems) {
  for (const ShardSettings& shard : configuration.shards) {
    if (cpu_is_usable(shard.cpu)) continue;
    problems->push_back(
        error_while("checking the core of shard %s", shard.name.c_str())
            .set_answer("core %d does not exist, or this process may not use it (it may use %d "
                        "cores)",
                        shard.cpu, usable_cpu_count())
            .set_cure("choose another `cpu`, or use fewer shards"));
  }
}

// Every ring registers the whole part of the pool that is for devices.
void check_registration(const AppliancePlan& plan, std::vector<Error>* problems) {
  if (auto fits = check_fit(kUringKind, plan.pool); !fits.ok()) problems->push_back(fits.error());
}

// Segments follow one another, each from the start of a region.
void check_vfio_devices(const Configuration& configuration, const AppliancePlan& plan,
                        std::vector<Error>* problems) {
  const std::vector<std::string> devices = plan.vfio_devices();
  if (devices.empty()) return;
  uint64_t regions = 0;
  std::vector<SegmentSize> segments;
  for (const SegmentPlan& segment : plan.pool.segments) {
    regions += regions_of(segment.bytes);
    if (segment.is_for_devices) segments.push_back({segment.owner, segment.bytes});
  }
  const auto look = [&](std::vector<Error>* seen) {
    check_vfio(devices, segments, kPoolBase, kPoolBase + regions * kRegionBytes - 1, seen);
  };
  look_as_appliance(configuration, plan, look, problems);
}

void check_users(const Configuration& configuration, std::vector<Error>* problems) {
  for (const ProcessSettings& process : configuration.processes) {
    auto found = find_user_id(process.user.c_str());
    if (found.ok()) continue;
    Error error = found.error();
    error.set_doing("looking up the user %s of the process %s", process.user.c_str(),
                    process.name.c_str());
    problems->push_back(error);
  }
}

}  // namespace

std::vector<HugepageNeed> hugepage_needs(const AppliancePlan& plan) {
  const NodeSet there = memory_nodes();
  std::vector<HugepageNeed> needs;
  for (const PageSize page : {PageSize::k2MiB, PageSize::k1GiB}) {
    std::set<int> nodes;
    for (const SegmentPlan& segment : plan.pool.segments) {
      if (segment.page != page || segment.owner == OwnerName("boot")) continue;
      if (there.count() == 1 || segment.node == kAnyNode) {
        nodes.insert(kAnyNode);
      } else if (there[static_cast<size_t>(segment.node)]) {
        nodes.insert(segment.node);
      }
    }
    for (const int node : nodes) {
      needs.push_back({page, node, bytes_to_take(plan, page, node) / page_bytes(page)});
    }
  }
  return needs;
}

Result<uint64_t> missing_hugepages(const HugepageNeed& need) noexcept {
  const HugepageCounts counts = hugepage_counts(need.page, need.node);
  uint64_t missing = need.count - std::min(need.count, counts.available_count);
  if (missing > 0 && may_be_made(need, counts)) missing = 0;
  const uint64_t available_bytes = available_memory_bytes();
  if (missing == 0 || missing * page_bytes(need.page) + kLeftBytes <= available_bytes) {
    return missing;
  }
  return error_while("reserving %" PRIu64 " hugepages of %s", missing,
                     format_bytes(page_bytes(need.page)).text)
      .set_answer("%" PRIu64 " MiB of memory are free, and %" PRIu64 " MiB are left to the kernel",
                  available_bytes / kMiB, kLeftBytes / kMiB)
      .set_cure("make [pool] bytes smaller, or add memory");
}

Result<void> probe_io_uring() noexcept {
  io_uring ring = {};
  const int outcome =
      io_uring_queue_init(2, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
  if (outcome == 0) {
    auto tried = try_ring(ring);
    io_uring_queue_exit(&ring);
    return tried;
  }
  errno = -outcome;
  return error_from_errno("trying io_uring")
      .set_cure("use Linux 6.1 or newer, and a container that allows it (sysctl "
                "kernel.io_uring_disabled=0), or set [event_loop] sockets = \"epoll\"");
}

Result<void> check_overcommit(const Configuration& configuration, const char* file) noexcept {
  constexpr uint64_t kStrict = 2;
  const auto outsider =
      std::find_if(configuration.processes.begin(), configuration.processes.end(),
                   [&](const auto& process) { return is_outsider(configuration, process); });
  if (outsider == configuration.processes.end() || read_number_file(file) != kStrict) return {};
  return error_while("checking vm.overcommit_memory for the process %s", outsider->name.c_str())
      .set_answer("it is 2: if a process that is not trusted, or of another user, frees memory "
                  "that it shares, the kernel may not provide it again")
      .set_cure("sysctl vm.overcommit_memory=0, or make it trusted and run it as this user");
}

Result<void> check_heap_expectation(HeapExpectation expected,
                                    const InterceptionDecision& decision) noexcept {
  const bool is_pool = decision.backing == HeapBacking::kPool;
  const bool is_good =
      expected == HeapExpectation::kAny || (expected == HeapExpectation::kPool) == is_pool;
  if (is_good) return {};
  char sentence[192];
  Error error = configuration_error_while("comparing [alloc] expect = \"%s\" with this process",
                                          is_pool ? "ordinary" : "pool")
                    .set_answer("malloc %s", explain_decision(decision, sentence, sizeof sentence));
  if (is_pool) return error.set_cure("set BEDPLATE_ALLOC_DISABLE=1, or change [alloc] expect");
  if (decision.backing == HeapBacking::kOwn) {
    return error.set_cure("link libbedplate-malloc.a, or change [alloc] expect");
  }
  if (decision.inputs.disabled_by != nullptr) {
    return error.set_cure("unset %s, or change [alloc] expect", decision.inputs.disabled_by);
  }
  return error.set_cure("set BEDPLATE_LEAVE_PINNED=yes, or change [alloc] expect");
}

std::vector<Error> preflight(const Configuration& configuration, const AppliancePlan& plan,
                             const std::string& cgroup_root) {
  std::vector<Error> problems;
  check_file_systems(&problems);
  check_nodes(plan, &problems);
  for (const HugepageNeed& need : hugepage_needs(plan)) check_hugepages(need, &problems);
  check_cgroups(configuration, plan, cgroup_root, &problems);
  check_memory(plan, &problems);
  check_address_space(configuration, plan, &problems);
  check_locked_memory(configuration, plan, &problems);
  check_file_size(plan, &problems);
  check_descriptors(configuration, plan, &problems);
  check_cores(configuration, &problems);
  check_users(configuration, &problems);
  check_appliance_user(configuration, plan, &problems);
  check_vfio_devices(configuration, plan, &problems);
  check_planned_tls(plan.services, &problems);
  for (Service* service : configuration.services) {
    auto looked = call_service(*service, "checking the machine", [&] {
      service->preflight(&problems);
      return Result<void>{};
    });
    if (!looked.ok()) problems.push_back(looked.error());
  }
  if (auto had = check_overcommit(configuration); !had.ok()) problems.push_back(had.error());
  // Polled files need io_uring, even if the sockets use epoll.
  if (configuration.event_loop.sockets == SocketBackendChoice::kIoUring ||
      polled_shard_count(configuration, plan) > 0) {
    const auto look = [](std::vector<Error>* seen) {
      if (auto probed = probe_io_uring(); !probed.ok()) seen->push_back(probed.error());
    };
    look_as_appliance(configuration, plan, look, &problems);
    check_registration(plan, &problems);
  }
  return problems;
}

}  // namespace bedplate
