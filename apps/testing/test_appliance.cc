#include "apps/testing/test_appliance.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <new>
#include <utility>

#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/loaded_configuration.h"
#include "apps/boot/peers.h"
#include "apps/boot/runtime_counters.h"
#include "apps/boot/shard_group.h"
#include "apps/control/control_session.h"
#include "apps/counters/counter_sums.h"
#include "apps/counters/counters_file.h"
#include "apps/services/listeners.h"
#include "apps/services/planned_tls.h"
#include "apps/services/service_calls.h"
#include "apps/services/service_drains.h"
#include "apps/services/tls_part.h"
#include "apps/testing/message_group.h"
#include "apps/testing/session_peer.h"
#include "apps/testing/test_pool.h"
#include "apps/testing/test_shard.h"
#include "platform/name_lock.h"
#include "platform/units.h"
#include "transport/sockets/socket_address.h"
#include "transport/vfio/vfio_pool.h"

namespace bedplate::testing {
namespace {

// The tables that every configuration needs, and the lines that show that it has them.
constexpr struct {
  const char* line;
  const char* text;
} kUsualTables[] = {
    {"[appliance]", "[appliance]\nname = \"test\"\n"},
    {"[pool]", "[pool]\nbytes = \"4 GiB\"\npages = \"4 KiB\"\n"},
    {"[[shard]]", "[[shard]]\nname = \"main\"\ncpu = 0\n"},
};

constexpr uint64_t kFirstNs = 1000 * kNsPerSecond;
constexpr uint64_t kDrainStepNs = 10 * kNsPerMs;
constexpr uint32_t kDirectAlignmentBytes = 512;
// A loop may have to look once more for what another one did in the same round.
constexpr uint32_t kIdleRounds = 2;

bool has_line(std::string_view text, std::string_view line) {
  for (size_t at = text.find(line); at != text.npos; at = text.find(line, at + 1)) {
    if (at == 0 || text[at - 1] == '\n') return true;
  }
  return false;
}

std::string text_of(const Error& error) {
  char text[1024];
  return format_error(error, text, sizeof text);
}
std::string text_of(const Result<void>& outcome) {
  return outcome.ok() ? "" : text_of(outcome.error());
}
std::string text_of(const std::vector<Error>& problems) {
  std::string all;
  for (const Error& problem : problems) all += (all.empty() ? "" : "\n") + text_of(problem);
  return all;
}

// A new directory, which is removed with this object, if it is empty.
class Folder {
 public:
  Folder() { BP_ASSERT(mkdtemp(path_) != nullptr && "TestAppliance needs a writable /tmp"); }
  ~Folder() { rmdir(path_); }
  std::string path(const std::string& name) const { return std::string(path_) + "/" + name; }

 private:
  char path_[32] = "/tmp/bedplate-test-XXXXXX";
};

}  // namespace

// Parts that use others are declared, so destroyed, in an order like that of boot/appliance.h.
struct TestAppliance::Parts {
  explicit Parts(std::vector<Service*> all) : services(std::move(all)) {}

