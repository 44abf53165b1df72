// Services in C: bedplate_service.h, implemented on the service seam.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <new>

#include "apps/boot/service_context.h"
#include "apps/c_interface/bedplate_service.h"
#include "apps/c_interface/messages_c.h"
#include "apps/c_interface/service_c.h"
#include "apps/program/interface_check.h"
#include "apps/program/program.h"
#include "platform/log.h"

using namespace bedplate;

static_assert(sizeof(Timer) <= sizeof(bp_timer::reserved));
static_assert(sizeof(ShardQuestion) <= sizeof(bp_question::reserved));
static_assert(offsetof(bp_question, reserved) == 0);
static_assert(sizeof(RequestTrace) <= sizeof(bp_request::reserved));
// A bp_call is a LoopCall, so bp_post converts nothing, and writes nothing that another thread may
// read.
static_assert(sizeof(LoopCall) == sizeof(bp_call));
static_assert(offsetof(LoopCall, function) == offsetof(bp_call, function));
static_assert(offsetof(LoopCall, context) == offsetof(bp_call, context));
static_assert(sizeof(Counter) == 8);

namespace {

ProgramOptions product_options;  // bp_set_product()

// Calls a C function of the service. If it fails, returns the error that it has kept meanwhile.
template <typename Call>
Result<void> call_c(const char* service, const char* function, Call&& call) {
  c_forget_error();  // else an earlier one could be returned
  const int returned = call();
  if (returned == 0) return {};
  const Error& kept = c_last_error();  // an address's error has only answer and cure
  if (kept.doing[0] != '\0' || kept.answer[0] != '\0' || kept.cure[0] != '\0') return kept;
  return error_while("calling %s of the service %s", function, service)
      .set_answer("it returned %d without a reason", returned)
      .set_cure("call bp_fail before it returns");
}

}  // namespace

void CService::describe(ConfigurationTable& table) {
  if (!table.is_sample() && table_count_max() == 0) at_plan.clear();  // an earlier file's
  bp_table described{table, *this};
  if (c_.describe != nullptr) c_.describe(c_.self, &described);
}

void CService::hand_over_values() {
  for (const auto& call : at_plan) call(nullptr);
}

Result<void> CService::plan(ServicePlan& plan) {
  listens.clear();
  for (const auto& call : at_plan) call(&plan);
  files.clear();
  servers.clear();
  counters = {c_.name, "counters", "", 0, {}};
  bp_plan planned{plan, *this};
  if (c_.plan != nullptr) {
    BP_TRY(call_c(c_.name, "plan", [&] { return c_.plan(c_.self, &planned); }));
  }
  if (!counters.counters.empty()) plan.counters(counters);
  if (tls) tls->plan(plan, servers);
  for (const ListenNeed& each : listens) {
    ListenTerms terms;
    for (const CServer& server : servers) {
      if (server.listen() == each.key) terms.shards = server.shards();
    }
    plan.listen(each.key.c_str(), each.addresses, {}, terms);
  }
  for (const FileNeed& file : files) plan.file(file.shard, file.plan);
  return {};
}

// A bp_problems is the runtime's list.
void CService::preflight(std::vector<Error>* problems) {
  if (c_.preflight != nullptr) c_.preflight(c_.self, reinterpret_cast<bp_problems*>(problems));
}

Result<void> CService::prepare() {
  if (c_.prepare == nullptr) return {};
  return call_c(c_.name, "prepare", [this] { return c_.prepare(c_.self); });
}

Result<void> CService::sealed() {
  if (c_.sealed == nullptr) return {};
  return call_c(c_.name, "sealed", [this] { return c_.sealed(c_.self); });
}

