// The plan of an appliance: each byte has an owner, and a plan that does not fit is refused with a
// cure.
#include "apps/boot/appliance_plan.h"

#include <cstring>
#include <string>

#include "alloc/confined_heap.h"
#include "apps/blockd/block_service.h"
#include "pinned_pool/boot_segment.h"
#include "platform/thread_stack.h"
#include "tests/apps/boot/service_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(AppliancePlan) {
  BlockService blockd;
  Configuration configuration;

  void setup() override {
    configuration.appliance.name = "demo";
    configuration.pool.bytes = boot_segment_bytes() + 128 * kMiB;
    configuration.pool.pages = PageWish::k2MiB;
    configuration.pool.heap_min_bytes = 16 * kMiB;
    configuration.shards = {{"main", 0}, {"volumes", 1}};
    configuration.services = {&blockd};
    blockd.settings().max_connections = 4;
    blockd.settings().requests_per_connection = 8;
    blockd.settings().volumes = {{"ram0", 64 * kMiB, false}, {"ram1", 4 * kMiB, true}};
  }

  AppliancePlan plan() {
    Result<AppliancePlan> made = plan_appliance(configuration);
    CHECK(made.ok());
    return made.take();
  }
  std::string refusal() {
    const Result<AppliancePlan> refused = plan_appliance(configuration);
    char text[1024];
    return refused.ok() ? "" : format_error(refused.error(), text, sizeof text);
  }
  static const SegmentPlan* find(const AppliancePlan& plan, const char* owner) {
    for (const SegmentPlan& each : plan.pool.segments) {
      if (each.owner == OwnerName(owner)) return &each;
    }
    return nullptr;
  }
};

TEST(AppliancePlan, NamesEverySegmentAndSumsUpToThePool) {
  const AppliancePlan made = plan();
  LONGS_EQUAL(5, made.pool.segments.size());
  STRCMP_EQUAL("boot", made.pool.segments[0].owner.text);
  STRCMP_EQUAL("heap", made.pool.segments[1].owner.text);
  STRCMP_EQUAL("blockd", made.pool.segments[2].owner.text);
  STRCMP_EQUAL("volume:ram0", made.pool.segments[3].owner.text);
  STRCMP_EQUAL("volume:ram1", made.pool.segments[4].owner.text);
  CHECK_EQUAL(boot_segment_bytes(), made.pool.segments[0].bytes);
  CHECK(made.pool.segments[0].page == PageSize::k4KiB);
  CHECK_EQUAL(64 * kMiB, made.pool.segments[3].bytes);
  CHECK(made.pool.segments[3].page == PageSize::k2MiB);
  CHECK_EQUAL(configuration.pool.bytes, made.pool.total_bytes());
}

