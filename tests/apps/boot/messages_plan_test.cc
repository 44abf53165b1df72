// The plan of groups and processes: all their segments, and the errors for settings that do not fit
// together.
#include "apps/boot/messages_plan.h"

#include <cstring>
#include <string>

#include <unistd.h>

#include "apps/boot/appliance_plan.h"
#include "apps/blockd/block_service.h"
#include "pinned_pool/boot_segment.h"
#include "pinned_pool/layout.h"
#include "pinned_pool/join/membership.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(MessagesPlan) {
  BlockService blockd;
  Configuration configuration;

  void setup() override {
    configuration.appliance.name = "demo";
    configuration.pool.bytes = boot_segment_bytes() + 512 * kMiB;
    configuration.pool.pages = PageWish::k2MiB;
    configuration.shards = {{"main", 0}};
    GroupShape lazy;
    lazy.member_count = 16;
    lazy.box_count = default_box_count(16);
    GroupShape mesh;
    mesh.kind = GroupKind::kMesh;
    mesh.member_count = 8;
    configuration.groups = {{"slow", lazy}, {"quick", mesh}};
    ProcessSettings worker;
    worker.name = "worker";
    worker.user = std::to_string(geteuid());
    worker.group = 0;
    worker.max_count = 3;
    worker.members = 5;
    worker.heap_bytes = 5 * kMiB;
    ProcessSettings probe;
    probe.name = "probe";
    probe.user = "0";
    probe.trusted = false;
    probe.max_count = 2;
    probe.heap_bytes = 4 * kMiB;
    configuration.processes = {worker, probe};
  }

  AppliancePlan plan() {
    Result<AppliancePlan> made = plan_appliance(configuration);
    STRCMP_EQUAL("", made.ok() ? "" : made.error().answer);
    return made.take();
  }
  // Checks that the plan is refused with this error.
  void refused(const std::string& doing, const std::string& answer, const std::string& cure) {
    const Result<AppliancePlan> made = plan_appliance(configuration);
    CHECK(!made.ok());
    CHECK(made.error().kind == ErrorKind::kConfiguration);
    STRCMP_EQUAL(doing.c_str(), made.error().doing);
    STRCMP_EQUAL(answer.c_str(), made.error().answer);
    STRCMP_EQUAL(cure.c_str(), made.error().cure);
  }
};

TEST(MessagesPlan, NamesEverySegmentInTheOrderOfTheFile) {
  std::string owners;
  for (const SegmentPlan& segment : plan().pool.segments) {
    owners += std::string(segment.owner.view()) + ' ';
  }
  STRCMP_EQUAL("boot heap members fifo:slow fifo:quick heap:worker.0 heap:worker.1 heap:worker.2 "
               "heap:probe.0 exchange:probe.0 heap:probe.1 exchange:probe.1 ",
               owners.c_str());
}

// Outsiders can punch holes into memory that they may write, so no device uses it.
TEST(MessagesPlan, WhatOutsidersWriteHasSmallPagesAndIsNoDevices) {
  ProcessSettings other = configuration.processes[0];
  other.name = "other";
  other.group = 1;
  other.members = 1;
  other.write = {"blockd"};
  configuration.processes.push_back(other);
  configuration.services = {&blockd};
  blockd.settings().volumes = {{"ram0", 4 * kMiB, false}};
  // `probe` is not trusted, so it is an outsider under any user.
  const std::string strangers = " heap:probe.0 exchange:probe.0 heap:probe.1 exchange:probe.1";
  const std::string others = " fifo:quick heap:other.0 heap:other.1 heap:other.2";
  const struct {
    const char* user;
    std::string outside;
  } kCases[] = {{"0", strangers},
                {other.user.c_str(), strangers},
                {"4294967294", " blockd" + others + strangers},
                {"no-such-user", " blockd" + others + strangers}};
  for (const auto& each : kCases) {
    configuration.processes[2].user = each.user;
    const AppliancePlan made = plan();
    for (const SegmentPlan& segment : made.pool.segments) {
      const bool is_outside =
          (each.outside + " ").find(" " + std::string(segment.owner.view()) + " ") !=
          std::string::npos;
      CHECK_TEXT(segment.is_for_devices == !is_outside, segment.owner.text);
      const bool is_small =
          is_outside || segment.owner == OwnerName("boot") || segment.owner == OwnerName("members");
      CHECK_TEXT(segment.page == (is_small ? PageSize::k4KiB : PageSize::k2MiB),
                 segment.owner.text);
      const bool is_heap = segment.owner.view().starts_with("heap:other");
      if (is_outside && is_heap) CHECK_EQUAL(5 * kMiB, segment.bytes);  // whole pages of 4 KiB
    }
  }
}

