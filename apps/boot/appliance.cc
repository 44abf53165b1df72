#include "apps/boot/appliance.h"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <utility>

#include "alloc/added_heap.h"
#include "alloc/boot_growth.h"
#include "alloc/confined_heap.h"
#include "alloc/exhaustion.h"
#include "alloc/heap_owner.h"
#include "apps/boot/appliance_crash.h"
#include "apps/boot/appliance_memory.h"
#include "apps/boot/appliance_user.h"
#include "apps/boot/needed_calls.h"
#include "apps/boot/preflight.h"
#include "apps/counters/counter_sums.h"
#include "apps/services/service_calls.h"
#include "pinned_pool/boot_segment.h"
#include "pinned_pool/pool_map.h"
#include "platform/clock.h"
#include "platform/failed_calls.h"
#include "platform/log.h"
#include "platform/progress.h"
#include "platform/stop_signals.h"
#include "platform/text.h"

namespace bedplate {
namespace {

// The longest time between two beats of the main thread's pulse. It is also the precision with
// which a shard's stall is told from a standstill of the whole process.
constexpr uint64_t kPulsePeriodNsMax = 25 * kNsPerMs;
// Gauges that are not written as they change (heap use, registrations) are updated this often, or
// as often as the supervisor's watchdog needs.
constexpr uint64_t kRefreshNs = 500 * kNsPerMs;
constexpr uint64_t kFilePatienceMinNs = kNsPerSecond;
constexpr long kDrainPollNs = 2 * static_cast<long>(kNsPerMs);

// A messenger handles at most this many messages of each provider in one poll.
constexpr uint32_t kMessageBudget = 64;

// Poll sources of the runtime's own on one shard: sockets, files, and polled ones, the messenger,
// peers.
constexpr uint32_t kRuntimeSourceCount = 5;

}  // namespace

std::optional<int> Appliance::boot() {
  signals_.hold(configuration_.is_first_process);
  if (!configuration_.is_first_process) catch_appliance_crashes();  // else caught already
  name_uncaught_exceptions();
  supervision_.open();
  // A write past a file size limit or to a closed pipe then fails, and does not end the process.
  keep_alive_on(SIGXFSZ);
  keep_alive_on(SIGPIPE);
  heap_create();
  boot_segment();  // it is planned even when the heap does not lie in it
  expect_appliance();

  auto plan = plan_all();
  if (!plan.ok()) return fail({plan.error()});
  plan_ = plan.take();
  if (auto fixed = fix_boot_heap(plan_.pool.segments[0].bytes); !fixed.ok()) {
    return fail({fixed.error()});
  }
  reached(Step::kPlan);
  supervision_.begins("checking the machine");
  if (const std::vector<Error> problems = check(); !problems.empty()) return fail(problems);
  reached(Step::kCheck);
  if (auto taken = take_all(); !taken.ok()) return fail({taken.error()});
  supervision_.serves(monotonic_ns());
  return std::nullopt;
}

// Prints the problems and returns the exit code. A requested stop is no failure.
int Appliance::fail(const std::vector<Error>& problems) {
  int code = 0;
  for (const Error& problem : problems) {
    log_error(problem);
    code = std::max(code, static_cast<int>(problem.kind));
  }
  return waiting_stop_signal() != 0 ? 0 : code;
}

Result<AppliancePlan> Appliance::plan_all() {
  BP_TRY(refuse_added_heap("booting an appliance", "raise [pool] bytes instead"));
  return plan_appliance(configuration_);
}

// After a stop signal it ends after the current step; reserve(), the longest step, checks within.
Result<void> Appliance::take_all() {
  constexpr struct {
    const char* name;
    Result<void> (Appliance::*part)();
  } kParts[] = {{"taking memory", &Appliance::reserve},
                {"preparing services", &Appliance::prepare_services},
                {"changing user", &Appliance::change_user},
                {"starting shards", &Appliance::start_shards},
                {"creating messengers", &Appliance::make_messengers},
                {"creating peers", &Appliance::create_peers},
                {"creating groups", &Appliance::create_messaging},
                {"creating services", &Appliance::create_services},
                {"sealing the pool", &Appliance::seal},
                {"notifying services", &Appliance::tell_services}};
  for (const auto& [name, part] : kParts) {
    BP_TRY(check_stop());
    supervision_.begins(name);
    BP_TRY((this->*part)());
  }
  start_serving();
  return messaging_.serve();
}

Result<void> Appliance::check_stop() const noexcept {
  const int number = waiting_stop_signal();
  if (number == 0) return {};
  return error_while("booting %s", configuration_.appliance.name.c_str())
      .set_answer("stopped by signal %d", number);
}

Result<void> Appliance::reserve() {
  BP_ASSERT(step_ == Step::kCheck && name_lock_.is_taken());
  BP_TRY_ASSIGN(auto heap_parts, take_memory(plan_, process_pool()));
  pool_counters_.set_heap_parts(std::move(heap_parts));
  reached(Step::kReserve);
  return {};
}

Result<void> Appliance::prepare_services() {
  BP_TRY_ASSIGN(tls_, load_planned_tls(plan_.services));
  return call_services("preparing", &Service::prepare);
}

// Called while there is no other thread, so that later threads inherit the credentials.
Result<void> Appliance::change_user() {
  return give_up_root(configuration_, plan_, process_pool());
}

Result<void> Appliance::tell_services() {
  return call_services("using the sealed pool", &Service::sealed);
}

void Appliance::reached(Step step) noexcept {
  BP_ASSERT(step == Step::kStopped || static_cast<int>(step) == static_cast<int>(step_) + 1);
  step_ = step;
  BP_ASSERT(is_valid());
}

bool Appliance::is_valid() const noexcept {
  if (step_ == Step::kStopped) return !has_running_shards();
  const PinnedPool& pool = process_pool();
  const auto has_since = [this](Step step, size_t count, size_t planned_count) {
    return count == (step_ >= step ? planned_count : 0);
  };
  return (step_ < Step::kCheck || name_lock_.is_taken()) &&
         (step_ < Step::kReserve || pool.is_as_planned(plan_.pool)) &&
         has_since(Step::kCheck, opened_.listeners.size(), plan_.services.size()) &&
         has_since(Step::kShards, shards_.size(), configuration_.shards.size()) &&
         has_since(Step::kMessengers, messengers_.size(), shards_.size()) &&
         has_since(Step::kServices, contexts_.size(), plan_.services.size()) &&
         has_since(Step::kMessaging, messaging_.group_count(), plan_.groups.size()) &&
         (step_ < Step::kMessaging || has_carved_its_own()) &&
         (step_ < Step::kPlan || pool.is_sealed() == (step_ >= Step::kSeal));
}

// Services may leave carves of theirs unused.
bool Appliance::has_carved_its_own() const noexcept {
  const PinnedPool& pool = process_pool();
  BP_ASSERT(pool.segment_count() <= plan_.pool.segments.size());
  for (uint32_t i = 1; i < pool.segment_count(); ++i) {
    const SegmentPlan& planned = plan_.pool.segments[i];
    const auto has_it = [&planned](const ServiceNeeds& needs) {
      return std::any_of(needs.segments.begin(), needs.segments.end(),
                         [&](const auto& segment) { return segment.owner == planned.owner; });
    };
    if (std::any_of(plan_.services.begin(), plan_.services.end(), has_it)) continue;
    if (pool.segment(i).carved_bytes != planned.carved_bytes()) return false;
  }
  return true;
}

bool Appliance::has_running_shards() const noexcept {
  return std::any_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard->is_running(); });
}