TEST(AppliancePlan, IsNoneThatIsNotOfItsConfiguration) {
  configuration.groups = {{.name = "main", .shape = {.member_count = 2}}};
  const AppliancePlan good = plan();
  CHECK(good.is_valid(configuration));
  const auto fails = [&](auto change) {
    AppliancePlan bad = good;
    change(bad);
    return !bad.is_valid(configuration);
  };
  CHECK(fails([](AppliancePlan& bad) { bad.pool.segments[1].carves.pop_back(); }));
  CHECK(fails([](AppliancePlan& bad) { bad.pool.segments[2].bytes += kGiB; }));
  CHECK(fails([](AppliancePlan& bad) { bad.stacks.count = 1; }));
  CHECK(fails([](AppliancePlan& bad) { bad.services.clear(); }));
  CHECK(fails([](AppliancePlan& bad) { bad.services[0].service = nullptr; }));
  CHECK(fails([](AppliancePlan& bad) { bad.services[0].shards.pop_back(); }));
  CHECK(fails([](AppliancePlan& bad) { bad.services[0].segments[0].owner = "other"; }));
  CHECK(fails([](AppliancePlan& bad) { bad.services[0].segments[0].carves[0].bytes += kGiB; }));
  CHECK(fails([](AppliancePlan& bad) { bad.groups[0].segment = "other"; }));
  CHECK(fails([](AppliancePlan& bad) { bad.groups[0].shape.member_count = 1'000; }));
  CHECK(fails([](AppliancePlan& bad) {
    bad.runtime_counters.push_back(bad.services[0].counters.front());
  }));
}

// The volume's buffers lie in the pool; its data lie in the file. Even with io_uring, a thread
// finds the extents of the file.
TEST(AppliancePlan, AVolumeOnAFileHasBuffersAndAThread) {
  configuration.event_loop.sockets = SocketBackendChoice::kIoUring;
  VolumeSettings disk = {.name = "disk"};
  disk.file = "/disk";
  disk.queue.buffer_bytes = 33 * kMiB;
  blockd.settings().volumes.push_back(disk);
  const AppliancePlan made = plan();
  const SegmentPlan* volume = find(made, "volume:disk");
  CHECK(volume != nullptr);
  LONGS_EQUAL(2, volume->carves.size());
  CHECK_EQUAL(33 * kMiB, volume->carves[0].bytes);
  STRCMP_EQUAL("requests:disk", volume->carves[1].owner.text);
  CHECK_EQUAL(StoreQueue::bytes_for(disk.queue), volume->carves[1].bytes);
  LONGS_EQUAL(3, made.stacks.count);
  blockd.settings().volumes.back().file = "";
  blockd.settings().volumes.back().device = "/dev/disk";  // all of a device counts as data
  LONGS_EQUAL(2, plan().stacks.count);
}

// Volumes of a drive share a queue pair if they are on the same shard. On two shards, each has its
// own.
TEST(AppliancePlan, ADriveHasAQueuePairForEachShard) {
  const auto on_drive = [this](const char* name, uint32_t space) {
    VolumeSettings disk = {.name = name};
    disk.nvme = {.address = "0000:01:00.0", .space = space, .queue_depth = 31};
    disk.queue.buffer_bytes = 33 * kMiB;
    blockd.settings().volumes.push_back(disk);
  };
  configuration.pool.bytes += 128 * kMiB;
  on_drive("disk", 1);
  on_drive("other", 2);
  const AppliancePlan made = plan();
  CHECK(find(made, "volume:disk") != nullptr && find(made, "volume:other") != nullptr);
  const SegmentPlan* drives = find(made, "nvme:shard-1");
  CHECK(drives != nullptr);
  const uint64_t queue_bytes = NvmeQueuePair::bytes_for(32);
  LONGS_EQUAL(2, drives->carves.size());
  STRCMP_EQUAL("nvme:0000:01:00.0", drives->carves[0].owner.text);
  CHECK_EQUAL(NvmeController::bytes_for(), drives->carves[0].bytes);
  STRCMP_EQUAL("nvme-queue:0000:01:00.0/1", drives->carves[1].owner.text);
  CHECK_EQUAL(queue_bytes, drives->carves[1].bytes);
  LONGS_EQUAL(1, made.vfio_devices().size());
  // The counters of the queue measure both volumes.
  const std::vector<CounterSet> sets = made.counters();
  const auto is_queue = [](const CounterSet& set) { return set.name == "nvme_queues"; };
  const auto queue = std::find_if(sets.begin(), sets.end(), is_queue);
  CHECK(queue != sets.end());
  STRCMP_EQUAL("0000:01:00.0/1", queue->instance.c_str());
  CHECK((queue->measured == std::vector<std::string>{"disk", "other"}));

  blockd.settings().volumes.back().shard = 0;
  const AppliancePlan apart = plan();
  LONGS_EQUAL(2, find(apart, "nvme:shard-1")->carves.size());
  const SegmentPlan* others = find(apart, "nvme:shard-0");
  CHECK(others != nullptr);
  LONGS_EQUAL(1, others->carves.size());
  STRCMP_EQUAL("nvme-queue:0000:01:00.0/2", others->carves[0].owner.text);
  CHECK_EQUAL(queue_bytes, others->carves[0].bytes);
  LONGS_EQUAL(1, apart.vfio_devices().size());
}

TEST(AppliancePlan, VolumesOfADriveDriveItInOneWay) {
  VolumeSettings disk = {.name = "disk"};
  disk.nvme.address = "0000:01:00.0";
  disk.queue.buffer_bytes = 33 * kMiB;
  blockd.settings().volumes = {disk, disk};
  blockd.settings().volumes[1].name = "other";
  Result<AppliancePlan> same = plan_appliance(configuration);
  CHECK(!same.ok() && same.error().kind == ErrorKind::kConfiguration);
  STRCMP_EQUAL("volume disk uses the same namespace", same.error().answer);
  blockd.settings().volumes[1].nvme.space = 2;
  CHECK(plan_appliance(configuration).ok());
  blockd.settings().volumes[1].nvme.timeout_ms = 1;
  Result<AppliancePlan> other = plan_appliance(configuration);
  CHECK(!other.ok());
  STRCMP_EQUAL("volume disk has other settings for it", other.error().answer);
}

// A bootable image gets the kernel module and the keyring. A maker makes the device before it is
// opened.
TEST(AppliancePlan, AnImageOfAClusterIsMappedByTheKernel) {
  VolumeSettings disk = {.name = "disk", .rbd = "rbd/disk"};
  disk.queue.buffer_bytes = 33 * kMiB;
  blockd.settings().volumes.push_back(disk);
  blockd.settings().ceph.keyring = "/etc/ceph/keyring";
  const AppliancePlan made = plan();
  CHECK(find(made, "volume:disk") != nullptr);
  const ServiceNeeds& needs = made.services[0];
  LONGS_EQUAL(1, needs.modules.size());
  STRCMP_EQUAL("rbd", needs.modules[0].c_str());
  LONGS_EQUAL(1, needs.image_files.size());
  STRCMP_EQUAL("/etc/ceph/keyring", needs.image_files[0].c_str());
  LONGS_EQUAL(1, needs.files.size());
  CHECK(needs.files[0].plan.maker != nullptr && !needs.files[0].plan.tells_extents);
  STRCMP_EQUAL("/dev/rbd/rbd/disk", needs.files[0].plan.path.c_str());
}

TEST(AppliancePlan, AnImageOfAClusterHasOneWriterOrReaders) {
  VolumeSettings disk = {.name = "disk", .read_only = true, .rbd = "rbd/disk"};
  disk.queue.buffer_bytes = 33 * kMiB;
  VolumeSettings other = disk;
  other.name = "other";
  other.rbd_timeout_s = 60;  // the default of [blockd.ceph]
  blockd.settings().volumes = {disk, other};
  const AppliancePlan readers = plan();
  const std::vector<FileNeed>& files = readers.services[0].files;
  LONGS_EQUAL(2, files.size());
  POINTERS_EQUAL(files[0].plan.maker, files[1].plan.maker);  // one mapping
  LONGS_EQUAL(60, static_cast<RbdMaker*>(files[0].plan.maker)->timeout_s());
  other.rbd_timeout_s = 61;
  blockd.settings().volumes = {disk, other};
  STRCMP_EQUAL("blockd: putting volume other on the Ceph image rbd/disk: volume disk has "
               "another timeout for it; set the same rbd_timeout_s",
               refusal().c_str());
  other.rbd_timeout_s.reset();
  for (const bool is_first : {true, false}) {
    disk.read_only = !is_first;
    other.read_only = is_first;
    blockd.settings().volumes = {disk, other};
    STRCMP_EQUAL("blockd: putting volume other on the Ceph image rbd/disk: volume disk uses "
                 "it, too, and one of them writes to it; name another image, or set read_only = "
                 "true for each",
                 refusal().c_str());
  }
  other.rbd = "rbd/other";
  other.rbd_timeout_s = 7;
  blockd.settings().volumes = {disk, other};
  const AppliancePlan apart = plan();
  const FilePlan& second = apart.services[0].files[1].plan;
  CHECK(apart.services[0].files[0].plan.maker != second.maker);
  LONGS_EQUAL(7, static_cast<RbdMaker*>(second.maker)->timeout_s());
}

TEST(AppliancePlan, TheHeapIsWhatTheServicesLeave) {
  const uint64_t before = find(plan(), "heap")->bytes;
  blockd.settings().volumes[1].bytes += 2 * kMiB;
  CHECK_EQUAL(before - 2 * kMiB, find(plan(), "heap")->bytes);
}

TEST(AppliancePlan, WithoutBlockdThereIsNoSegmentOfIt) {
  configuration.services.clear();
  const AppliancePlan made = plan();
  LONGS_EQUAL(2, made.pool.segments.size());
  CHECK_EQUAL(configuration.pool.bytes - boot_segment_bytes(), find(made, "heap")->bytes);
}

TEST(AppliancePlan, StacksAreOneForEachShard) {
  const AppliancePlan made = plan();
  LONGS_EQUAL(2, made.stacks.count);
  CHECK_EQUAL(kThreadStackBytes, made.stacks.bytes_each);
  CHECK_EQUAL(2 * kThreadStackBytes, made.stacks.total_bytes());
}

TEST(AppliancePlan, HandsTheConfigurationOfBlockdOnAsItIs) {
  blockd.settings().handshake_timeout_ms = 1234;
  blockd.settings().client_timeout_s = 7;
  ServicePlan asked(configuration, blockd);
  const BlockServerOptions options = blockd.options(asked);
  LONGS_EQUAL(2, options.volumes.size());
  STRCMP_EQUAL("ram1", options.volumes[1].name.c_str());
  CHECK_EQUAL(4 * kMiB, options.volumes[1].bytes);
  CHECK(options.volumes[1].read_only);
  CHECK(!options.volumes[0].read_only);
  LONGS_EQUAL(4, options.max_connections);
  LONGS_EQUAL(8, options.requests_per_connection);
  CHECK_EQUAL(1234 * kNsPerMs, options.handshake_timeout_ns);
  CHECK_EQUAL(7 * kNsPerSecond, options.client_timeout_ns);
}

TEST(AppliancePlan, ASegmentLiesOnTheNodeOfTheShardThatUsesIt) {
  blockd.settings().volumes_shards = {1};
  const AppliancePlan made = plan();
  LONGS_EQUAL(kAnyNode, find(made, "boot")->node);
  LONGS_EQUAL(node_of_cpu(0), find(made, "heap")->node);
  LONGS_EQUAL(node_of_cpu(0), find(made, "blockd")->node);
  LONGS_EQUAL(node_of_cpu(1), find(made, "volume:ram0")->node);
}

TEST(AppliancePlan, VolumesSpreadOverTheirShards) {
  blockd.settings().volumes_shards = {0, 1};
  ServicePlan asked(configuration, blockd);
  CHECK(blockd.volume_shards(asked) == std::vector<uint32_t>({0, 1}));
  blockd.settings().volumes[0].shard = 1;
  CHECK(blockd.volume_shards(asked) == std::vector<uint32_t>({1, 0}));
  blockd.settings().volumes[1].shard = 1;
  CHECK(blockd.volume_shards(asked) == std::vector<uint32_t>({1, 1}));
  LONGS_EQUAL(0, blockd.options(asked).volumes[1].shard);  // an index: only one shard has volumes
}

TEST(AppliancePlan, AVolumeWithANodeLivesOnAShardThatIsThere) {
  blockd.settings().volumes_shards = {0, 1};
  blockd.settings().volumes[0].node = node_of_cpu(1);
  ServicePlan asked(configuration, blockd);
  LONGS_EQUAL(node_of_cpu(0) == node_of_cpu(1) ? 0 : 1, blockd.volume_shards(asked)[0]);
}

TEST(AppliancePlan, ASegmentHasThePagesAndTheNodeOfItsOwnKeys) {
  configuration.pool.bytes = 4 * kGiB;
  configuration.pool.heap_pages = PageWish::k1GiB;
  configuration.pool.heap_node = 5;
  blockd.settings().volumes[0].pages = PageWish::k4KiB;
  blockd.settings().volumes[1].node = 6;
  const AppliancePlan made = plan();
  CHECK(find(made, "heap")->page == PageSize::k1GiB);
  LONGS_EQUAL(5, find(made, "heap")->node);
  CHECK(find(made, "blockd")->page == PageSize::k2MiB);
  CHECK(find(made, "volume:ram0")->page == PageSize::k4KiB);
  CHECK(find(made, "volume:ram1")->page == PageSize::k2MiB);
  LONGS_EQUAL(6, find(made, "volume:ram1")->node);
}

// The page size depends on the machine, but it is a hugepage for all segments but `boot`.
TEST(AppliancePlan, LargestIsAHugepage) {
  configuration.pool.pages = PageWish::kLargest;
  for (const SegmentPlan& segment : plan().pool.segments) {
    CHECK_EQUAL(segment.owner == OwnerName("boot"), !is_huge(segment.page));
  }
}

TEST(AppliancePlan, MoreConnectionsAndRequestsTakeMore) {
  configuration.pool.pages = PageWish::k4KiB;
  const uint64_t few = find(plan(), "blockd")->bytes;
  blockd.settings().max_connections = 8;
  const uint64_t more = find(plan(), "blockd")->bytes;
  blockd.settings().requests_per_connection = 16;
  CHECK(few < more);
  CHECK(more < find(plan(), "blockd")->bytes);
}

TEST(AppliancePlan, APoolTooSmallNamesTheOwnerHowMuchIsMissingAndTheCure) {
  configuration.pool.bytes = boot_segment_bytes() + 34 * kMiB;
  const Result<AppliancePlan> made = plan_appliance(configuration);
  CHECK(!made.ok());
  CHECK(made.error().kind == ErrorKind::kConfiguration);
  CHECK(std::strncmp("volume:ram0 needs 67108864 bytes, ", made.error().answer, 34) == 0);
  CHECK(std::strstr(made.error().cure, "set [pool] bytes to \"") != nullptr);
}

// The cure is exact: with it the plan fits, with a page less it does not.
TEST(AppliancePlan, TheSizeThatTheCureNamesWillDo) {
  configuration.pool.bytes = boot_segment_bytes() + 34 * kMiB;
  const Result<AppliancePlan> made = plan_appliance(configuration);
  CHECK(!made.ok());
  const std::string cure = made.error().cure;
  const size_t begin = cure.find('"') + 1;
  const auto bytes = parse_bytes(cure.substr(begin, cure.find('"', begin) - begin));
  CHECK(bytes.has_value());
  configuration.pool.bytes = *bytes;
  CHECK(plan_appliance(configuration).ok());
  configuration.pool.bytes -= 2 * kMiB;
  CHECK(!plan_appliance(configuration).ok());
}

TEST(AppliancePlan, APartOfTheHeapIsTheRuntimesReserve) {
  const AppliancePlan made = plan();
  const SegmentPlan* heap = find(made, "heap");
  LONGS_EQUAL(2, heap->carves.size());
  STRCMP_EQUAL("heap:reserve", heap->carves[0].owner.text);
  CHECK_EQUAL(kHeapReserveBytes, heap->carves[0].bytes);
  STRCMP_EQUAL("heap", heap->carves[1].owner.text);
  CHECK_EQUAL(heap->bytes, heap->carves[0].bytes + heap->carves[1].bytes);
}

TEST(AppliancePlan, APartOfTheHeapIsKeptForTheOwnerThatHasPlannedIt) {
  blockd.settings().volumes.clear();
  ServicePlan plan(configuration, blockd);
  plan.kept_heap("heap:cache", kMiB, 3);
  const ServiceNeeds needs = plan.take().take();
  LONGS_EQUAL(1, needs.kept_heaps.size());
  STRCMP_EQUAL("heap:cache", needs.kept_heaps[0].owner.text);
  // One granule for each thread.
  CHECK_EQUAL(3 * kHeapGranularityBytes, needs.kept_heaps[0].bytes);
}

// The heap's segment has an odd number of pages.
TEST_GROUP_BASE(PlanOfKeptHeaps, service_rig::ServiceBodies){};

TEST(PlanOfKeptHeaps, EachPartBeginsAtAMultipleOfTheGranularity) {
  configuration.pool.bytes += 8 * kKiB;
  cache.to_plan = [](ServicePlan& asked) {
    asked.kept_heap("heap:cache", kMiB, 1);
    asked.kept_heap("heap:other", kMiB, 1);
    return Result<void>{};
  };
  const AppliancePlan made = plan_appliance(configuration).take();
  const SegmentPlan& heap = made.pool.segments[1];
  LONGS_EQUAL(4, heap.carves.size());
  CHECK(heap.bytes % kHeapGranularityBytes != 0);
  uint64_t begin_bytes = 0;
  for (const CarvePlan& carve : heap.carves) {
    CHECK_EQUAL(0, begin_bytes % kHeapGranularityBytes);
    begin_bytes += carve.bytes;
  }
  CHECK_EQUAL(heap.bytes, begin_bytes);
}

TEST(AppliancePlan, TheHeapIsNeverLessThanItsMinimumNorThanTwoOfItsUnits) {
  configuration.pool.heap_min_bytes = 0;
  configuration.pool.bytes = boot_segment_bytes() + 78 * kMiB;
  blockd.settings().volumes = {{"ram0", 60 * kMiB, false}};
  CHECK(find(plan(), "heap")->bytes >= kHeapReserveBytes + 2 * kHeapGranularityBytes);
  blockd.settings().volumes[0].bytes = 64 * kMiB;
  CHECK(!plan_appliance(configuration).ok());
  blockd.settings().volumes[0].bytes = 40 * kMiB;
  configuration.pool.heap_min_bytes = 40 * kMiB;
  const Result<AppliancePlan> made = plan_appliance(configuration);
  CHECK(!made.ok());
  CHECK(std::strncmp("heap needs ", made.error().answer, 11) == 0);
}

TEST(AppliancePlan, TheHeapHasAUnitForTheThreadOfEachShard) {
  configuration.services.clear();
  configuration.pool.heap_min_bytes = 0;
  configuration.shards.clear();
  for (int i = 0; i < 64; ++i) configuration.shards.push_back({"s" + std::to_string(i), i});
  configuration.pool.bytes = boot_segment_bytes() + kHeapReserveBytes + 64 * kHeapGranularityBytes;
  STRCMP_EQUAL("", refusal().c_str());
  configuration.pool.bytes -= 2 * kMiB;
  STRCMP_CONTAINS("heap needs 276824064 bytes", refusal().c_str());
}
