// A service's context hands out the planned objects by their names, and refuses all others.
#include "apps/boot/service_context.h"

#include <memory>
#include <string>

#include "apps/boot/peers.h"
#include "apps/boot/shard.h"
#include "apps/counters/counters_file.h"
#include "apps/services/service_drains.h"
#include "apps/services/tls_part.h"
#include "platform/cpu.h"
#include "platform/name_lock.h"
#include "tests/apps/boot/service_rig.h"
#include "tests/apps/tsrelay/relay_rig.h"
#include "tests/support/pool_fixture.h"
#include "tests/transport/sockets/flip_layer.h"
#include "transport/sockets/datagram_network.h"
#include "transport/tls/tls_streams.h"
#include "transport/vfio/vfio_pool.h"

using namespace bedplate;
using namespace bedplate::service_rig;

namespace {

struct NoSource final : PollSource {
  uint32_t poll(uint32_t) noexcept override { return 0; }
};

int usable_core() {
  int cpu = 0;
  while (!cpu_is_usable(cpu)) ++cpu;
  return cpu;
}

struct FakeTls final : TlsServer {
  bool load(const TlsFiles&, std::vector<Error>*) override { return true; }
  std::unique_ptr<ConnectionSession> wrap(ConnectionSession&, TlsCounters&) override {
    return nullptr;
  }
  std::unique_ptr<StreamLayers> make_layers(const TlsLayersOptions& wanted) override {
    options = wanted;
    return std::make_unique<FlipLayers>(*wanted.sockets);
  }
  TlsLayersOptions options;
};

// A temporary directory, which must be empty when it is removed.
struct TemporaryDirectory {
  TemporaryDirectory() { CHECK(mkdtemp(path) != nullptr); }
  ~TemporaryDirectory() { LONGS_EQUAL(0, rmdir(path)); }
  char path[64] = "/tmp/bedplate-service-XXXXXX";
};

}  // namespace

TEST_GROUP_BASE(ServiceContext, service_rig::ServiceBodies){};

