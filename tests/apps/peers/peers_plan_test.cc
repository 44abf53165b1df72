// The plan of [verbs]: its segments to the byte, and the regions and locked bytes of each context.
#include "apps/peers/peers_plan.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "apps/boot/appliance_plan.h"
#include "pinned_pool/boot_segment.h"
#include "tests/apps/configuration/configuration_support.h"
#include "transport/verbs/channel/datagram_queue_datapath.h"
#include "transport/verbs/channel/verbs_provider.h"
#include "transport/verbs/connect/link_connector.h"

using namespace bedplate;

namespace {

constexpr const char* kVerbsLines = R"([verbs]
listen = "tcp:10.0.0.1:7471"
[[verbs.peer]]
name = "b"
[[verbs.peer]]
name = "c"
[[verbs.export]]
name = "area"
bytes = "1 MiB"
rights = ["read"]
)";

// In tests, segment 0 alone has 256 MiB, so the pool must be larger.
std::string with_pool(std::string text, const char* bytes = "\"512 MiB\"") {
  return text.replace(text.find("\"256 MiB\""), 9, bytes);
}

AppliancePlan planned(const std::string& text) {
  auto plan = plan_appliance(parsed(with_pool(text)));
  CHECK(plan.ok());
  return plan.take();
}

const SegmentPlan& segment(const AppliancePlan& plan, const char* owner) {
  for (const SegmentPlan& each : plan.pool.segments) {
    if (each.owner == OwnerName(owner)) return each;
  }
  FAIL(owner);
  std::abort();
}

std::string plan_refusal(const std::string& text, const char* bytes = "\"512 MiB\"") {
  auto plan = plan_appliance(parsed(with_pool(text, bytes)));
  if (plan.ok()) return "";
  char message[1024];
  return format_error(plan.error(), message, sizeof message);
}

}  // namespace

TEST_GROUP(PeersPlan){};

TEST(PeersPlan, WithoutVerbsThereIsNothing) {
  const AppliancePlan plan = planned(file_with({}));
  CHECK(plan.verbs.empty());
  LONGS_EQUAL(1, plan.stacks.count);
}

TEST(PeersPlan, SegmentsHoldWhatTheProviderTakes) {
  const AppliancePlan plan = planned(file_with({}) + kVerbsLines);
  const VerbsShape shape = {.peer_count_max = 2};
  CHECK_EQUAL(verbs_memory_bytes(shape), segment(plan, "verbs").carves[0].bytes);
  CHECK_EQUAL(kMiB, segment(plan, "export:area").carves[0].bytes);
  CHECK_EQUAL(2 * kMiB, segment(plan, "export:area").bytes);
  LONGS_EQUAL(2, plan.stacks.count);  // a shard, and the connector
}

TEST(PeersPlan, TheConnectorTakesAThreadAndSockets) {
  const PeersNeeds needs = plan_peers(parsed(file_with({}) + kVerbsLines));
  LONGS_EQUAL(1, needs.threads);
  CHECK_EQUAL(LinkConnector::socket_count_max(2), needs.descriptors);
}

// The defaults of the file are those of the provider.
TEST(PeersPlan, ShapeIsThatOfTheFile) {
  const VerbsShape made = verbs_shape(verbs_settings(parsed(file_with({}) + kVerbsLines)));
  const VerbsShape usual;
  LONGS_EQUAL(2, made.peer_count_max);
  LONGS_EQUAL(usual.window, made.window);
  LONGS_EQUAL(usual.message_bytes, made.message_bytes);
  LONGS_EQUAL(usual.operation_count_max, made.operation_count_max);
  CHECK_EQUAL(usual.bounce_bytes, made.bounce_bytes);
}

TEST(PeersPlan, DatagramsHaveMemoryAndAQueuePair) {
  std::string text = file_with({}) + kVerbsLines;
  const auto without = parsed(with_pool(text));
  text.insert(text.find("[verbs]") + 8, "datagrams = 256\n");
  const auto with = parsed(with_pool(text));
  const VerbsShape shape = verbs_shape(verbs_settings(with));
  LONGS_EQUAL(256, shape.datagram_count);
  CHECK(verbs_memory_bytes(shape) == verbs_memory_bytes(verbs_shape(verbs_settings(without))) +
                                         DatagramQueue::memory_bytes(256));
  CHECK_EQUAL(verbs_memory_bytes(shape), segment(planned(text), "verbs").carves[0].bytes);
  const auto queue_pairs = [](const Configuration& configuration) {
    return plan_verbs_demands(verbs_settings(configuration), {}, {}, false)[0].needed;
  };
  LONGS_EQUAL(2, queue_pairs(without));
  LONGS_EQUAL(3, queue_pairs(with));
}

TEST(PeersPlan, AnExportHasPagesOfItsOwn) {
  const AppliancePlan plan = planned(file_with({}) + kVerbsLines + "pages = \"4 KiB\"\n");
  CHECK(segment(plan, "export:area").page == PageSize::k4KiB);
  CHECK_EQUAL(kMiB, segment(plan, "export:area").bytes);
}

