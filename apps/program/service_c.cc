// Services in C: what bedplate_service.h promises, on the service seam.
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <new>

#include <unistd.h>

#include "apps/boot/messages_c.h"
#include "apps/boot/service_context.h"
#include "apps/boot/bedplate_service.h"
#include "apps/program/program.h"
#include "platform/log.h"

using namespace bedplate;

static_assert(sizeof(Timer) <= sizeof(bp_timer::reserved));
// A call is one of the loop's: so posting it writes nothing that another thread may be reading.
static_assert(sizeof(LoopCall) == sizeof(bp_call));
static_assert(offsetof(LoopCall, function) == offsetof(bp_call, function));
static_assert(offsetof(LoopCall, context) == offsetof(bp_call, context));
static_assert(sizeof(Counter) == 8);

struct bp_loop {
  EventLoop* loop = nullptr;
  StreamSockets* sockets = nullptr;
};

struct bp_stream {
  struct Half {
    iovec piece = {};
    void (*done)(void* context, int64_t result) = nullptr;
    void* context = nullptr;
  };
  StreamSocket socket;
  StreamSockets* sockets = nullptr;
  Half receive;
  Half send;
};

namespace {

struct Source final : PollSource {
  uint32_t poll(uint32_t budget) noexcept override { return function(self, budget); }
  unsigned (*function)(void* self, unsigned budget) = nullptr;
  void* self = nullptr;
};

struct Listener {
  StreamListener listener;
  unsigned shard = 0;
  void (*accepted)(void* self, int fd) = nullptr;
  void* self = nullptr;
};

class CService final : public Service {
 public:
  explicit CService(const bp_service& service) : c_(service) {}

  const char* name() const noexcept override { return c_.name; }
  void describe(ConfigurationTable& table) override;
  Result<void> plan(ServicePlan& plan) override;
  Result<void> create(ServiceContext& context) override;
  void start(uint32_t shard) noexcept override;
  void request_drain() noexcept override;
  bool is_drained() const noexcept override {
    return c_.drain == nullptr || has_drained.load(std::memory_order_acquire);
  }

  struct Text {
    std::string text;
    const char** to = nullptr;
  };
  struct Addresses {
    std::string key;
    std::vector<SocketAddress> addresses;
  };
  // The drain on one shard.
  struct Draining {
    LoopCall call;
    CService* service = nullptr;
    unsigned shard = 0;
  };

  std::deque<Text> texts;
  std::deque<Addresses> listens;
  CounterSet counters;
  ServiceContext* context = nullptr;
  std::byte* counter_memory = nullptr;
  std::deque<bp_loop> loops;         // of each shard
  std::deque<bp_member> members;     // the same
  std::deque<Source> sources;
  std::deque<Listener> listeners;
  std::deque<bp_stream> streams;
  std::atomic<bool> has_drained{false};

 private:
  void drain(unsigned shard) noexcept;

  bp_service c_;
  std::deque<Draining> draining_;  // of each shard
};

// What the C function has said, or forgotten to say.
Result<void> outcome_of(int returned) {
  if (returned == 0) return {};
  return c_last_error();
}

}  // namespace

struct bp_table {
  ConfigurationTable& table;
  CService& service;
};
struct bp_plan {
  ServicePlan& plan;
  CService& service;
};
// The context is the service as it runs.
static CService& of(bp_context* context) noexcept { return *reinterpret_cast<CService*>(context); }

void CService::describe(ConfigurationTable& table) {
  texts.clear();
  listens.clear();
  bp_table described{table, *this};
  if (c_.describe != nullptr) c_.describe(c_.self, &described);
}

Result<void> CService::plan(ServicePlan& plan) {
  for (Text& text : texts) *text.to = text.text.c_str();
  for (const Addresses& listen : listens) plan.listen(listen.key.c_str(), listen.addresses);
  counters = {c_.name, "counters", "", 0, {}};
  bp_plan planned{plan, *this};
  if (c_.plan != nullptr) BP_TRY(outcome_of(c_.plan(c_.self, &planned)));
  if (!counters.counters.empty()) plan.counters(counters);
  return {};
}

Result<void> CService::create(ServiceContext& its_context) {
  context = &its_context;
  for (uint32_t shard = 0; shard < context->shard_count(); ++shard) {
    loops.push_back({&context->loop(shard), &context->sockets(shard)});
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
    auto memory = context->counter_memory(counters.name, "", counters.bytes);
    BP_TRY(memory);
    counter_memory = static_cast<std::byte*>(memory.value());
    for (const CounterDescription& counter : counters.counters) {
      std::byte* const place = counter_memory + counter.offset;
      counter.kind == CounterKind::kHistogram ? static_cast<void>(new (place) Histogram)
                                              : static_cast<void>(new (place) Counter);
    }
  }
  if (c_.create == nullptr) return {};
  return outcome_of(c_.create(c_.self, reinterpret_cast<bp_context*>(this)));
}