TEST(ServiceContext, GetsWhatItHasPlannedOnceAndNothingElse) {
  const TemporaryDirectory root;
  cache.to_plan = [](ServicePlan& asked) {
    asked.segment("cache", {{"index", 128}, {"values", 4096}}, {});
    asked.counters<CacheCounters>("gets");
    asked.trace({"get|put", "received|sent"});
    asked.sources(0, 1);
    asked.tls(0, 2, {.shared_keys = "/keys"});
    asked.questions(0, 2);
    asked.datagram_socket(0, "in", {.buffer_count = 16, .buffer_bytes = 64});
    asked.datagram_socket(0, "far", {}, "wan");
    asked.datagram_socket(0, "further", {}, "wan");
    return Result<void>{};
  };
  struct AnyShard final : DatagramNetwork {
    Result<void> plan_socket(uint32_t, const DatagramShape&) override { return {}; }
    Result<DatagramSocket*> make_socket(uint32_t, const DatagramShape&) override {
      if (made_count == 1) return Error{}.set_answer("it has one").set_cure("ask for fewer");
      ++made_count;
      return &socket;
    }
    relay::FakeSocket socket;
    int made_count = 0;
  } network;
  relay.network = &network;
  relay.to_plan = [](ServicePlan&) { return Result<void>{}; };
  configuration.services = {&relay, &cache};
  configuration.shards.resize(1);
  configuration.shards[0].cpu = usable_core();
  auto made = plan_appliance(configuration);
  CHECK(made.ok());
  const ServiceNeeds& needs = made.value().services[1];
  test::TestPool pool;
  CHECK(pool->create_segment("cache", 8 * kKiB, PageSize::k4KiB, 1).ok());
  CHECK(pool->create_segment("datagrams-0:cache", 4 * kKiB, PageSize::k4KiB, 1).ok());
  constexpr uint64_t kTlsBytes = TlsStreams::bytes_for(2);
  CHECK(pool->create_segment("tls:cache", align_up(kTlsBytes, 4 * kKiB), PageSize::k4KiB, 1).ok());
  NameLock lock;
  CHECK(lock.take(std::string(root.path) + "/run", "demo").ok());
  CountersFile counters;
  CHECK(counters.create(lock, made.value().counters(), made.value().traces).ok());
  Peers peers;
  const auto shard = std::make_unique<Shard>();
  ShardOptions options;
  options.settings = configuration.shards[0];
  options.event_loop.sockets = SocketBackendChoice::kEpoll;
  options.source_count = 3;
  options.trace_records = counters.trace_records(0);
  options.counters = &counters.runtime<ShardCounters>("shard", configuration.shards[0].name);
  CHECK(shard->create(options).ok());
  const ShardParts parts[] = {
      {shard->loop(), shard->sockets(), shard->files(), shard->trace_ring()}};
  VfioPool vfio(*pool);
  ServiceDrains drains;
  Fd datagrams[3];  // no socket is opened ahead
  const ServiceRuntime runtime = {
      configuration, made.value(), *pool, parts, made.value().message_names,
      counters,      peers,        vfio,  drains};
  FakeTls tls;
  ServiceContext context(needs, runtime, {}, datagrams, &tls);
  POINTERS_EQUAL(&vfio, &context.vfio());

  const auto carved = [&](const char* owner) -> std::string {
    auto memory = context.carve(owner);
    return memory.ok() ? std::to_string(memory.value().size())
                       : format_error(memory.error(), text, sizeof text);
  };
  STRCMP_EQUAL("128", carved("index").c_str());
  STRCMP_EQUAL("4096", carved("values").c_str());
  const std::string cure = "; this is a defect of the service: plan() must ask for all that "
                           "create() uses";
  STRCMP_EQUAL(("cache: carving values: it was handed out before" + cure).c_str(),
               carved("values").c_str());
  STRCMP_EQUAL(("cache: carving more: it is not planned" + cure).c_str(), carved("more").c_str());

  auto gets = context.counters<CacheCounters>("gets");
  CHECK(gets.ok());
  POINTERS_EQUAL(counters.values(needs.counters[0]), gets.value());
  CHECK(!context.counters<CacheCounters>("puts").ok());
  CHECK(!context.counters<CacheCounters>("gets", "a").ok());

  auto trace = context.trace(0);
  CHECK(trace.ok());
  trace.value().write(RequestTrace(), {.handle = 5});
  CHECK_EQUAL(5, counters.trace_records(0)[0].handle);

  CHECK(context.datagram_socket("in").ok());
  STRCMP_EQUAL(("cache: creating the datagram socket in: it was handed out before" + cure).c_str(),
               format_error(context.datagram_socket("in").error(), text, sizeof text));
  STRCMP_EQUAL(("cache: creating the datagram socket out: it is not planned" + cure).c_str(),
               format_error(context.datagram_socket("out").error(), text, sizeof text));

  CHECK(context.datagram_socket("far").ok());
  STRCMP_EQUAL(("cache: creating the datagram socket far: it was handed out before" + cure).c_str(),
               format_error(context.datagram_socket("far").error(), text, sizeof text));
  STRCMP_EQUAL("cache: creating the datagram socket further: it has one; ask for fewer",
               format_error(context.datagram_socket("further").error(), text, sizeof text));
  LONGS_EQUAL(1, network.made_count);

  auto listening = context.listeners("listen");
  CHECK(!listening.ok());
  STRCMP_EQUAL(("cache: listening at the addresses of listen: they are not planned" + cure).c_str(),
               format_error(listening.error(), text, sizeof text));

  auto asker = context.asker(0);
  CHECK(asker.ok() && asker.value() == context.asker(0).value());
  ServiceContext relays(made.value().services[0], runtime, {}, {});
  STRCMP_EQUAL("relay: asking questions on shard main: it has planned none there; this is a defect "
               "of the service: plan() must ask for all that create() uses",
               format_error(relays.asker(0).error(), text, sizeof text));

  NoSource first, second;
  CHECK(context.add_source(0, first, 1).ok());
  STRCMP_EQUAL(
      "cache: serving connections on shard main: they would have no TLS, which is planned; "
      "this is a defect of the service: create() must give ServiceContext::tls() to its "
      "server",
      format_error(context.created().error(), text, sizeof text));
  auto layers = context.tls(0);
  CHECK(layers.ok() && layers.value() != nullptr);
  CHECK_EQUAL(kTlsBytes, tls.options.memory.size());
  POINTERS_EQUAL(&context.sockets(0), tls.options.sockets);
  CHECK(tls.options.counters != nullptr);
  CHECK(tls.options.local == LayerUse::kOffered && tls.options.elsewhere == LayerUse::kRequired);
  STRCMP_EQUAL(("cache: taking TLS for shard main: it was handed out before" + cure).c_str(),
               format_error(context.tls(0).error(), text, sizeof text));
  CHECK(context.created().ok());  // adds a source
  const auto refused = context.add_source(0, second, 1);
  CHECK(!refused.ok());
  STRCMP_EQUAL(
      ("cache: adding a poll source to shard main: it has planned no further one there" + cure)
          .c_str(),
      format_error(refused.error(), text, sizeof text));
}
