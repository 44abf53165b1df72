// Preflight reports nothing if the machine has everything; else it reports all problems at once,
// each with its cure.
#include "apps/boot/preflight.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pinned_pool/boot_segment.h"
#include "pinned_pool/join/join_server.h"
#include "pinned_pool/take_error.h"
#include "platform/cpu.h"
#include "platform/numa.h"
#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"
#include "tests/support/fake_root.h"
#include "tests/support/skip.h"
#include "transport/sockets/stream_sockets.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

int usable_core() {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (cpu_is_usable(cpu)) return cpu;
  }
  return -1;
}

// Drops CAP_IPC_LOCK. Capabilities belong to threads, so only the calling thread loses it.
bool give_up_locking() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~(1U << CAP_IPC_LOCK);
  return syscall(SYS_capset, &header, data) == 0;
}

}  // namespace

TEST_GROUP(Preflight) {
  Configuration configuration;
  AppliancePlan plan;
  rlimit files_before = {};
  rlimit locked_before = {};

  void setup() override {
    getrlimit(RLIMIT_NOFILE, &files_before);
    getrlimit(RLIMIT_MEMLOCK, &locked_before);
    configuration.appliance.name = "demo";
    configuration.pool.pages = PageWish::k4KiB;
    configuration.event_loop.sockets = SocketBackendChoice::kEpoll;
    configuration.shards = {{"main", usable_core()}};
    plan.pool.segments = {{"boot", 64 * kKiB, PageSize::k4KiB, {}}};
    plan.stacks = {1, 64 * kKiB};
  }
  void teardown() override {
    setrlimit(RLIMIT_NOFILE, &files_before);
    setrlimit(RLIMIT_MEMLOCK, &locked_before);
  }

  // Plans `count` connections of a service.
  void plan_connections(uint64_t count) {
    ServiceNeeds needs;
    needs.descriptors = count;
    needs.descriptor_keys = "max_connections in [blockd]";
    plan.services = {needs};
  }

  // Large compared with the mappings of this process.
  static constexpr uint64_t kLargeBytes = 64 * kGiB;
  // The most that the test program itself has mapped. (A sanitizer maps terabytes.)
  static constexpr uint64_t kOtherBytesMax = 4 * kGiB;
  // Returns the lockable memory that preflight demands in its error; 0: it reports no such error.
  uint64_t needed_bytes() {
    const auto problems = preflight(configuration, plan);
    const Error* error = find(problems, "checking the limit of locked memory");
    uint64_t allowed_kib = 0;
    uint64_t needed_kib = 0;
    if (error == nullptr ||
        std::sscanf(error->answer, "%" SCNu64 " KiB are allowed, %" SCNu64 " KiB are needed",
                    &allowed_kib, &needed_kib) != 2) {
      return 0;
    }
    return needed_kib * kKiB;
  }

  static const Error* find(const std::vector<Error>& problems, const char* doing) {
    for (const Error& each : problems) {
      if (std::strcmp(each.doing, doing) == 0) return &each;
    }
    return nullptr;
  }
};

TEST(Preflight, SaysNothingWhenAllIsThere) {
  LONGS_EQUAL(0, preflight(configuration, plan).size());
}

TEST(Preflight, RaisesTheSoftLimitsToTheHardOnes) {
  rlimit low = files_before;
  low.rlim_cur = std::min<rlim_t>(256, low.rlim_max);
  LONGS_EQUAL(0, setrlimit(RLIMIT_NOFILE, &low));
  rlimit little = locked_before;
  little.rlim_cur = 0;
  LONGS_EQUAL(0, setrlimit(RLIMIT_MEMLOCK, &little));
  preflight(configuration, plan);
  rlimit now = {};
  getrlimit(RLIMIT_NOFILE, &now);
  CHECK_EQUAL(files_before.rlim_max, now.rlim_cur);
  getrlimit(RLIMIT_MEMLOCK, &now);
  CHECK_EQUAL(locked_before.rlim_max, now.rlim_cur);
}