void CService::start(uint32_t shard) noexcept {
  for (Listener& one : listeners) {
    if (one.shard == shard) loops[shard].sockets->start_listening(one.listener);
  }
  if (c_.start != nullptr) c_.start(c_.self, shard);
}

void CService::drain(unsigned shard) noexcept {
  for (Listener& one : listeners) {
    if (one.shard == shard) loops[shard].sockets->stop_listening(one.listener);
  }
  if (c_.drain != nullptr) c_.drain(c_.self, shard);
}

void CService::request_drain() noexcept {
  for (Draining& draining : draining_) loops[draining.shard].loop->submit(draining.call);
}

extern "C" {

int bp_main_of(unsigned version, size_t service_bytes, int count, char** words,
               const bp_service* services, size_t service_count) {
  if (version >> 16 != BP_VERSION >> 16 || service_bytes != sizeof(bp_service)) {
    Error error;
    error.kind = ErrorKind::kConfiguration;
    error.set_doing("starting the program");
    error.set_answer("it was compiled with version %x of bedplate_service.h, the archive has %x",
                     version, BP_VERSION);
    log_error(error.set_cure("compile it with the header that belongs to the archive"));
    return static_cast<int>(error.kind);
  }
  static std::deque<CService> made;
  static std::vector<Service*> all;
  for (size_t i = 0; i < service_count; ++i) all.push_back(&made.emplace_back(services[i]));
  return run_program(count, words, all);
}

int bp_fail(const char* doing, const char* answer, const char* cure) {
  return c_fail(Error{}.set_doing("%s", doing).set_answer("%s", answer).set_cure("%s", cure));
}

// ---- Its table ----

void bp_table_integer(bp_table* table, const char* key, uint64_t* value, uint64_t min,
                      uint64_t max, const char* help) {
  table->table.integer(key, value, min, max).help(help);
}
void bp_table_size(bp_table* table, const char* key, uint64_t* value, uint64_t min, uint64_t max,
                   const char* help) {
  table->table.size(key, value, min, max).help(help);
}
void bp_table_boolean(bp_table* table, const char* key, int* value, const char* help) {
  table->table.boolean(key, value).help(help);
}
void bp_table_text(bp_table* table, const char* key, const char** value, size_t bytes_max,
                   const char* help) {
  CService::Text& text = table->service.texts.emplace_back();
  text.text = *value == nullptr ? "" : *value;
  text.to = value;
  table->table.text(key, &text.text, 0, bytes_max).help(help);
}
void bp_table_shard(bp_table* table, const char* key, unsigned* value, const char* help) {
  table->table.shard(key, value).help(help);
}
void bp_table_listen(bp_table* table, const char* key, const char* help) {
  CService::Addresses& listen = table->service.listens.emplace_back();
  listen.key = key;
  table->table.addresses(key, &listen.addresses, 1, 8).required().unique().help(help);
}

// ---- Its plan ----

unsigned bp_plan_shard_count(const bp_plan* plan) {
  return static_cast<unsigned>(plan->plan.configuration().shards.size());
}
void bp_plan_memory(bp_plan* plan, const char* owner, size_t bytes, unsigned shard) {
  plan->plan.segment(owner, {{owner, bytes}}, plan->plan.placement(shard));
}
void bp_plan_heap(bp_plan* plan, size_t bytes) { plan->plan.heap(bytes); }
void bp_plan_connections(bp_plan* plan, unsigned shard, unsigned count, const char* key) {
  plan->plan.connections(shard, count, key);
}
void bp_plan_timers(bp_plan* plan, unsigned shard, unsigned count) {
  plan->plan.timers(shard, count);
}
void bp_plan_sources(bp_plan* plan, unsigned shard, unsigned count) {
  plan->plan.sources(shard, count);
}
void bp_plan_messages(bp_plan* plan, unsigned shard) { plan->plan.messages(shard); }
void bp_plan_message(bp_plan* plan, const char* name) { plan->plan.message(name); }

// Each counter has a line of its own: any thread may be its writer.
static void plan_counter(bp_plan* plan, const char* name, CounterKind kind, const char* unit,
                         const char* help) {
  CounterSet& set = plan->service.counters;
  set.counters.push_back({name, kind, unit, help, set.bytes});
  set.bytes += static_cast<uint32_t>(align_up(bytes_of(kind), kCacheLineBytes));
}
void bp_plan_counter(bp_plan* plan, const char* name, const char* unit, const char* help) {
  plan_counter(plan, name, CounterKind::kCounter, unit, help);
}
void bp_plan_gauge(bp_plan* plan, const char* name, const char* unit, const char* help) {
  plan_counter(plan, name, CounterKind::kGauge, unit, help);
}

void bp_plan_histogram(bp_plan* plan, const char* name, const char* unit, const char* help) {
  plan_counter(plan, name, CounterKind::kHistogram, unit, help);
}

// ---- What it gets ----

void* bp_carve(bp_context* context, const char* owner, size_t* bytes) {
  auto memory = of(context).context->carve(owner);
  if (!memory.ok()) return c_fail(memory.error()), nullptr;
  if (bytes != nullptr) *bytes = memory.value().size();
  return memory.value().data();
}

// Where one that was planned lies.
static std::byte* counter_place(bp_context* context, const char* name, bool is_histogram) {
  CService& service = of(context);
  for (const CounterDescription& counter : service.counters.counters) {
    if (counter.name != name) continue;
    BP_ASSERT((counter.kind == CounterKind::kHistogram) == is_histogram);
    return service.counter_memory + counter.offset;
  }
  BP_ASSERT(false && "the counter is not planned");
  return nullptr;
}
bp_counter* bp_counter_of(bp_context* context, const char* name) {
  return reinterpret_cast<bp_counter*>(counter_place(context, name, false));
}
void bp_counter_add(bp_counter* counter, uint64_t amount) {
  reinterpret_cast<Counter*>(counter)->add(amount);
}
void bp_counter_set(bp_counter* counter, uint64_t value) {
  reinterpret_cast<Counter*>(counter)->set(value);
}
bp_histogram* bp_histogram_of(bp_context* context, const char* name) {
  return reinterpret_cast<bp_histogram*>(counter_place(context, name, true));
}
void bp_histogram_add(bp_histogram* histogram, uint64_t value) {
  reinterpret_cast<Histogram*>(histogram)->add(value);
}

int bp_add_source(bp_context* context, unsigned shard,
                  unsigned (*poll)(void* self, unsigned budget), void* self, unsigned budget) {
  CService& service = of(context);
  Source& source = service.sources.emplace_back();
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
  for (const Fd& socket : listening.value()) {
    Listener& one = service.listeners.emplace_back();
    one.shard = shard;
    one.accepted = accepted;
    one.self = self;
    one.listener.fd = socket.number();
    one.listener.context = &one;
    one.listener.accepted = [](void* its, int fd) noexcept {
      auto& listener = *static_cast<Listener*>(its);
      listener.accepted(listener.self, fd);
    };
  }
  return 0;
}

bp_stream* bp_stream_create(bp_context* context, unsigned shard) {
  CService& service = of(context);
  bp_stream& stream = service.streams.emplace_back();
  stream.sockets = &service.context->sockets(shard);
  return &stream;
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

void bp_drained(bp_context* context) {
  of(context).has_drained.store(true, std::memory_order_release);
}

// ---- On the shard's thread ----

bp_loop* bp_loop_of(bp_context* context, unsigned shard) { return &of(context).loops[shard]; }

uint64_t bp_loop_now_ns(const bp_loop* loop) { return loop->loop->now_ns(); }

// The loop's own lies in `reserved`, and stays there between two calls.
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
  loop->loop->timers().arm(*own, loop->loop->now_ns() + after_ns);
}
void bp_timer_cancel(bp_loop* loop, bp_timer* timer) {
  auto* own = reinterpret_cast<Timer*>(timer->reserved);
  if (own->expired != nullptr) loop->loop->timers().cancel(*own);
}

// Zeroed memory is a call that is not pending.
void bp_post(bp_loop* loop, bp_call* call) {
  loop->loop->submit(*reinterpret_cast<LoopCall*>(call));
}

int bp_stream_open(bp_stream* stream, int fd) {
  stream->socket.fd = fd;
  return stream->sockets->attach(stream->socket);
}
void bp_stream_close(bp_stream* stream) {
  stream->sockets->detach(stream->socket);
  close(stream->socket.fd);
  stream->socket.fd = -1;
}
void bp_stream_abort(bp_stream* stream) { stream->sockets->abort(stream->socket); }

static void begin(SocketOperation& operation, bp_stream::Half& half, void* memory, size_t bytes,
                  size_t min, void (*done)(void* context, int64_t result), void* context) {
  half = {{memory, bytes}, done, context};
  operation.pieces = &half.piece;
  operation.piece_count = 1;
  operation.min_bytes = min;
  operation.context = &half;
  operation.completed = [](void* self, int64_t result) noexcept {
    const auto& ended = *static_cast<bp_stream::Half*>(self);
    ended.done(ended.context, result);
  };
}
void bp_stream_receive(bp_stream* stream, void* into, size_t bytes, size_t min,
                       void (*done)(void* context, int64_t result), void* context) {
  begin(stream->socket.receive, stream->receive, into, bytes, min, done, context);
  stream->sockets->receive(stream->socket);
}
void bp_stream_send(bp_stream* stream, const void* from, size_t bytes,
                    void (*done)(void* context, int64_t result), void* context) {
  begin(stream->socket.send, stream->send, const_cast<void*>(from), bytes, bytes, done, context);
  stream->sockets->send(stream->socket);
}

}  // extern "C"
