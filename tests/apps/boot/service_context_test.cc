// A service's context hands out the planned objects by their names, and refuses all others.
#include "apps/boot/service_context.h"

#include <string>

#include "apps/testing/test_appliance.h"
#include "tests/apps/boot/service_rig.h"
#include "tests/apps/tsrelay/relay_rig.h"
#include "tests/transport/tls/tls_rig.h"
#include "transport/sockets/datagram_network.h"

using namespace bedplate;
using namespace bedplate::service_rig;

namespace {

struct NoSource final : PollSource {
  uint32_t poll(uint32_t) noexcept override { return 0; }
};

// A network for sockets on any shard. It makes one socket.
struct AnyShard final : DatagramNetwork {
  Result<void> plan_socket(uint32_t, const DatagramShape&) override { return {}; }
  Result<DatagramSocket*> make_socket(uint32_t, const DatagramShape&) override {
    if (made_count == 1) return Error{}.set_answer("it has one").set_cure("ask for fewer");
    ++made_count;
    return &socket;
  }
  relay::FakeSocket socket;
  int made_count = 0;
};

}  // namespace

TEST_GROUP(ServiceContext) {
  AnyShard network;
  TestService cache{"cache"};
  TestService relay{"relay"};
  testing::TestAppliance appliance{{&relay, &cache}};
  char text[1024];

  void setup() override {
    relay.network = &network;
    relay.to_plan = [](ServicePlan&) { return Result<void>{}; };
    cache.to_plan = [](ServicePlan& asked) {
      asked.segment("cache", {{"index", 128}, {"values", 4096}}, {});
      asked.counters<CacheCounters>("gets");
      asked.trace({"get|put", "received|sent"});
      asked.sources(0, 1);
      asked.questions(0, 2);
      asked.datagram_socket(0, "in", {.buffer_count = 16, .buffer_bytes = 64});
      asked.datagram_socket(0, "far", {}, "wan");
      asked.datagram_socket(0, "further", {}, "wan");
      return Result<void>{};
    };
    STRCMP_EQUAL("", appliance.boot("[relay]\n[cache]\n").c_str());
  }
  template <typename T>
  std::string refusal(const Result<T>& asked) {
    return asked.ok() ? "" : format_error(asked.error(), text, sizeof text);
  }
  static std::string defect(const char* what) {
    return std::string("cache: ") + what +
           "; this is a defect of the service: plan() must ask for all that create() uses";
  }
};

TEST(ServiceContext, HandsOutEachCarveOnce) {
  ServiceContext& context = appliance.context(cache);
  auto index = context.carve("index");
  CHECK(index.ok());
  LONGS_EQUAL(128, index.value().size());
  LONGS_EQUAL(4096, context.carve("values").value().size());
  STRCMP_EQUAL(defect("carving values: it was handed out before").c_str(),
               refusal(context.carve("values")).c_str());
  STRCMP_EQUAL(defect("carving more: it is not planned").c_str(),
               refusal(context.carve("more")).c_str());
}

TEST(ServiceContext, HandsOutCountersAndTraces) {
  ServiceContext& context = appliance.context(cache);
  auto gets = context.counters<CacheCounters>("gets");
  CHECK(gets.ok());
  gets.value()->hits.add(3);
  CHECK(appliance.counter("cache", "hits") == 3);
  CHECK(!context.counters<CacheCounters>("puts").ok());
  CHECK(!context.counters<CacheCounters>("gets", "a").ok());
  auto trace = context.trace(0);
  CHECK(trace.ok());
  trace.value().write(RequestTrace(), {.handle = 5});
  CHECK_EQUAL(5, appliance.traces(0)[0].handle);
  CHECK(!appliance.context(relay).trace(0).ok());
}