Result<void> Appliance::call_services(const char* doing, Result<void> (Service::*call)()) {
  for (Service* service : configuration_.services) {
    supervision_.begins(doing, service->name());
    BP_TRY(call_service(*service, doing,
                        [&] { return in_service(*service, [&] { return (service->*call)(); }); }));
  }
  return {};
}

// Reports all problems that can be found before anything is taken. Sockets and files that another
// appliance of this name may use are checked only after the name is locked.
std::vector<Error> Appliance::check() {
  BP_ASSERT(step_ == Step::kPlan);
  if (auto may = check_calls(configuration_, plan_); !may.ok()) return {may.error()};
  std::vector<Error> problems = preflight(configuration_, plan_);
  const ApplianceSettings& settings = configuration_.appliance;
  if (auto given = give_runtime_directory(configuration_); !given.ok()) {
    problems.push_back(given.error());
  }
  if (auto taken = name_lock_.take(settings.runtime_directory, settings.name); !taken.ok()) {
    problems.push_back(taken.error());
  } else if (auto made = counters_.create(name_lock_, plan_.counters(), plan_.traces); !made.ok()) {
    problems.push_back(made.error());
  } else {
    counters_.keep_crashes();
  }
  if (name_lock_.is_nobody_elses()) {
    opened_ = open_all(configuration_, plan_, OpeningPurpose::kBoot, &problems);
    peers_->open(configuration_, plan_, &problems);
  }
  if (!problems.empty()) return problems;
  pool_counters_.create(counters_, plan_);
  alerts_.create(counters_, plan_.counters());
  return problems;
}