Result<void> CService::create(ServiceContext& its_context) {
  context = &its_context;
  for (uint32_t shard = 0; shard < context->shard_count(); ++shard) {
    auto asker = context->asker(shard);
    loops.push_back(
        {&context->loop(shard), &context->sockets(shard), asker.ok() ? asker.value() : nullptr});
    bp_member& member = members.emplace_back();
    auto messenger = context->messenger(shard);
    if (messenger.ok()) member.messenger = messenger.value();
    Draining& draining = draining_.emplace_back();
    draining.service = this;
    draining.shard = shard;
    draining.call.context = &draining;
    draining.call.function = [](void* self) noexcept {
      static_cast<Draining*>(self)->service->drain(static_cast<Draining*>(self)->shard);
    };
  }
  if (!counters.counters.empty()) {
    BP_TRY_ASSIGN(const auto memory, context->counter_memory(counters.name, "", counters.bytes));
    counter_memory = static_cast<std::byte*>(memory);
    for (const CounterDescription& counter : counters.counters) {
      std::byte* const address = counter_memory + counter.offset;
      counter.kind == CounterKind::kHistogram ? static_cast<void>(new (address) Histogram)
                                              : static_cast<void>(new (address) Counter);
    }
  }
  if (c_.create == nullptr) return {};
  return call_c(c_.name, "create",
                [&] { return c_.create(c_.self, reinterpret_cast<bp_context*>(this)); });
}

void CService::start(uint32_t shard) noexcept {
  for (CListener& one : listeners) {
    if (one.shard == shard) loops[shard].sockets->start_listening(one.listener);
  }
  for (CServer& server : servers) {
    server.server().start(shard);
  }
  if (c_.start != nullptr) c_.start(c_.self, shard);
}

void CService::drain(unsigned shard) noexcept {
  for (CListener& one : listeners) {
    if (one.shard == shard) loops[shard].sockets->stop_listening(one.listener);
  }
  if (c_.drain != nullptr) c_.drain(c_.self, shard);
}

bool CService::is_drained() const noexcept {
  const auto is_done = [](const CServer& server) { return server.server().is_drained(); };
  return (c_.drain == nullptr || has_drained.load(std::memory_order_acquire)) &&
         std::all_of(servers.begin(), servers.end(), is_done);
}

void CService::request_drain() noexcept {
  for (CServer& server : servers) {
    server.server().request_drain();
  }
  for (Draining& draining : draining_) loops[draining.shard].loop->submit(draining.call);
}

// The loops' own ShardQuestion is stored in `reserved`, the first member.
static ShardQuestion* own_question(bp_question* question) noexcept {
  return reinterpret_cast<ShardQuestion*>(question);
}

