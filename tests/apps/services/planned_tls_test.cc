// TLS as a service plans it: its memory, counters and source, where the service may listen then,
// and its files, which are checked and read.
#include "apps/services/planned_tls.h"

#include <functional>
#include <string>
#include <vector>

#include <unistd.h>

#include "alloc/heap_owner.h"
#include "apps/services/service_plan.h"
#include "apps/services/tls_part.h"
#include "transport/tls/tls_counters.h"
#include "transport/tls/tls_credentials.h"
#include "transport/tls/tls_streams.h"

#include "tests/apps/boot/service_rig.h"
#include "tests/transport/tls/tls_rig.h"

using namespace bedplate;
using namespace bedplate::service_rig;

TEST_GROUP_BASE(PlannedTls, service_rig::ServiceBodies) {
  const TlsFiles files = {.certificate = "/c", .key = "/k", .shared_keys = "/s"};
  const std::vector<SocketAddress> open = {parse_socket_address("tcp:0.0.0.0:1").take()};
  const std::vector<SocketAddress> local = {parse_socket_address("unix:/s").take()};

  ServiceNeeds planned(TestService & service, const std::function<void(ServicePlan&)>& say) {
    ServicePlan plan(configuration, service);
    say(plan);
    return plan.take().take();
  }
};

TEST(PlannedTls, TakesMemoryCountersAndASource) {
  configuration.appliance.user = "storage";
  const ServiceNeeds needs = planned(cache, [this](ServicePlan& asked) {
    asked.segment("cache", {{"index", 128}}, asked.placement(1));
    asked.tls(1, 10, files);
  });
  LONGS_EQUAL(1, needs.segments.size());
  LONGS_EQUAL(2, needs.segments[0].carves.size());
  STRCMP_EQUAL("tls:cache", needs.segments[0].carves[1].owner.text);
  CHECK_EQUAL(TlsStreams::bytes_for(10), needs.segments[0].carves[1].bytes);
  LONGS_EQUAL(0, needs.shards[0].sources);
  LONGS_EQUAL(1, needs.shards[1].sources);
  LONGS_EQUAL(1, needs.kept_heaps.size());
  STRCMP_EQUAL("heap:tls-cache", needs.kept_heaps[0].owner.text);
  CHECK(needs.kept_heaps[0].bytes >= TlsCredentials::heap_bytes(10));
  LONGS_EQUAL(1, needs.counters.size());
  STRCMP_EQUAL("tls", needs.counters[0].name.c_str());
  CHECK_EQUAL(sizeof(TlsCounters), needs.counters[0].bytes);
  CHECK(needs.image_files == (std::vector<std::string>{"/c", "/k", "/s"}));
  STRCMP_EQUAL("storage", needs.tls->files.user.c_str());
  CHECK_EQUAL(TlsCredentials::heap_bytes(10), needs.tls->heap_bytes());
}

TEST(PlannedTls, HasASegmentOfItsOwnIfThereIsNoneNearby) {
  const ServiceNeeds needs = planned(cache, [this](ServicePlan& asked) {
    asked.segment("cache", {{"index", 128}}, {PageWish::k1GiB, asked.placement(0).node});
    asked.segment("more", {{"private", 128}}, asked.placement(0), false);
    asked.tls(0, 1, files);
  });
  LONGS_EQUAL(3, needs.segments.size());
  STRCMP_EQUAL("tls:cache", needs.segments[2].owner.text);
  CHECK(needs.segments[2].is_for_devices);
}

TEST(PlannedTls, OfSeveralShardsHasPartsOfSeveralNames) {
  const ServiceNeeds needs = planned(cache, [this](ServicePlan& asked) {
    asked.tls(1, 1, files);
    asked.tls(0, 2, files, {.counters = "main", .handshake_ns_max = kNsPerSecond});
  });
  STRCMP_EQUAL("tls:cache", needs.tls->shards[0].streams.text);
  STRCMP_EQUAL("tls-0:cache", needs.tls->shards[1].streams.text);
  STRCMP_EQUAL("main", needs.counters[1].instance.c_str());
  CHECK_EQUAL(10 * kNsPerSecond, needs.tls->shards[0].handshake_ns_max);
  CHECK_EQUAL(kNsPerSecond, needs.tls->shards[1].handshake_ns_max);
  CHECK_EQUAL(TlsCredentials::heap_bytes(1) + TlsCredentials::heap_bytes(2),
              needs.tls->heap_bytes());
}