  std::vector<Service*> services;
  Folder folder;
  Configuration configuration;
  AppliancePlan plan;
  uint64_t clock_ns = kFirstNs;
  TestPool pool{kTestPoolBaseInRange};
  NameLock lock;
  CountersFile counters;
  std::vector<std::vector<Listeners>> listeners;
  std::vector<std::vector<Fd>> datagrams;
  std::vector<std::unique_ptr<TlsServer>> tls;  // of each service; nullptr: none
  std::deque<TestFile> files;                   // of all services, in the order of their plans
  Peers peers;                                  // there are none
  VfioPool vfio{*pool};
  ServiceDrains drains;
  bool has_created = false;
  bool has_stopped = false;
  std::vector<std::unique_ptr<ServiceContext>> contexts;
  std::vector<std::unique_ptr<ShardMessenger>> messengers;  // of each shard; nullptr: none
  std::vector<std::unique_ptr<TestShard>> shards;
  std::vector<ShardParts> shard_parts;
  ShardGroup shard_group;
  MessageGroup group{*pool};
};

TestAppliance::TestAppliance(std::vector<Service*> services)
    : parts_(std::make_unique<Parts>(std::move(services))) {}

TestAppliance::~TestAppliance() { stop(); }

// ---- The boot ----

std::string TestAppliance::plan(std::string_view tables) {
  BP_ASSERT(parts_->configuration.shards.empty() && "plan() is called once");
  std::string whole(tables);
  if (!whole.empty() && whole.back() != '\n') whole += '\n';
  for (const auto& table : kUsualTables) {
    if (!has_line(tables, table.line)) whole += table.text;
  }
  std::vector<Error> problems;
  auto read = parse_configuration(whole, "configuration", parts_->services, &problems);
  if (!read) return text_of(problems);
  parts_->configuration = std::move(*read);
  auto planned = plan_appliance(parts_->configuration);
  if (!planned.ok()) return text_of(planned.error());
  parts_->plan = planned.take();
  check_planned_tls(parts_->plan.services, &problems);
  if (!problems.empty()) return text_of(problems);
  for (const ServiceNeeds& needs : parts_->plan.services) {
    for (const FileNeed& need : needs.files) {
      TestFile& file = parts_->files.emplace_back();
      file.options.name = file_name(needs.name, need.plan);
      file.options.fd = 0;  // nobody uses it
      file.options.operation_count_max = need.plan.operation_count_max;
      file.options.alignment_bytes = need.plan.is_direct ? kDirectAlignmentBytes : 1;
      file.options.tells_extents = need.plan.tells_extents;
      file.is_writable = need.plan.is_writable;
      file.content.content.resize(need.plan.bytes_min);
    }
  }
  return "";
}

std::string TestAppliance::create() {
  BP_ASSERT(!parts_->configuration.shards.empty() && "plan() comes first");
  BP_ASSERT(!parts_->has_created && "create() is called once");
  parts_->has_created = true;
  if (std::string problem = take_memory(); !problem.empty()) return problem;
  if (std::string problem = open_sockets(); !problem.empty()) return problem;
  if (std::string problem = text_of(create_shards()); !problem.empty()) return problem;
  return text_of(create_services());
}

std::string TestAppliance::take_memory() {
  std::vector<SegmentRequest> wanted;
  for (const ServiceNeeds& needs : parts_->plan.services) {
    wanted.insert(wanted.end(), needs.segments.begin(), needs.segments.end());
  }
  if (parts_->plan.has_shard_group) wanted.push_back(plan_shard_group(parts_->configuration));
  for (const SegmentRequest& request : wanted) {
    uint64_t bytes = 0;
    for (const CarvePlan& carve : request.carves) bytes += carve.bytes;
    auto made =
        parts_->pool->create_segment(request.owner, align_up(bytes, 4 * kKiB), PageSize::k4KiB, 1);
    if (!made.ok()) return text_of(made.error());
  }
  const std::string& name = parts_->configuration.appliance.name;
  if (auto taken = parts_->lock.take(parts_->folder.path("run"), name); !taken.ok()) {
    return text_of(taken.error());
  }
  return text_of(
      parts_->counters.create(parts_->lock, parts_->plan.counters(), parts_->plan.traces));
}

std::string TestAppliance::open_sockets() {
  std::vector<Error> problems;
  size_t count = 0;
  for (const ServiceNeeds& needs : parts_->plan.services) {
    std::vector<Listeners>& own = parts_->listeners.emplace_back();
    for (const ListenNeed& need : needs.listens) {
      std::vector<SocketAddress> addresses(need.addresses.size());
      for (SocketAddress& address : addresses) {
        address.kind = SocketAddress::Kind::kUnix;
        address.path = parts_->folder.path(std::to_string(count++));
      }
      own.emplace_back(need.key + " in [" + needs.name + "]", LocalOnly(), SocketAccess(),
                       need.place_count())
          .open(addresses, &problems);
    }
  }
  parts_->datagrams = open_datagrams(parts_->plan.services, &problems);
  return text_of(problems);
}

Result<void> TestAppliance::create_shards() {
  Parts& own = *parts_;
  std::vector<Doorbell*> doorbells;
  for (uint32_t i = 0; i < own.configuration.shards.size(); ++i) {
    const std::string& name = own.configuration.shards[i].name;
    TestShardOptions options;
    options.needs = own.plan.needs_on(i);
    options.plan = own.plan.shard_plan(i, name);
    options.clock_ns = &own.clock_ns;
    options.counters = &own.counters.runtime<ShardCounters>("shard", name);
    options.trace_records = own.counters.trace_records(i);
    const bool has_messages = options.needs.has_messages || (i == 0 && !own.group.is_empty());
    own.messengers.push_back(
        !has_messages ? nullptr
                      : std::make_unique<ShardMessenger>(name.c_str(), i, own.plan.message_names));
    options.messenger = own.messengers.back().get();
    size_t file = 0;
    for (const ServiceNeeds& needs : own.plan.services) {
      for (const FileNeed& need : needs.files) {
        TestFile& its = own.files[file++];
        if (need.shard != i) continue;
        const auto is_its = [&](const CounterSet& set) {
          return set.name == kFileCounters && set.instance == need.plan.name;
        };
        const auto set = std::find_if(needs.counters.begin(), needs.counters.end(), is_its);
        BP_ASSERT(set != needs.counters.end());
        its.options.counters = new (own.counters.values(*set)) FileCounters;
        options.files.push_back(&its);
      }
    }
    own.shards.push_back(std::make_unique<TestShard>());
    BP_TRY(own.shards.back()->create(options));
    own.shard_parts.push_back(own.shards.back()->parts());
    doorbells.push_back(&own.shards.back()->loop().doorbell());
  }
  if (own.plan.has_shard_group) {
    BP_TRY(own.shard_group.create(own.configuration, *own.pool, std::move(doorbells),
                                  own.messengers, own.counters));
  }
  if (own.group.is_empty()) return {};
  return own.group.create(*own.messengers[0], own.configuration.appliance.name,
                          own.plan.message_names);
}

Result<void> TestAppliance::create_services() {
  Parts& own = *parts_;
  own.drains.create(own.configuration.services);
  const auto call_all = [&](const char* doing, Result<void> (Service::*step)()) -> Result<void> {
    for (Service* service : own.configuration.services) {
      BP_TRY(call_service(*service, doing, [&] {
        return in_service(*service, [&] { return (service->*step)(); });
      }));
    }
    return {};
  };
  BP_TRY_ASSIGN(own.tls, load_planned_tls(own.plan.services));
  BP_TRY(call_all("preparing", &Service::prepare));
  const ServiceRuntime runtime = {
      own.configuration, own.plan,  *own.pool, own.shard_parts, own.plan.message_names,
      own.counters,      own.peers, own.vfio,  own.drains};
  for (size_t i = 0; i < own.plan.services.size(); ++i) {
    const ServiceNeeds& needs = own.plan.services[i];
    const HeapOwnerScope scope(heap_owner_of(*needs.service));
    own.contexts.push_back(std::make_unique<ServiceContext>(needs, runtime, own.listeners[i],
                                                            own.datagrams[i], own.tls[i].get()));
    BP_TRY(call_service(*needs.service, "creating",
                        [&] { return needs.service->create(*own.contexts.back()); }));
    BP_TRY(own.contexts.back()->created());
  }
  BP_TRY(call_all("using the sealed pool", &Service::sealed));
  return own.group.is_empty() ? Result<void>() : own.group.join_all();
}

void TestAppliance::start() {
  Parts& own = *parts_;
  BP_ASSERT(own.contexts.size() == own.plan.services.size() && "create() comes first");
  if (!own.group.is_empty()) own.messengers[0]->messenger().poll(64);  // sees the peers
  for (uint32_t i = 0; i < own.shards.size(); ++i) {
    for (Service* service : own.configuration.services) {
      in_service(*service, [&] { service->start(i); });
    }
  }
}

std::string TestAppliance::boot(std::string_view tables) {
  std::string problems = plan(tables);
  if (problems.empty()) problems = create();
  if (problems.empty()) start();
  return problems;
}

MemoryFile& TestAppliance::file(std::string_view service, std::string_view name) {
  const std::string whole = std::string(service) + "." + std::string(name);
  const auto is_it = [&](const TestFile& file) { return file.options.name == whole; };
  const auto found = std::find_if(parts_->files.begin(), parts_->files.end(), is_it);
  BP_ASSERT(found != parts_->files.end() && "the service has not planned this file");
  return found->content;
}

MessagePeer& TestAppliance::add_peer(std::string name) {
  return parts_->group.add(std::move(name));
}

// ---- Running ----

uint32_t TestAppliance::run_round() {
  const HeapOwnerScope scope(current_heap_owner());  // each callback has an owner of its own
  uint32_t work = 0;
  for (const auto& shard : parts_->shards) work += shard->loop().run_round();
  return work + parts_->group.poll();
}

uint32_t TestAppliance::run() {
  uint32_t total = 0;
  uint32_t idle_count = 0;
  for (uint32_t round = 0; round < kRoundsMax && idle_count < kIdleRounds; ++round) {
    const uint32_t work = run_round();
    idle_count = work == 0 ? idle_count + 1 : 0;
    total += work;
  }
  return total;
}

uint64_t TestAppliance::now_ns() const noexcept { return parts_->clock_ns; }

void TestAppliance::advance(uint64_t ns) {
  const uint64_t end_ns = parts_->clock_ns + ns;
  run();
  for (;;) {
    uint64_t next_ns = TimerQueue::kNever;
    for (const auto& shard : parts_->shards) {
      next_ns = std::min(next_ns, shard->loop().timers().next_deadline_ns());
    }
    if (next_ns > end_ns) break;
    parts_->clock_ns = std::max(parts_->clock_ns, next_ns);
    run();
  }
  parts_->clock_ns = end_ns;
  run();
}

void TestAppliance::tick() {
  for (Service* service : parts_->configuration.services) {
    in_service(*service, [&] { service->tick(); });
  }
  parts_->drains.turn();
}

bool TestAppliance::drain() {
  const uint64_t timeout_ns = parts_->configuration.appliance.drain_timeout_ms * kNsPerMs;
  parts_->drains.begin_all();
  run();
  for (uint64_t waited_ns = 0; !parts_->drains.undrained().empty(); waited_ns += kDrainStepNs) {
    if (waited_ns > timeout_ns) return false;
    tick();
    sched_yield();  // a thread of a service may have to do something
    advance(kDrainStepNs);
  }
  return true;
}

void TestAppliance::stop() {
  if (!parts_->has_created || std::exchange(parts_->has_stopped, true)) return;
  const HeapOwnerScope scope(current_heap_owner());
  for (const auto& shard : parts_->shards) shard->close();
  for (Service* service : parts_->configuration.services) {
    in_service(*service, [&] { return service->stopped(); });
  }
}

TestClient TestAppliance::connect(std::string_view service, std::string_view key, size_t index) {
  const std::vector<ListenNeed>& listens = parts_->plan.services[index_of(service)].listens;
  const auto is_it = [key](const ListenNeed& need) { return need.key == key; };
  const auto need = std::find_if(listens.begin(), listens.end(), is_it);
  BP_ASSERT(need != listens.end() && "the service has not planned to listen under this key");
  const auto which = static_cast<size_t>(need - listens.begin());
  const std::vector<Fd>& sockets = parts_->listeners[index_of(service)][which].sockets();
  BP_ASSERT(index < sockets.size() && "the key has fewer addresses");
  sockaddr_storage address = {};
  socklen_t bytes = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  BP_ASSERT(getsockname(sockets[index].number(), name, &bytes) == 0);
  Fd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  BP_ASSERT(client.is_open() && ::connect(client.number(), name, bytes) == 0);
  return TestClient(*this, std::move(client));
}

TestClient TestAppliance::socket_pair(Fd* other) {
  int fds[2] = {-1, -1};
  BP_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  *other = Fd(fds[1]);
  return TestClient(*this, Fd(fds[0]));
}

std::string TestAppliance::call(std::string_view method, std::string_view parameters) {
  ControlMethods methods;
  for (Service* service : parts_->configuration.services) {
    methods.set_owner(service->name());
    service->methods(methods);
  }
  ControlCounters counters;
  ControlSite site;
  site.methods = &methods;
  site.counters = &counters;
  site.own_loop = &parts_->shards[0]->loop();
  for (size_t i = 0; i < parts_->shards.size(); ++i) {
    site.shards.push_back({&parts_->shards[i]->loop(), parts_->configuration.shards[i].name});
  }
  const auto session = std::make_unique<ControlSession>(site);
  SessionPeer peer(*session);
  std::string answer = peer.say(R"({"jsonrpc":"2.0","id":1,"method":")" + std::string(method) +
                                R"(","params":)" + std::string(parameters) + "}\n");
  while (session->is_waiting()) {
    if (run() == 0) advance(ControlSession::kPatienceNs);
    answer += peer.take();
  }
  if (answer.ends_with('\n')) answer.pop_back();
  return answer;
}