extern "C" {

int bp_main_of(unsigned version, unsigned interface_number, size_t service_bytes, int count,
               char** words, const bp_service* services, size_t service_count) {
  auto fits = check_interface("its list of services",
                              {.interface_number = interface_number, .version = version});
  if (fits.ok() && service_bytes != sizeof(bp_service)) {
    fits = configuration_error_while("starting the program")
               .set_answer("its bp_service has %zu bytes, but the archive's has %zu", service_bytes,
                           sizeof(bp_service))
               .set_cure("declare it as bedplate_service.h of the archive does");
  }
  if (!fits.ok()) {
    log_error(fits.error());
    return static_cast<int>(fits.error().kind);
  }
  static std::deque<CService> made;
  static std::vector<Service*> all;
  all.clear();  // calls of an earlier, refused attempt
  made.clear();
  for (size_t i = 0; i < service_count; ++i) all.push_back(&made.emplace_back(services[i]));
  return run_program(count, words, all, product_options);
}

void bp_set_product(const char* name, const char* version, const char* summary) {
  product_options = {};
  if (name != nullptr) product_options.product = name;
  if (version != nullptr) product_options.version = version;
  if (summary != nullptr) product_options.summary = summary;
}

void bp_problem(bp_problems* problems, const char* doing, const char* answer, const char* cure) {
  reinterpret_cast<std::vector<Error>*>(problems)->push_back(
      error_while("%s", doing).set_answer("%s", answer).set_cure("%s", cure));
}

int bp_fail(const char* doing, const char* answer, const char* cure) {
  return c_fail(error_while("%s", doing).set_answer("%s", answer).set_cure("%s", cure));
}

// ---- Its context ----

void* bp_carve(bp_context* context, const char* owner, size_t* bytes) {
  auto memory = of(context).context->carve(owner);
  if (!memory.ok()) return c_fail(memory.error()), nullptr;
  if (bytes != nullptr) *bytes = memory.value().size();
  return memory.value().data();
}

// The memory of a planned counter.
static std::byte* memory_of_counter(bp_context* context, const char* name, bool is_histogram) {
  CService& service = of(context);
  for (const CounterDescription& counter : service.counters.counters) {
    if (counter.name != name) continue;
    BP_REQUIRE((counter.kind == CounterKind::kHistogram) == is_histogram,
               "service %s asks for the counter %s as another kind than it has planned: "
               "bp_counter_of, bp_histogram_of",
               service.name(), name);
    return service.counter_memory + counter.offset;
  }
  contract_broken("service %s asks for the counter %s and has not planned it: bp_plan_counter",
                  service.name(), name);
}
bp_counter* bp_counter_of(bp_context* context, const char* name) {
  return reinterpret_cast<bp_counter*>(memory_of_counter(context, name, false));
}
void bp_counter_add(bp_counter* counter, uint64_t amount) {
  reinterpret_cast<Counter*>(counter)->add(amount);
}
void bp_counter_set(bp_counter* counter, uint64_t value) {
  reinterpret_cast<Counter*>(counter)->set(value);
}
bp_histogram* bp_histogram_of(bp_context* context, const char* name) {
  return reinterpret_cast<bp_histogram*>(memory_of_counter(context, name, true));
}
void bp_histogram_add(bp_histogram* histogram, uint64_t value) {
  reinterpret_cast<Histogram*>(histogram)->add(value);
}

int bp_add_source(bp_context* context, unsigned shard,
                  unsigned (*poll)(void* self, unsigned budget), void* self, unsigned budget) {
  CService& service = of(context);
  CSource& source = service.sources.emplace_back();
  source.function = poll;
  source.self = self;
  auto added = service.context->add_source(shard, source, budget);
  return added.ok() ? 0 : c_fail(added.error());
}

int bp_listen(bp_context* context, const char* key, unsigned shard,
              void (*accepted)(void* self, int fd), void* self) {
  CService& service = of(context);
  auto listening = service.context->listeners(key);
  if (!listening.ok()) return c_fail(listening.error());
  if (service.tls && !service.tls->files.is_empty()) {
    return c_fail(error_while("listening at the addresses of %s", key)
                      .set_answer("the service has TLS, which only its servers speak")
                      .set_cure("serve the clients by bp_server_listen"));
  }
  for (const Fd& socket : listening.value()) {
    CListener& one = service.listeners.emplace_back();
    one.shard = shard;
    one.accepted = accepted;
    one.self = self;
    one.listener.fd = socket.number();
    one.listener.context = &one;
    one.listener.accepted = [](void* its, int fd) noexcept {
      auto& listener = *static_cast<CListener*>(its);
      listener.accepted(listener.self, fd);
    };
  }
  return 0;
}

bp_member* bp_shard_member(bp_context* context, unsigned shard) {
  CService& service = of(context);
  auto messenger = service.context->messenger(shard);
  if (!messenger.ok()) return c_fail(messenger.error()), nullptr;
  return &service.members[shard];
}

int bp_message_number(bp_context* context, const char* name) {
  auto number = of(context).context->message(name);
  return number.ok() ? number.value() : c_fail(number.error());
}

int bp_has_peers(bp_context* context) { return of(context).context->has_peers() ? 1 : 0; }
// The lower half of the key is the lkey (VerbsDevice::local_key).
size_t bp_key_of(bp_context* context, const void* memory, size_t bytes, uint32_t* key) {
  const KeyedRange found = of(context).context->key(memory, bytes);
  if (found.key == kNoKey) return 0;
  *key = static_cast<uint32_t>(found.key);
  return found.bytes;
}
struct ibv_pd* bp_domain_of(bp_context* context) {
  return of(context).context->verbs_domain();
}
void* bp_exported(bp_context* context, const char* name, size_t* bytes) {
  const std::span<std::byte> memory = of(context).context->exported(name);
  *bytes = memory.size();
  return memory.data();
}

bp_thread* bp_thread_start(bp_context* context, const char* name, void (*function)(void* context),
                           void* its_context) {
  bp_thread& thread = of(context).threads.emplace_back();
  thread.function = function;
  thread.context = its_context;
  const auto enter = [](void* self) noexcept {
    const auto& its = *static_cast<bp_thread*>(self);
    its.function(its.context);
  };
  auto started = thread.thread.start(name, enter, &thread);
  if (!started.ok()) return c_fail(started.error()), nullptr;
  return &thread;
}
void bp_thread_join(bp_thread* thread) { thread->thread.join(); }
int bp_thread_join_or_leave(bp_thread* thread, uint64_t patience_ns) {
  return thread->thread.join_or_leave(patience_ns) ? 1 : 0;
}

void bp_drained(bp_context* context) {
  of(context).has_drained.store(true, std::memory_order_release);  // pairs with is_drained()
}

// ---- On the shard's thread ----

bp_loop* bp_loop_of(bp_context* context, unsigned shard) {
  CService& service = of(context);
  BP_REQUIRE(shard < service.loops.size(),
             "service %s asks for shard number %u, and there are %zu: bp_loop_of", service.name(),
             shard, service.loops.size());
  return &service.loops[shard];
}

uint64_t bp_loop_now_ns(const bp_loop* loop) { return loop->loop->now_ns(); }
uint64_t bp_loop_look_at_clock(bp_loop* loop) { return loop->loop->look_at_clock(); }

bp_trace* bp_trace_of(bp_context* context, unsigned shard) {
  auto writer = of(context).context->trace(shard);
  if (!writer.ok()) return c_fail(writer.error()), nullptr;
  return &of(context).traces.emplace_back(bp_trace{writer.value()});
}
void bp_request_begin(bp_request* request, uint64_t now_ns) {
  (new (request->reserved) RequestTrace)->begin(now_ns);
}
void bp_request_pass(bp_request* request, unsigned station, uint64_t now_ns) {
  reinterpret_cast<RequestTrace*>(request->reserved)->pass(station, now_ns);
}
void bp_trace_write(bp_trace* trace, const bp_request* request, uint64_t handle, uint32_t bytes,
                    unsigned subject, unsigned kind) {
  trace->writer.write(*reinterpret_cast<const RequestTrace*>(request->reserved),
                      {handle, bytes, static_cast<uint16_t>(subject), static_cast<uint8_t>(kind)});
}

// The loop's own Timer is stored in `reserved`, and stays there between two calls.
void bp_timer_arm(bp_loop* loop, bp_timer* timer, uint64_t after_ns) {
  auto* own = reinterpret_cast<Timer*>(timer->reserved);
  if (own->expired == nullptr) {
    new (own) Timer;
    own->context = timer;
    own->expired = [](void* self) noexcept {
      auto* expired = static_cast<bp_timer*>(self);
      expired->expired(expired->context);
    };
  }
  BP_REQUIRE(timer->expired != nullptr, "a timer without a function is armed: bp_timer_arm");
  loop->loop->timers().arm(*own, loop->loop->now_ns() + after_ns);
}
void bp_timer_cancel(bp_loop* loop, bp_timer* timer) {
  auto* own = reinterpret_cast<Timer*>(timer->reserved);
  if (own->expired != nullptr) loop->loop->timers().cancel(*own);
}

// A zeroed call is one that is not pending.
void bp_post(bp_loop* loop, bp_call* call) {
  loop->loop->submit(*reinterpret_cast<LoopCall*>(call));
}

void bp_ask(bp_loop* from, bp_loop* to, bp_question* question,
            void (*answered)(bp_question* question)) {
  BP_REQUIRE(from->asker != nullptr,
             "a question is asked on a shard where none is planned: bp_plan_questions");
  BP_REQUIRE(question->asked != nullptr && answered != nullptr,
             "a question without a function is asked: bp_ask");
  ShardQuestion* const own = own_question(question);
  if (own->asked == nullptr) {
    new (own) ShardQuestion([](ShardQuestion& self) noexcept {
      auto* asked = reinterpret_cast<bp_question*>(&self);
      asked->asked(asked);
    });
  }
  BP_REQUIRE(!own->is_in_flight(), "a question is asked that is not answered yet: bp_ask");
  question->answered = answered;
  from->asker->ask(*to->loop, *own, [](ShardQuestion& self) noexcept {
    auto* asked = reinterpret_cast<bp_question*>(&self);
    asked->answered(asked);
  });
}
void bp_answer(bp_question* question) { own_question(question)->answer(); }

}  // extern "C"