TEST(ServiceContext, HandsOutEachDatagramSocketOnce) {
  ServiceContext& context = appliance.context(cache);
  CHECK(context.datagram_socket("in").ok());
  STRCMP_EQUAL(defect("creating the datagram socket in: it was handed out before").c_str(),
               refusal(context.datagram_socket("in")).c_str());
  STRCMP_EQUAL(defect("creating the datagram socket out: it is not planned").c_str(),
               refusal(context.datagram_socket("out")).c_str());
  CHECK(context.datagram_socket("far").ok());
  STRCMP_EQUAL(defect("creating the datagram socket far: it was handed out before").c_str(),
               refusal(context.datagram_socket("far")).c_str());
  STRCMP_EQUAL("cache: creating the datagram socket further: it has one; ask for fewer",
               refusal(context.datagram_socket("further")).c_str());
  LONGS_EQUAL(1, network.made_count);
}

TEST(ServiceContext, HasNoKeysWithoutADevice) {
  ServiceContext& context = appliance.context(cache);
  CHECK_FALSE(context.has_peers());
  POINTERS_EQUAL(nullptr, context.verbs_domain());
  CHECK(context.key(context.carve("index").value().data(), 128).key == kNoKey);
}

TEST(ServiceContext, RefusesWhatWasNotPlanned) {
  ServiceContext& context = appliance.context(cache);
  STRCMP_EQUAL(defect("listening at the addresses of listen: they are not planned").c_str(),
               refusal(context.listeners("listen")).c_str());
  STRCMP_EQUAL(defect("finding its file log: it is not planned").c_str(),
               refusal(context.file("log")).c_str());
  STRCMP_EQUAL(defect("exchanging messages on shard main: it has planned none there").c_str(),
               refusal(context.messenger(0)).c_str());
  NoSource first, second;
  CHECK(context.add_source(0, first, 1).ok());
  STRCMP_EQUAL(
      defect("adding a poll source to shard main: it has planned no further one there").c_str(),
      refusal(context.add_source(0, second, 1)).c_str());
}

TEST(ServiceContext, HandsOutOneAskerWhereQuestionsArePlanned) {
  ServiceContext& context = appliance.context(cache);
  auto first = context.asker(0);
  CHECK(first.ok());
  POINTERS_EQUAL(first.value(), context.asker(0).value());
  STRCMP_EQUAL("relay: asking questions on shard main: it has planned none there; this is a defect "
               "of the service: plan() must ask for all that create() uses",
               refusal(appliance.context(relay).asker(0)).c_str());
}

namespace {

// Takes TLS on its shard as often as the test says, and keeps what it gets.
struct TlsTaker final : TestService {
  TlsTaker() : TestService("cache") {
    to_plan = [this](ServicePlan& asked) {
      asked.tls(0, 2, {.shared_keys = folder.write("keys.psk", test::kSharedKeyLine)});
      return Result<void>{};
    };
  }
  Result<void> create(ServiceContext& context) override {
    for (int i = 0; i < take_count; ++i) {
      auto taken = context.tls(0);
      if (taken.ok()) layers = taken.value();
      char text[1024];
      refusal = taken.ok() ? "" : format_error(taken.error(), text, sizeof text);
    }
    return {};
  }
  const test::TlsFolder folder;
  int take_count = 0;
  StreamLayers* layers = nullptr;
  std::string refusal;
};

}  // namespace

TEST_GROUP(ServiceContextTls) {
  TlsTaker cache;
  testing::TestAppliance appliance{{&cache}};
};

TEST(ServiceContextTls, IsHandedOutOnce) {
  cache.take_count = 1;
  STRCMP_EQUAL("", appliance.boot("[cache]\n").c_str());
  STRCMP_EQUAL("", cache.refusal.c_str());
  CHECK(cache.layers != nullptr);
}

TEST(ServiceContextTls, IsRefusedTheSecondTime) {
  cache.take_count = 2;
  STRCMP_EQUAL("", appliance.boot("[cache]\n").c_str());
  STRCMP_EQUAL("cache: taking TLS for shard main: it was handed out before; this is a defect of "
               "the service: plan() must ask for all that create() uses",
               cache.refusal.c_str());
}

TEST(ServiceContextTls, MustBeTakenIfItIsPlanned) {
  STRCMP_EQUAL("cache: serving connections on shard main: they would have no TLS, which is "
               "planned; this is a defect of the service: create() must give "
               "ServiceContext::tls() to its server",
               appliance.boot("[cache]\n").c_str());
}