TEST(MessagesPlan, HugepagesThatOutsidersWriteAreRefused) {
  configuration.services = {&blockd};
  blockd.settings().volumes = {{"ram0", 4 * kMiB, false}};
  blockd.settings().volumes[0].pages = PageWish::k2MiB;
  configuration.processes[0].write = {"volume:ram0"};
  CHECK(plan_appliance(configuration).ok());
  configuration.processes[0].user = "4294967294";
  const std::string doing = "granting volume:ram0 to the process worker";
  const std::string cure = "set its pages to \"4 KiB\", or leave pages out, or name it in read";
  refused(doing, "it runs as another user, and could remove hugepages that the appliance uses",
          cure);
  blockd.settings().volumes[0].pages = PageWish::k4KiB;
  CHECK(plan_appliance(configuration).ok());
  blockd.settings().volumes[0].pages = PageWish::kLargest;
  configuration.processes[0].write = {};
  configuration.processes[1].write = {"volume:ram0"};
  refused("granting volume:ram0 to the process probe",
          "it is not trusted, and could remove hugepages that the appliance uses", cure);
  blockd.settings().volumes[0].pages = {};
  CHECK(plan_appliance(configuration).ok());
}

TEST(MessagesPlan, AGroupTakesWhatItsLayoutSays) {
  const AppliancePlan made = plan();
  LONGS_EQUAL(4, made.groups.size());
  size_t found = 0;
  for (const SegmentPlan& segment : made.pool.segments) {
    if (found == made.groups.size() || !(segment.owner == made.groups[found].segment)) continue;
    const GroupShape& shape = made.groups[found].shape;
    const bool is_exchange = shape.kind == GroupKind::kExchange;
    CHECK(is_exchange || shape == configuration.groups[found].shape);
    LONGS_EQUAL(1, segment.carves.size());
    CHECK_EQUAL(GroupLayout(shape).bytes(), segment.carves[0].bytes);
    CHECK(segment.page == (is_exchange ? PageSize::k4KiB : PageSize::k2MiB));
    CHECK_EQUAL(align_up(GroupLayout(shape).bytes(), page_bytes(segment.page)), segment.bytes);
    ++found;
  }
  LONGS_EQUAL(made.groups.size(), found);
}

TEST(MessagesPlan, EachGroupHasItsMembersTable) {
  const SegmentPlan members = plan().pool.segments[2];
  CHECK(members.page == PageSize::k4KiB);
  const char* owners[] = {"members:slow", "members:quick", "members:probe.0", "members:probe.1"};
  const uint32_t counts[] = {16, 8, 2, 2};
  LONGS_EQUAL(std::size(owners), members.carves.size());
  for (size_t i = 0; i < std::size(owners); ++i) {
    STRCMP_EQUAL(owners[i], members.carves[i].owner.text);
    CHECK_EQUAL(MembersTable::bytes_for(counts[i]), members.carves[i].bytes);
  }
}

TEST(MessagesPlan, AHeapHasTheConfiguredBytesInWholePages) {
  const SegmentPlan heap = plan().pool.segments[5];
  CHECK_EQUAL(6 * kMiB, heap.bytes);
  CHECK_EQUAL(5 * kMiB, heap.carves[0].bytes);
  CHECK(heap.page == PageSize::k2MiB);
}