std::vector<FileOptions> Appliance::files_on(uint32_t shard) {
  std::vector<FileOptions> files;
  for (const OpenedFile& file : opened_.files) {
    if (file.shard != shard) continue;
    BP_ASSERT(file.counters != nullptr);
    files.push_back(file.options);
    files.back().counters = new (counters_.values(*file.counters)) FileCounters;
  }
  return files;
}

uint64_t Appliance::file_patience_ns() const noexcept {
  return std::max(configuration_.appliance.drain_timeout_ms * kNsPerMs, kFilePatienceMinNs);
}

Result<void> Appliance::start_shards() {
  BP_ASSERT(step_ == Step::kReserve);  // the shards' threads take heap memory
  if (const uint64_t stall_ns = configuration_.event_loop.stall_ms * kNsPerMs; stall_ns > 0) {
    signals_.give_pulse(std::clamp(stall_ns / 4, uint64_t{kNsPerMs}, kPulsePeriodNsMax));
  }
  size_t file_count = 0;
  for (const ShardSettings& settings : configuration_.shards) {
    const auto index = static_cast<uint32_t>(shards_.size());
    const ShardNeeds needs = plan_.needs_on(index);
    ShardOptions options;
    options.settings = settings;
    options.event_loop = configuration_.event_loop;
    options.socket_count_max = std::max(needs.connections, 1U);
    options.source_count = kRuntimeSourceCount + needs.sources;
    options.watch_count = needs.watches;
    options.plan = plan_.shard_plan(index, settings.name);
    options.files = files_on(index);
    file_count += options.files.size();
    options.file_patience_ns = file_patience_ns();
    options.sockets_name = "a callback of sockets" + plan_.socket_users(index);
    options.pulse = &signals_.pulse();
    options.counters = &counters_.runtime<ShardCounters>("shard", settings.name);
    options.socket_counters = source_counters(index, "sockets");
    options.trace_records = counters_.trace_records(index);
    supervision_.begins("starting the shard", settings.name.c_str());  // each registers the pool
    shards_.push_back(std::make_unique<Shard>());
    BP_TRY(shards_.back()->create(options));
    core_watch_.add(configuration_.shards[index].name.c_str(), shards_.back()->thread_id(),
                    settings.cpu, *options.counters);
    supervision_.watch(options.counters->loop.iterations, shards_.back()->loop().doorbell());
    counters_.set_label("shard", settings.name, "backend", shards_.back()->sockets().name());
  }
  BP_ASSERT(file_count == opened_.files.size());  // every file is on an existing shard
  reached(Step::kShards);
  return {};
}

SourceCounters* Appliance::source_counters(uint32_t shard, const char* part) {
  const std::string instance = source_instance(configuration_.shards[shard].name, part);
  return &counters_.runtime<SourceCounters>("source", instance);
}