std::optional<uint64_t> TestAppliance::counter(std::string_view service, std::string_view name,
                                               std::string_view instance) {
  add_up_shards(parts_->counters.header());
  for (const CounterSet& set : parts_->plan.services[index_of(service)].counters) {
    if (set.instance != instance) continue;
    for (const CounterDescription& one : set.counters) {
      if (one.name != name) continue;
      const auto* at = static_cast<std::byte*>(parts_->counters.values(set)) + one.offset;
      if (one.kind != CounterKind::kHistogram) return reinterpret_cast<const Counter*>(at)->read();
      return reinterpret_cast<const Histogram*>(at)->count();
    }
  }
  return {};
}

std::span<const TraceRecord> TestAppliance::traces(uint32_t shard) {
  return parts_->counters.trace_records(shard);
}

// ---- The services' plans and contexts ----

const Configuration& TestAppliance::configuration() const noexcept { return parts_->configuration; }

size_t TestAppliance::index_of(std::string_view service) const {
  const std::vector<ServiceNeeds>& all = parts_->plan.services;
  const auto is_it = [service](const ServiceNeeds& needs) { return needs.name == service; };
  const auto found = std::find_if(all.begin(), all.end(), is_it);
  BP_ASSERT(found != all.end() && "the configuration has no table of this service");
  return static_cast<size_t>(found - all.begin());
}

const ServiceNeeds& TestAppliance::needs(const Service& service) const {
  return parts_->plan.services[index_of(service.name())];
}

ServiceContext& TestAppliance::context(const Service& service) {
  const size_t index = index_of(service.name());
  BP_ASSERT(index < parts_->contexts.size() && "create() comes first");
  return *parts_->contexts[index];
}

}  // namespace bedplate::testing