TEST(PeersPlan, OpenedMemoryIsLockedOnceMore) {
  const AppliancePlan plan = planned(file_with({}) + kVerbsLines);
  LONGS_EQUAL(1, plan.verbs.size());
  const VerbsContextPlan& own = plan.verbs[0];
  STRCMP_EQUAL("demo", own.process.c_str());
  // The export, and the memory that the provider opens to peers.
  LONGS_EQUAL(plan.pool.segments.size() + 1 + VerbsProvider::kExportCount, own.region_count);
  CHECK_EQUAL(plan.pool.total_bytes() + verbs_shared_bytes({}) + kMiB, own.locked_bytes);

  std::string text = file_with({}) + kVerbsLines;
  text.insert(text.find("[verbs]") + 8, "remote = \"read\"\n");
  const VerbsContextPlan open = planned(text).verbs[0];
  LONGS_EQUAL(own.region_count + 2, open.region_count);
  CHECK_EQUAL(own.locked_bytes + boot_segment_bytes() + segment(plan, "heap").bytes,
              open.locked_bytes);
}

// A process registers its segment 0, its heap, its FIFOs and the segments that it may write, but no
// segment that it only reads.
TEST(PeersPlan, ProcessesRegisterWhatTheyMayWrite) {
  const std::string process = R"(verbs = true
max_count = 3
heap_bytes = "8 MiB"
read = ["volume:ram0"]
write = ["export:area"]
)";
  std::string text = file_with_messages(process) + kVerbsLines;
  text.replace(text.find("members = 2"), 11, "members = 4");
  const AppliancePlan plan = planned(text);
  LONGS_EQUAL(2, plan.verbs.size());
  const VerbsContextPlan& worker = plan.verbs[1];
  STRCMP_EQUAL("worker", worker.process.c_str());
  LONGS_EQUAL(3, worker.count);
  LONGS_EQUAL(4, worker.region_count);
  CHECK_EQUAL(boot_segment_bytes() + 8 * kMiB + segment(plan, "fifo:main").bytes +
                  segment(plan, "export:area").bytes,
              worker.locked_bytes);
  CHECK_EQUAL(3 * worker.locked_bytes, worker.total_bytes());
}

// An outsider could take its pages away from under other devices, so only it registers them.
TEST(PeersPlan, WhatOutsidersWriteIsRegisteredByThemselvesAlone) {
  std::string text = file_with_messages("verbs = true\nheap_bytes = \"8 MiB\"\n") + kVerbsLines;
  const AppliancePlan trusting = planned(text);
  LONGS_EQUAL(3, trusting.verbs[1].region_count);
  text.replace(text.find("\"root\""), 6, "\"4294967294\"");
  const AppliancePlan plan = planned(text);
  LONGS_EQUAL(2, plan.verbs[1].region_count);
  CHECK_EQUAL(boot_segment_bytes() + 8 * kMiB, plan.verbs[1].locked_bytes);
  LONGS_EQUAL(trusting.verbs[0].region_count - 2, plan.verbs[0].region_count);
  text.replace(text.find("verbs = true"), 12, "write = [\"export:area\"]");
  STRCMP_CONTAINS("granting export:area to the process worker: it runs as another user, and could "
                  "remove pages that peers access through the RDMA device; name it in read",
                  plan_refusal(text).c_str());
}

// The demands on a device are the regions of all processes that use it, and the appliance's queues.
// Other devices do not count.
TEST(PeersPlan, DemandsAreThoseOfOneDevice) {
  std::string text = file_with_messages("verbs = true\nmax_count = 3\n") + kVerbsLines;
  text.replace(text.find("members = 2"), 11, "members = 4");
  const AppliancePlan plan = planned(text);
  const VerbsSettings settings = verbs_settings(parsed(with_pool(text)));
  ibv_device_attr limits = {};
  limits.max_mr = 20;
  limits.max_pd = 3;
  limits.max_qp = 1;
  const auto demand = [&](const std::string& what) {
    for (const VerbsDemand& one : plan_verbs_demands(settings, plan.verbs, limits, false)) {
      if (what == one.what) return one;
    }
    FAIL(what.c_str());
    std::abort();
  };
  const VerbsDemand regions = demand("regions, including those of processes that join,");
  LONGS_EQUAL(plan.verbs[0].region_count + 3 * plan.verbs[1].region_count, regions.needed);
  LONGS_EQUAL(20, regions.limit);
  const VerbsDemand domains = demand("protection domains, including those of processes that join,");
  LONGS_EQUAL(4, domains.needed);
  LONGS_EQUAL(3, domains.limit);
  LONGS_EQUAL(2, demand("queue pairs").needed);
  LONGS_EQUAL(1, demand("queue pairs").limit);
}

TEST(PeersPlan, NobodyElseWritesTheProvidersMemory) {
  STRCMP_CONTAINS("granting verbs to the process worker: only its owner may write it; name it in "
                  "read",
                  plan_refusal(file_with_messages("write = [\"verbs\"]\n") + kVerbsLines).c_str());
}

TEST(PeersPlan, ASmallPoolIsRefusedWithItsOwner) {
  std::string text = file_with({}) + kVerbsLines;
  text.replace(text.find("\"1 MiB\""), 7, "\"64 MiB\"");
  const uint64_t mib = boot_segment_bytes() / kMiB + 114;  // sanitizers have another segment 0
  const std::string pool = "\"" + std::to_string(mib) + " MiB\"";
  STRCMP_CONTAINS("export:area needs 67108864 bytes", plan_refusal(text, pool.c_str()).c_str());
}