// Makes a messenger for each shard on which services, groups or peers exchange messages.
Result<void> Appliance::make_messengers() {
  BP_ASSERT(step_ == Step::kShards);
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    const bool is_needed = plan_.needs_on(i).has_messages || (i == 0 && !plan_.groups.empty()) ||
                           (plan_.peers.is_there && plan_.peers.shard == i);
    messengers_.push_back(!is_needed ? nullptr
                                     : std::make_unique<ShardMessenger>(
                                           configuration_.shards[i].name.c_str(), i,
                                           plan_.message_names, &shards_[i]->loop().thread()));
    if (!is_needed) continue;
    shards_[i]->loop().add_source(*messengers_[i], kMessageBudget, "a handler of messages",
                                  source_counters(i, "messages"));
  }
  if (plan_.has_shard_group) {
    std::vector<Doorbell*> doorbells;
    for (const auto& shard : shards_) doorbells.push_back(&shard->loop().doorbell());
    BP_TRY(shard_group_.create(configuration_, process_pool(), std::move(doorbells), messengers_,
                               counters_));
  }
  reached(Step::kMessengers);
  return {};
}

// Each service's allocations are charged to it. If messages are exchanged, services allocate
// outside the boot heap: a message may lend this memory to a process that cannot read segment 0.
Result<void> Appliance::create_services() {
  const bool has_messages = std::any_of(messengers_.begin(), messengers_.end(),
                                        [](const auto& messenger) { return messenger != nullptr; });
  if (has_messages) leave_boot_heap();
  BP_ASSERT(step_ == Step::kMessaging && opened_.listeners.size() == plan_.services.size());
  drains_.create(configuration_.services);
  for (size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = *shards_[i];
    shard_parts_.push_back({shard.loop(), shard.sockets(), shard.files(), shard.trace_ring(),
                            messengers_[i] ? &messengers_[i]->messenger() : nullptr});
  }
  const ServiceRuntime runtime = {
      configuration_, plan_,   process_pool(), shard_parts_, plan_.message_names,
      counters_,      *peers_, vfio_,          drains_};
  for (size_t i = 0; i < plan_.services.size(); ++i) {
    const ServiceNeeds& needs = plan_.services[i];
    const HeapOwnerScope scope(heap_owner_of(*needs.service));
    contexts_.push_back(std::make_unique<ServiceContext>(needs, runtime, opened_.listeners[i],
                                                         opened_.datagrams[i], tls_[i].get()));
    BP_TRY(check_stop());
    supervision_.begins("creating", needs.service->name());
    BP_TRY(call_service(*needs.service, "creating",
                        [&] { return needs.service->create(*contexts_.back()); }));
    BP_TRY(contexts_.back()->created());
  }
  signals_.count_in(counters_.runtime<SignalCounters>("signals"));
  if (!plan_.vfio_devices().empty()) vfio_counters_ = &counters_.runtime<VfioCounters>("vfio");
  reached(Step::kServices);
  return {};
}

Result<void> Appliance::create_peers() {
  const uint32_t shard = plan_.peers.shard;
  BP_ASSERT(step_ == Step::kMessengers);
  BP_ASSERT(shard < shards_.size());
  BP_TRY(peers_->create(configuration_, process_pool(), shards_[shard]->loop(),
                        messengers_[shard].get(), counters_));
  reached(Step::kPeers);
  return {};
}

// Runs after the peers, because joining processes are told of the device. Runs before the services,
// so that their messengers have all providers in create(); a process is reported there as not
// joined yet.
Result<void> Appliance::create_messaging() {
  BP_ASSERT(step_ == Step::kPeers && !shards_.empty());
  BP_TRY(messaging_.create(configuration_, plan_, process_pool(), messengers_[0].get(),
                           shards_[0]->loop().doorbell(), peers_->terms(), &opened_.joiners,
                           counters_));
  reached(Step::kMessaging);
  return {};
}

Result<void> Appliance::seal() {
  BP_ASSERT(step_ == Step::kServices && contexts_.size() == configuration_.services.size());
  const char* name = configuration_.appliance.name.c_str();
  PinnedPool& pool = process_pool();
  BP_TRY(sealing_.seal(configuration_, pool));
  const auto map = std::make_unique<PoolMap>();
  pool.write_map(map.get());
  pool_counters_.pool_sealed(pool, *map, static_cast<uint32_t>(sealing_.support_level()));
  refresh_counters();
  BP_TRY(PoolSealing::audit(*map));
  counters_.publish();
  BP_LOG_INFO("%s: pool of %s sealed", name, format_bytes(pool.total_bytes()).text);
  PoolSealing::report_ways_back(name, pool);
  reached(Step::kSeal);
  return {};
}