TEST(MessagesPlan, TheBoxOfAnExchangeIsConfigured) {
  configuration.processes[1].box_bytes = 65536;
  const GroupLayout layout(plan().groups[2].shape);
  CHECK_EQUAL(2 * 65536, layout.part_bytes(GroupPart::kQueues));
  CHECK(check_group_shape(layout.shape()).ok());
}

TEST(MessagesPlan, WithoutGroupsAndProcessesThereIsNothing) {
  configuration.groups.clear();
  configuration.processes.clear();
  LONGS_EQUAL(2, plan().pool.segments.size());
}

TEST(MessagesPlan, AGroupHasPlacesForTheOwnerAndAllProcesses) {
  configuration.groups[0].shape.member_count = 15;  // 3 * 5 members and the owner need 16
  refused("planning the group slow",
          "its processes and the owner need 16 members, but it has slots for 15",
          "set members in [[group]] to 16 or more, or lower max_count or members in [[process]]");
}

TEST(MessagesPlan, SparePlacesHaveHeapsAndCountForNobodyElse) {
  configuration.processes[0].spare_count = 2;
  configuration.groups[0].spare_count = 10;
  configuration.groups[0].shape.member_count += 10;
  std::string heaps;
  for (const SegmentPlan& segment : plan().pool.segments) {
    if (segment.owner.view().starts_with("heap:worker")) heaps += segment.owner.text + 11;
  }
  STRCMP_EQUAL(".0.1.2.3.4", heaps.c_str());
  configuration.groups[0].shape.member_count -= 1;
  refused("planning the group slow",
          "its processes and the owner need 16 members, but it has slots for 15",
          "set members in [[group]] to 16 or more, or lower max_count or members in [[process]]");
  configuration.groups[0].shape.member_count = kMemberCountMax + 1;
  refused("planning the group slow",
          "it has 2038 members and 10 spare slots for its processes, but a group has at most 2047 "
          "in all",
          "lower members in [[group]], or spare_count in [[process]]");
}

TEST(MessagesPlan, GrantsNameSegments) {
  configuration.processes[1].read = {"heap", "heap:worker", "heap:worker.2", "members"};
  CHECK(plan_appliance(configuration).ok());
  configuration.processes[1].read = {"heap:worker.3"};
  refused("granting heap:worker.3 to the process probe", "this configuration has no such segment",
          "read in [[process]] may name: heap, members, fifo:slow, fifo:quick, "
          "heap:worker.0, heap:worker.1, heap:worker.2, heap:probe.0, exchange:probe.0, "
          "heap:probe.1, exchange:probe.1");
}

TEST(MessagesPlan, OnlySegmentsOfServicesAreWrittenByOthers) {
  configuration.services = {&blockd};
  blockd.settings().volumes = {{"a.b", 4 * kMiB, false}};
  configuration.processes[0].write = {"blockd", "volume:a.b"};
  CHECK(plan_appliance(configuration).ok());
  for (const char* owner : {"heap", "members", "fifo:quick", "heap:probe", "exchange:probe.0"}) {
    configuration.processes[0].write = {owner};
    refused(std::string("granting ") + owner + " to the process worker",
            "only its owner may write it", "name it in read");
  }
  configuration.processes[0].write = {"volume:a"};
  refused("granting volume:a to the process worker", "this configuration has no such segment",
          "write in [[process]] may name: blockd, volume:a.b");
}

TEST(MessagesPlan, SaysWhoTakesTooManySegments) {
  configuration.processes[1].max_count = (kSegmentCountMax - 8) / 2;
  LONGS_EQUAL(kSegmentCountMax, plan().pool.segments.size());
  configuration.processes[1].max_count += 1;
  refused("planning the segments of the pool", "there are 130, but a pool has at most 128",
          "lower max_count of the process probe: it uses 122 of them, for heaps and exchange");
}

TEST(MessagesPlan, WhatDoesNotFitIsNamed) {
  configuration.groups[1].shape.member_count = 512;
  configuration.groups[1].shape.entry_count = 1024;
  const Result<AppliancePlan> made = plan_appliance(configuration);
  CHECK(!made.ok());
  CHECK(std::strncmp("fifo:quick needs ", made.error().answer, 17) == 0);
}