TEST(PlannedTls, WithoutFilesIsNothing) {
  const ServiceNeeds needs = planned(cache, [this](ServicePlan& asked) {
    asked.tls(0, 10, {});
    asked.listen("listen", local);
  });
  CHECK(needs.tls.has_value());
  CHECK(needs.segments.empty() && needs.kept_heaps.empty() && needs.counters.empty());
  LONGS_EQUAL(0, needs.shards[0].sources);
}

TEST(PlannedTls, LetsOthersReachTheService) {
  const auto said = [this](const TlsFiles& with) {
    return std::string(refusal([this, with](ServicePlan& asked) {
      asked.tls(0, 1, with);
      asked.listen("listen", open);
    }));
  };
  STRCMP_EQUAL("", said(files).c_str());
  STRCMP_EQUAL("cache: planning to listen at tcp:0.0.0.0:1: other machines can reach it, and there "
               "is no TLS; set tls_certificate or tls_shared_keys in [cache]; or, in a trusted "
               "network, set plain_text = \"allowed\" in [cache]",
               said({}).c_str());
  configuration.plain_text["cache"] = PlainText::kRefused;
  STRCMP_EQUAL("", said(files).c_str());
  STRCMP_CONTAINS("there is no TLS; set tls_certificate or tls_shared_keys in [cache]",
                  said({}).c_str());
}

TEST(PlannedTls, ALimitMayNameItsHeapOwner) {
  configuration.limits = {{"heap:tls-cache", kMiB}};
  STRCMP_EQUAL("", refusal([this](ServicePlan& asked) { asked.tls(0, 1, files); }));
  STRCMP_CONTAINS("has no such owner", refusal([](ServicePlan& asked) { asked.tls(0, 1, {}); }));
}

TEST(PlannedTls, ADefectOfTheServiceIsNamed) {
  const auto said = [this](const std::function<void(ServicePlan&)>& say) {
    return std::string(refusal(say));
  };
  STRCMP_EQUAL("cache: planning TLS on shard main: it is planned already; this is a defect of the "
               "service",
               said([this](ServicePlan& asked) {
                 asked.tls(0, 1, files);
                 asked.tls(0, 1, files);
               }).c_str());
  STRCMP_CONTAINS("planning TLS on shard main: its listeners were planned before",
                  said([this](ServicePlan& asked) {
                    asked.listen("listen", local);
                    asked.tls(0, 1, files);
                  }).c_str());
  STRCMP_CONTAINS("planning TLS on shard number 9: the configuration has 2",
                  said([this](ServicePlan& asked) { asked.tls(9, 1, files); }).c_str());
  STRCMP_CONTAINS("planning the memory of TLS: the carve tls:cache is planned",
                  said([this](ServicePlan& asked) {
                    asked.segment("cache", {{"tls:cache", 64}}, asked.placement(0));
                    asked.tls(0, 1, files);
                  }).c_str());
}

TEST(PlannedTls, ItsFilesAreCheckedAndRead) {
  const test::TlsFolder folder;
  const TlsFiles good = {.shared_keys = folder.write("keys.psk", test::kSharedKeyLine)};
  const TlsFiles missing = {.shared_keys = folder.path("none.psk")};
  const auto with = [](const TlsFiles& its_files) {
    return [its_files](ServicePlan& asked) {
      asked.tls(0, 3, its_files, {.heap_owner = TlsCredentials::kHeapOwner});
    };
  };
  std::vector<ServiceNeeds> services;
  services.push_back(planned(cache, with(good)));
  services.push_back(planned(relay, with({})));
  std::vector<Error> problems;
  check_planned_tls(services, &problems);
  LONGS_EQUAL(0, problems.size());
  auto loaded = load_planned_tls(services).take();
  LONGS_EQUAL(2, loaded.size());
  CHECK(loaded[0] != nullptr && loaded[1] == nullptr);
  const HeapOwner owner = heap_owner(OwnerName(TlsCredentials::kHeapOwner)).take();
  CHECK_EQUAL(TlsCredentials::heap_bytes(3), heap_owner_use(owner).limit_bytes);
  limit_heap_owner(owner, kNoLimit);

  services.push_back(planned(relay, with(missing)));
  services.push_back(planned(cache, with(missing)));
  check_planned_tls(services, &problems);
  LONGS_EQUAL(2, problems.size());  // all of them, in one report
  char line[1024];
  STRCMP_EQUAL(("reading the shared keys " + missing.shared_keys + " for [relay]").c_str(),
               problems[0].doing);
  STRCMP_CONTAINS("for [cache]", format_error(problems[1], line, sizeof line));
  CHECK(!load_planned_tls(services).ok());
  limit_heap_owner(owner, kNoLimit);
}