void Appliance::start_serving() {
  reached(Step::kServing);  // from the first run() on, shards serve
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ShardSettings& settings = configuration_.shards[i];
    BP_LOG_INFO("shard %s on core %d, sockets through %s", settings.name.c_str(), settings.cpu,
                shards_[i]->sockets().name());
  }
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    shards_[i]->run([this, i] {
      if (plan_.peers.shard == i) peers_->begin();
      for (Service* service : configuration_.services) {
        in_service(*service, [&] { service->start(i); });
      }
    });
  }
}

void Appliance::refresh_counters() noexcept {
  pool_counters_.refresh();
  messaging_.refresh_counters();
  peers_->refresh_counters();
  if (vfio_counters_ == nullptr) return;
  vfio_counters_->groups.set(vfio_.group_count());
  vfio_counters_->mappings_left.set(vfio_.mappings_left());
}

int Appliance::serve_until_signal() {
  BP_ASSERT(step_ == Step::kServing);
  const HeapOwnerScope scope(kRuntimeOwner);
  const char* name = configuration_.appliance.name.c_str();
  int signal_number = -1;
  while (signal_number < 0 && !messaging_.must_stop()) {
    signal_number = signals_.wait(std::min(kRefreshNs, supervision_.turn_ns_max()), name);
    refresh_counters();
    tell_dropped_lines();
    tick();
    drains_.turn();
  }
  if (signal_number > 0) BP_LOG_INFO("%s: signal %d, draining", name, signal_number);
  supervision_.drains(configuration_.appliance.drain_timeout_ms * kNsPerMs + file_patience_ns());
  drain();
  stop();
  refresh_counters();
  return std::max(signal_number, 0);
}

// The order matters: the threads of messaging and peers ring the shards, and no shard may poll a
// peer that is closed.
void Appliance::stop() noexcept {
  messaging_.stop();
  for (auto& shard : shards_) shard->stop();
  reached(Step::kStopped);
  peers_->close();
  for (Service* service : configuration_.services) {
    if (!in_service(*service, [&] { return service->stopped(); })) has_left_threads_ = true;
  }
}

// If anything may still use the shards, they are leaked, with all that they use.
Appliance::~Appliance() {
  stop();
  if (!has_left_operations()) return;
  for (auto& shard : shards_) (void)shard.release();
}

bool Appliance::has_left_operations() const noexcept {
  if (has_left_threads_) return true;
  return std::any_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard->has_left_operations(); });
}

void Appliance::tick() noexcept {
  for (Service* service : configuration_.services) {
    in_service_on_main_thread(*service, "tick()", [&] { service->tick(); });
  }
  core_watch_.look();
  add_up_shards(counters_.header());
  alerts_.look(monotonic_ns());  // last: includes the latest alerts of the services
  if (!supervision_.is_there()) return;
  supervision_.turn(raised_alert_count(counters_.view()), monotonic_ns());
}

// The names of services and peers that are not drained: "cache, peers". Empty: all are drained.
std::string Appliance::undrained() const {
  std::string names = drains_.undrained();
  if (!peers_->is_drained()) add_word(&names, "peers");
  return names;
}

void Appliance::drain() noexcept {
  BP_ASSERT(step_ == Step::kServing);  // shards run, and can do their part
  drains_.begin_all();
  peers_->request_drain();
  const uint64_t timeout_ns = configuration_.appliance.drain_timeout_ms * kNsPerMs;
  const uint64_t deadline_ns = monotonic_ns() + timeout_ns;
  Progress progress("draining", {.wait_max_ns = timeout_ns});
  for (std::string left = undrained(); !left.empty(); left = undrained()) {
    if (monotonic_ns() >= deadline_ns) {
      BP_LOG_WARNING("%s: %s not drained after %u ms: stopping, and closing what is still open",
                     configuration_.appliance.name.c_str(), left.c_str(),
                     configuration_.appliance.drain_timeout_ms);
      return;
    }
    const timespec pause = {0, kDrainPollNs};
    nanosleep(&pause, nullptr);
    progress.look();
    tick();
    drains_.turn();  // asks `services` again which drain hangs
  }
}

}  // namespace bedplate