TEST(Preflight, NamesTheShardWhoseCoreIsNotThere) {
  configuration.shards.push_back({"far", 100'000});
  const auto problems = preflight(configuration, plan);
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("checking the core of shard far", problems[0].doing);
  const std::string answer = "core 100000 does not exist, or this process may not use it (it may "
                             "use " +
                             std::to_string(usable_cpu_count()) + " cores)";
  STRCMP_EQUAL(answer.c_str(), problems[0].answer);
  STRCMP_EQUAL("choose another `cpu`, or use fewer shards", problems[0].cure);
}

TEST(Preflight, NamesTheUserThatIsNotThere) {
  ProcessSettings process;
  process.name = "worker";
  for (const char* known : {"root", "0", "4294967294"}) {
    process.user = known;
    configuration.processes = {process};
    LONGS_EQUAL(check_overcommit(configuration).ok() ? 0 : 1,
                preflight(configuration, plan).size());
  }
  configuration.processes[0].user = "no-such-user";
  const auto problems = preflight(configuration, plan);
  LONGS_EQUAL(check_overcommit(configuration).ok() ? 1 : 2, problems.size());
  STRCMP_EQUAL("looking up the user no-such-user of the process worker", problems[0].doing);
  STRCMP_EQUAL("no such user in /etc/passwd", problems[0].answer);
  STRCMP_EQUAL("name another one, make it with useradd, or write its number", problems[0].cure);
}

TEST(Preflight, ShowsTheSumWhenThePoolHasTooManyRegionsForARing) {
  configuration.event_loop.sockets = SocketBackendChoice::kIoUring;
  configuration.shards.clear();  // nothing has to be locked for a ring
  plan.pool.segments.assign(16'385, {"v", 4 * kKiB, PageSize::k4KiB, {}});
  const auto problems = preflight(configuration, plan);
  const Error* found = find(problems, "fitting the pool of 65540 KiB into the limits of io_uring");
  CHECK(found != nullptr);
  CHECK(std::strstr(found->answer, "16385 regions of at most 4 KiB are needed (v 1 + v 1") !=
        nullptr);
  CHECK(std::strstr(found->answer, "), it accepts 16384") != nullptr);
  STRCMP_EQUAL("make [pool] bytes smaller or use fewer segments, until 16384 regions are enough "
               "(`bedplate plan` shows them); or set [event_loop] sockets = \"epoll\"",
               found->cure);
  plan.pool.segments.pop_back();
  LONGS_EQUAL(0, find(preflight(configuration, plan),
                      "fitting the pool of 64 MiB into the limits of io_uring") != nullptr);
}

TEST(Preflight, SaysHowManyHugepagesAreMissingAndHowToGetThem) {
  const HugepageCounts counts = hugepage_counts(PageSize::k2MiB);
  if (!counts.supported) BP_SKIP("this kernel has no hugepages of 2 MiB");
  configuration.pool.pages = PageWish::k2MiB;
  const uint64_t needed = counts.available_count + (uint64_t{1} << 20);  // others may free some
  plan.pool.segments.push_back({"heap", needed * 2 * kMiB, PageSize::k2MiB, {}});
  const auto problems = preflight(configuration, plan);
  const Error* found = find(problems, "checking hugepages of 2 MiB");
  CHECK(found != nullptr);
  unsigned long long are_free = 0;
  unsigned long long are_needed = 0;
  LONGS_EQUAL(2,
              std::sscanf(found->answer, "%llu are free, %llu are needed", &are_free, &are_needed));
  CHECK_EQUAL(needed, are_needed);
  CHECK(std::strncmp("echo ", found->cure, 5) == 0);
  CHECK(std::strstr(found->cure, hugepage_count_file(PageSize::k2MiB).path) != nullptr);
}

TEST(Preflight, ACountOfHugepagesThatIsThereIsNoProblem) {
  const HugepageCounts counts = hugepage_counts(PageSize::k2MiB);
  if (!counts.supported || counts.available_count == 0) BP_SKIP("no hugepages of 2 MiB are free");
  configuration.pool.pages = PageWish::k2MiB;
  plan.pool.segments.push_back({"heap", 2 * kMiB, PageSize::k2MiB, {}});
  LONGS_EQUAL(0, preflight(configuration, plan).size());
}

TEST(Preflight, AHugepageSizeThatThisKernelLacksIsSaid) {
  if (hugepage_counts(PageSize::k1GiB).supported) BP_SKIP("this kernel has pages of 1 GiB");
  configuration.pool.pages = PageWish::k1GiB;
  plan.pool.segments.push_back({"heap", kGiB, PageSize::k1GiB, {}});
  const auto problems = preflight(configuration, plan);
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("checking hugepages of 1 GiB", problems[0].doing);
  STRCMP_EQUAL("this kernel does not support this size", problems[0].answer);
}

TEST(Preflight, NamesTheNodeThatIsNotThereAndWhoWantsIt) {
  plan.pool.segments.push_back({"volume:ram0", 64 * kKiB, PageSize::k4KiB, {}, 1000});
  const auto problems = preflight(configuration, plan);
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("checking NUMA node 1000 for volume:ram0", problems[0].doing);
  STRCMP_CONTAINS("this machine has memory on node 0", problems[0].answer);
  STRCMP_EQUAL("name an existing node, or leave the node out of the configuration",
               problems[0].cure);
}

TEST(Preflight, CountsHugepagesOnEachNode) {
  if (memory_nodes().count() == 1) BP_SKIP("this machine has one NUMA node");
  for (const int node : {0, 1}) {
    const uint64_t needed = hugepage_counts(PageSize::k2MiB, node).available_count + 3;
    plan.pool.segments.push_back({"volume", needed * 2 * kMiB, PageSize::k2MiB, {}, node});
  }
  const auto problems = preflight(configuration, plan);
  LONGS_EQUAL(2, problems.size());
  for (const int node : {0, 1}) {
    const std::string number = std::to_string(node);
    const HugepageCounts counts = hugepage_counts(PageSize::k2MiB, node);
    const auto at = static_cast<size_t>(node);
    STRCMP_EQUAL(("checking hugepages of 2 MiB on node " + number).c_str(), problems[at].doing);
    STRCMP_EQUAL((std::to_string(counts.available_count) + " are free, " +
                  std::to_string(counts.available_count + 3) + " are needed")
                     .c_str(),
                 problems[at].answer);
    STRCMP_EQUAL(
        ("echo " + std::to_string(counts.total_count + 3) + " > /sys/devices/system/node/node" +
         number + "/hugepages/hugepages-2048kB/nr_hugepages")
            .c_str(),
        problems[at].cure);
  }
}

TEST(Preflight, SaysHowManyDescriptorsAreMissing) {
  plan_connections(1U << 31);
  const auto problems = preflight(configuration, plan);
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("checking the limit of open files", problems[0].doing);
  const std::string answer = std::to_string(files_before.rlim_max) + " are allowed, 2147483713 "
                                                                     "are needed";
  STRCMP_EQUAL(answer.c_str(), problems[0].answer);
  STRCMP_EQUAL("ulimit -n 2147483713, or lower max_connections in [blockd], max_peers in [verbs] "
               "or max_count in [[process]]",
               problems[0].cure);
}

TEST(Preflight, StrictAccountingAndOutsidersDoNotGoTogether) {
  char file[64];
  std::snprintf(file, sizeof file, "/tmp/bedplate-overcommit-%d", getpid());
  const auto answer = [&](const char* setting, bool is_trusted) {
    std::ofstream(file) << setting << '\n';
    ProcessSettings process;
    process.name = "worker";
    process.user = "0";
    process.trusted = is_trusted;
    configuration.processes = {process};
    const auto checked = check_overcommit(configuration, file);
    return std::string(checked.ok() ? "" : checked.error().answer);
  };
  for (const char* lenient : {"0", "1"}) STRCMP_EQUAL("", answer(lenient, false).c_str());
  STRCMP_EQUAL("", answer("2", true).c_str());
  STRCMP_EQUAL("it is 2: if a process that is not trusted, or of another user, frees memory that "
               "it shares, the kernel may not provide it again",
               answer("2", false).c_str());
  std::filesystem::remove(file);
  CHECK(check_overcommit(configuration, file).ok());  // a kernel without this file
}

TEST(Preflight, CountsTheDescriptorsOfPeersAndOfProcessesThatJoin) {
  plan_connections(1U << 31);
  const auto needed = [&] {
    const auto problems = preflight(configuration, plan);
    LONGS_EQUAL(1, problems.size());
    return std::strtoull(std::strstr(problems[0].answer, "allowed, ") + 9, nullptr, 10);
  };
  const uint64_t without = needed();
  plan.peers.descriptors = 18;
  const uint64_t with_peers = needed();
  CHECK_EQUAL(plan.peers.descriptors, with_peers - without);
  ProcessSettings process;
  process.user = "0";
  process.max_count = 2;
  process.spare_count = 1;
  configuration.processes = {process};
  plan.groups.push_back({"fifo:main", {}});
  CHECK_EQUAL(1 + JoinServer::descriptor_count_max(3), needed() - with_peers);
}

TEST(Preflight, SaysHowMuchMemoryMayNotBeLocked) {
  if (test::kIsSanitized) BP_SKIP("a sanitizer maps more than any pool has");
  if (locked_before.rlim_max == RLIM_INFINITY) BP_SKIP("locked memory is not limited here");
  plan.pool.segments[0].bytes = kLargeBytes;
  bool gave_up = false;
  std::vector<Error> problems;
  std::thread([&] {
    gave_up = give_up_locking();
    if (gave_up) problems = preflight(configuration, plan);
  }).join();
  CHECK(gave_up);
  const Error* error = find(problems, "checking the limit of locked memory");
  CHECK(error != nullptr);
  // Everything that will be mapped counts, including the mappings that the program has already.
  uint64_t needed = 0;
  const std::string allowed = std::to_string(locked_before.rlim_max / kKiB) + " KiB are allowed, ";
  LONGS_EQUAL(1, std::sscanf(error->answer, (allowed + "%" SCNu64).c_str(), &needed));
  CHECK(needed >= (plan.pool.segments[0].bytes + plan.stacks.total_bytes()) / kKiB);
  CHECK(needed <= (plan.pool.segments[0].bytes + kOtherBytesMax) / kKiB);
  STRCMP_EQUAL((cure_for_lock_limit() + ("ulimit -l " + std::to_string(needed))).c_str(),
               error->cure);
}

// The kernel charges each ring for the whole pool, hugepages included.
TEST(Preflight, CountsThePoolOnceMoreForEachRing) {
  if (test::kIsSanitized) BP_SKIP("a sanitizer maps more than any pool has");
  if (locked_before.rlim_max == RLIM_INFINITY) BP_SKIP("locked memory is not limited here");
  if (!probe_io_uring().ok()) BP_SKIP("io_uring is not available here");
  plan.pool.segments[0].bytes = kLargeBytes;
  plan.stacks = {};
  bool gave_up = false;
  uint64_t with_epoll = 0;
  uint64_t with_one_ring = 0;
  uint64_t with_two_rings = 0;
  std::thread([&] {
    gave_up = give_up_locking();
    with_epoll = needed_bytes();
    configuration.event_loop.sockets = SocketBackendChoice::kIoUringOrEpoll;
    with_one_ring = needed_bytes();
    configuration.shards.push_back(configuration.shards[0]);
    with_two_rings = needed_bytes();
  }).join();
  CHECK(gave_up);
  CHECK(with_epoll >= kLargeBytes && with_epoll <= kLargeBytes + kOtherBytesMax);
  CHECK_EQUAL(2 * kLargeBytes, with_one_ring);
  CHECK_EQUAL(3 * kLargeBytes, with_two_rings);
}

// A shard with polled files has two rings, whatever the number of files.
TEST(Preflight, CountsThePoolOnceMoreForAPolledRing) {
  if (test::kIsSanitized) BP_SKIP("a sanitizer maps more than any pool has");
  if (locked_before.rlim_max == RLIM_INFINITY) BP_SKIP("locked memory is not limited here");
  if (!probe_io_uring().ok()) BP_SKIP("io_uring is not available here");
  plan.pool.segments[0].bytes = kLargeBytes;
  plan.stacks = {};
  configuration.event_loop.sockets = SocketBackendChoice::kIoUringOrEpoll;
  ServiceNeeds needs;
  needs.files.resize(2);
  for (FileNeed& file : needs.files) file.plan.is_polled = true;
  plan.services = {needs};
  bool gave_up = false;
  uint64_t needed = 0;
  std::thread([&] {
    gave_up = give_up_locking();
    needed = needed_bytes();
  }).join();
  CHECK(gave_up);
  CHECK_EQUAL(3 * kLargeBytes, needed);
}

TEST(Preflight, NamesTheControlGroupThatAllowsTooFewHugepages) {
  test::FakeRoot root;
  root.write("/proc/self/cgroup", "0::/slice/box\n");
  root.write("/sys/fs/cgroup/slice/hugetlb.2MB.max", "104857600\n");
  root.write("/sys/fs/cgroup/slice/hugetlb.2MB.current", "4194304\n");
  root.write("/sys/fs/cgroup/slice/box/hugetlb.2MB.rsvd.max", "1048576\n");
  plan.pool.segments.push_back({"heap", 98 * kMiB, PageSize::k2MiB, {}});
  const auto problems = preflight(configuration, plan, root.path());
  std::vector<const Error*> found;
  for (const Error& each : problems) {
    if (std::strstr(each.doing, "control group") != nullptr) found.push_back(&each);
  }
  LONGS_EQUAL(2, found.size());
  STRCMP_EQUAL("checking the control group's limit of hugepages of 2 MiB", found[0]->doing);
  STRCMP_EQUAL("1024 KiB are allowed, 0 KiB of them used, 100352 KiB more are needed",
               found[0]->answer);
  STRCMP_EQUAL(("echo 102760448 > " + root.path() +
                "/sys/fs/cgroup/slice/box/hugetlb.2MB.rsvd.max"
                ", or make [pool] bytes smaller")
                   .c_str(),
               found[0]->cure);
  STRCMP_EQUAL("102400 KiB are allowed, 4096 KiB of them used, 100352 KiB more are needed",
               found[1]->answer);
}

// Segment 0 of this process is already in use; the plan's other segments are not.
TEST(Preflight, NamesTheControlGroupThatAllowsTooLittleMemory) {
  if (test::kIsSanitized) BP_SKIP("a sanitizer maps more than any pool has");
  test::FakeRoot root;
  root.write("/proc/self/cgroup", "0::/box\n");
  const char* const limit = "/sys/fs/cgroup/box/memory.max";
  root.write(limit, std::to_string(kGiB) + "\n");
  LONGS_EQUAL(0, preflight(configuration, plan, root.path()).size());
  root.write(limit, "1048576\n");
  plan.pool.segments.push_back({"members", 2 * kMiB, PageSize::k4KiB, {}});
  const Error* found = nullptr;
  const auto problems = preflight(configuration, plan, root.path());
  found = find(problems, "checking the control group's limit of memory");
  CHECK(found != nullptr);
  // Besides the pages, the need includes page tables, the program and the kernel's part.
  uint64_t needed_kib = 0;
  LONGS_EQUAL(1, std::sscanf(found->answer,
                             "1024 KiB are allowed, 0 KiB of them used, %" SCNu64 " KiB more",
                             &needed_kib));
  CHECK(needed_kib > 2112 + 8 * 1024);
  STRCMP_CONTAINS("/sys/fs/cgroup/box/memory.max, or make [pool] bytes smaller", found->cure);
}

TEST(Preflight, ReportsEverythingAtOnce) {
  configuration.shards = {{"far", 100'000}, {"farther", 100'001}};
  plan_connections(1U << 31);
  configuration.pool.pages = PageWish::k1GiB;
  plan.pool.segments.push_back({"heap", uint64_t{1} << 50, PageSize::k1GiB, {}});
  const auto problems = preflight(configuration, plan);
  LONGS_EQUAL(4, problems.size());
  for (const Error& each : problems) {
    CHECK(each.doing[0] != '\0' && each.answer[0] != '\0' && each.cure[0] != '\0');
  }
}

TEST(Preflight, TheProbeOfIoUringAgreesWithWhatTheSocketsMeet) {
  SocketCounters counters;
  auto loop = std::make_unique<EventLoop>();
  CHECK(loop->create({}).ok());
  StreamSocketsOptions options;
  options.loop = loop.get();
  options.counters = &counters;
  const auto sockets = make_uring_sockets();
  CHECK_EQUAL(sockets->create(options).ok(), probe_io_uring().ok());
}

// A seccomp profile may forbid single calls of io_uring, so a ring that was set up may be useless.
TEST(Preflight, TheProbeOfIoUringNamesACallThatIsForbidden) {
  if (!probe_io_uring().ok()) BP_SKIP("io_uring is not available here");
  for (const auto& [number, name] : {std::pair{SYS_io_uring_enter, "io_uring_enter"},
                                     std::pair{SYS_io_uring_register, "io_uring_register"}}) {
    const test::Ended ended = test::run_forked([&, number = number, name = name] {
      BP_PROBE_CHECK(test::forbid_call(static_cast<uint32_t>(number), EPERM));
      const auto probed = probe_io_uring();
      BP_PROBE_CHECK(!probed.ok() && std::strstr(probed.error().cure, name) != nullptr);
    });
    LONGS_EQUAL(0, ended.exit_code);
  }
}

TEST(Preflight, ExpectationOfTheHeapIsComparedWithTheDecision) {
  const auto outcome = [](HeapExpectation expected, HeapBacking backing) {
    InterceptionDecision decision;
    decision.backing = backing;
    const auto checked = check_heap_expectation(expected, decision);
    if (checked.ok()) return std::string();
    CHECK(checked.error().kind == ErrorKind::kConfiguration);
    char message[1024];
    return std::string(format_error(checked.error(), message, sizeof message));
  };
  for (const HeapBacking backing :
       {HeapBacking::kOwn, HeapBacking::kOrdinary, HeapBacking::kPool}) {
    STRCMP_EQUAL("", outcome(HeapExpectation::kAny, backing).c_str());
  }
  STRCMP_EQUAL("", outcome(HeapExpectation::kPool, HeapBacking::kPool).c_str());
  STRCMP_EQUAL("", outcome(HeapExpectation::kOrdinary, HeapBacking::kOrdinary).c_str());
  STRCMP_EQUAL("", outcome(HeapExpectation::kOrdinary, HeapBacking::kOwn).c_str());
  STRCMP_EQUAL("comparing [alloc] expect = \"pool\" with this process: malloc is the program's "
               "own: libbedplate-malloc.a is not linked; link libbedplate-malloc.a, or change "
               "[alloc] expect",
               outcome(HeapExpectation::kPool, HeapBacking::kOwn).c_str());
  STRCMP_CONTAINS("expect = \"pool\" with this process: malloc hands out ordinary memory",
                  outcome(HeapExpectation::kPool, HeapBacking::kOrdinary).c_str());
  STRCMP_CONTAINS("expect = \"ordinary\" with this process: malloc hands out pool memory",
                  outcome(HeapExpectation::kOrdinary, HeapBacking::kPool).c_str());
}
