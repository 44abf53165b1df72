// Requests and replies in C: bedplate_session.h, implemented on StreamServer and StreamSession.
#include "apps/c_interface/session_c.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "apps/boot/service_context.h"
#include "apps/c_interface/service_c.h"
#include "apps/services/service_plan.h"
#include "apps/services/tls_keys.h"

using namespace bedplate;

static_assert(static_cast<int>(StreamStep::kTaken) == BP_TAKEN);
static_assert(static_cast<int>(StreamStep::kStarved) == BP_STARVED);
static_assert(static_cast<int>(StreamStep::kWaits) == BP_WAITS);
static_assert(StreamSession::kStepTextBytes == BP_STEP_TEXT_BYTES);
static_assert(LaterAnswer::kTextBytes == BP_STEP_TEXT_BYTES);
static_assert(StreamSession::kStepLoans == BP_STEP_LOANS);
static_assert(std::string_view(StreamSession::kTraceStations) == BP_SESSION_STATIONS);

namespace bedplate {
namespace {

constexpr const char* kCounters = "server";

uint64_t whole_lines(uint64_t bytes) noexcept { return align_up(bytes, kCacheLineBytes); }

// The parts of a session's memory.
std::span<char> chars(CServerPlace& place, uint64_t bytes) noexcept {
  const std::span<std::byte> taken = place.take(bytes);
  return {reinterpret_cast<char*>(taken.data()), bytes};
}
std::span<LaterAnswer> answers(CServerPlace& place) noexcept {
  const unsigned count = place.server.protocol().later_count;
  const std::span<std::byte> taken = place.take(count * sizeof(LaterAnswer));
  for (unsigned i = 0; i < count; ++i) new (taken.data() + i * sizeof(LaterAnswer)) LaterAnswer;
  return {reinterpret_cast<LaterAnswer*>(taken.data()), count};
}

}  // namespace

// ---- CServer ----

uint64_t CServer::session_bytes() const noexcept {
  return whole_lines(protocol_.input_bytes) + whole_lines(protocol_.output_bytes) +
         whole_lines(protocol_.later_count * sizeof(LaterAnswer)) +
         whole_lines(protocol_.state_bytes);
}

std::span<std::byte> CServerPlace::take(uint64_t bytes) noexcept {
  const std::span<std::byte> taken = memory.first(bytes);
  memory = memory.subspan(whole_lines(bytes));
  return taken;
}

PlacedServerPlan CServer::planned() const {
  return {.service = service_,
          .name = name_,
          .shards = shards_,
          .connection_count = connections_,
          .connection_key = key_.empty() ? nullptr : key_.c_str(),
          .listen_key = nullptr,
          .more_connection_bytes = session_bytes(),
          .is_traced = protocol_.is_traced != 0};
}

uint32_t CServer::connections_of_each() const {
  return PlacedServer::connections_of_each(planned());
}

// On one shard the set is called "server", and its instance as the server is; on several it is
// called as the server is, and has their names as its instances.
void CServer::plan(ServicePlan& plan) {
  server_.plan_parts(plan, planned(), StreamServers::bytes_for<CSession>(connections_of_each()));
  StreamServerCounters sample;
  CounterTable table(&sample);
  describe(table, sample, key_.empty() ? nullptr : key_.c_str());
  const CounterDescriptions described(table.take());
  if (shards_.size() == 1) {
    return plan.counters({service_, kCounters, name_, sizeof sample, described});
  }
  for (const uint32_t shard : shards_) {
    if (shard >= plan.configuration().shards.size()) return;  // it is refused already
    plan.counters(on_shard({service_, name_, "", sizeof sample, described},
                           plan.configuration().shards[shard].name, shards_.size()));
  }
}

Result<StreamServerCounters*> CServer::counters(ServiceContext& context, uint32_t shard) const {
  if (shards_.size() == 1) return context.counters<StreamServerCounters>(kCounters, name_);
  return context.shard_counters<StreamServerCounters>(name_.c_str(), shard);
}

StreamServerOptions CServer::options() const {
  StreamServerOptions options;
  options.name = service_.c_str();
  options.has_layer_on_request = protocol_.has_tls_on_request != 0;
  options.silence_ns_max = protocol_.silence_s_max * kNsPerSecond;
  if (protocol_.answer_s_max == BP_ANSWERS_ANY_TIME) {
    options.answer_ns_max = 0;
  } else if (protocol_.answer_s_max != 0) {
    options.answer_ns_max = protocol_.answer_s_max * kNsPerSecond;
  }
  return options;
}

Result<void> CServer::create(ServiceContext& context, const char* listen, CTls* tls) {
  if (!listen_.empty() && listen_ != listen) {
    return error_while("creating the server %s at the addresses of %s", name_.c_str(), listen)
        .set_answer("it is planned for those of %s", listen_.c_str())
        .set_cure("give bp_plan_server_on and bp_server_listen the same key");
  }
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    const uint32_t shard = shards_[i];
    StreamServerOptions its_options = options();
    if (tls != nullptr) {
      BP_TRY_ASSIGN(its_options.layers, tls->layers(context, shard));
    }
    BP_TRY_ASSIGN(PlacedServer::Place place, server_.take_place(context, i, its_options));
    BP_TRY_ASSIGN(place.options.counters, counters(context, shard));
    const uint64_t bytes = StreamServers::bytes_for<CSession>(connections_of_each());
    CServerPlace& own =
        places_.emplace_back(CServerPlace{*this, shard, place.memory.subspan(bytes)});
    BP_TRY_ASSIGN(StreamServer* const made, server_.add<CSession>(context, place, own));
    BP_TRY_ASSIGN(const auto listening,
                  listen_.empty() ? context.listeners(listen) : context.listeners(listen, shard));
    for (const Fd& socket : listening) made->add_listener(socket.number());
  }
  return {};
}

// ---- CTls ----

void CTls::plan(ServicePlan& plan, const std::deque<CServer>& servers) {
  layers_.clear();
  std::map<uint32_t, uint32_t> counts;
  bool are_summed = false;
  for (const CServer& each : servers) {
    for (const uint32_t shard : each.shards()) counts[shard] += each.connections_of_each();
    are_summed |= each.shards().size() > 1;
  }
  for (const auto& [shard, count] : counts) {
    // The first shard's counters need no name beside the service's, unless there is a sum.
    const bool is_first = shard == counts.begin()->first;
    TlsTerms terms;
    terms.counters = is_first ? "" : "shard-" + std::to_string(shard);
    if (are_summed && shard < plan.configuration().shards.size()) {
      terms.counters = plan.configuration().shards[shard].name;
      terms.are_summed = true;
    }
    plan.tls(shard, count, files, terms);
  }
}

Result<StreamLayers*> CTls::layers(ServiceContext& context, uint32_t shard) {
  const auto found = layers_.find(shard);
  if (found != layers_.end()) return found->second;
  BP_TRY_ASSIGN(StreamLayers* const made, context.tls(shard));
  return layers_[shard] = made;
}

// ---- CSession ----

CSession::CSession(CServerPlace& place) noexcept
    : StreamSession(
          chars(place, place.server.protocol().input_bytes),
          chars(place, place.server.protocol().output_bytes), answers(place),
          place.server.protocol().any_order != 0 ? AnswerOrder::kAny : AnswerOrder::kOfRequests),
      place_(place),
      protocol_(place.server.protocol()),
      state_(place.take(protocol_.state_bytes).data()) {}

StreamStep CSession::work(uint64_t now_ns) noexcept {
  return static_cast<StreamStep>(protocol_.work(protocol_.self, as_c(), now_ns));
}
void CSession::released(void* loan) noexcept {
  if (protocol_.released != nullptr) protocol_.released(protocol_.self, as_c(), loan);
}
void CSession::left() noexcept {
  if (protocol_.left != nullptr) protocol_.left(protocol_.self, as_c());
}

}  // namespace bedplate

namespace {

// A bp_session is a CSession, a bp_later a LaterAnswer.
CSession& of(bp_session* session) noexcept { return *reinterpret_cast<CSession*>(session); }
const CSession& of(const bp_session* session) noexcept {
  return *reinterpret_cast<const CSession*>(session);
}
LaterAnswer& of(bp_later* later) noexcept { return *reinterpret_cast<LaterAnswer*>(later); }

std::string_view text_of(const void* text, size_t bytes) noexcept {
  return {static_cast<const char*>(text), bytes};
}

}  // namespace

extern "C" {

void bp_table_tls(bp_table* table, const char* page) {
  auto files = std::make_shared<TlsFiles>();
  table->keep(
      [files, &service = table->service](ServicePlan*) { service.tls.emplace().files = *files; });
  TlsKeyTerms terms;
  if (page != nullptr) terms.page = page;
  describe_tls_keys(table->table, files.get(), terms);
}

void bp_plan_server(bp_plan* plan, const char* name, unsigned shard, unsigned connections,
                    const char* key, const bp_protocol* protocol) {
  const std::vector<uint32_t> shards = {shard};
  CServer& server = plan->service.servers.emplace_back(plan->service.name(), name, shards,
                                                       connections, key, "", *protocol);
  server.plan(plan->plan);
}
void bp_plan_server_on(bp_plan* plan, const char* name, const unsigned* shards, size_t shard_count,
                       unsigned connections, const char* key, const char* listen,
                       const bp_protocol* protocol) {
  const std::vector<uint32_t> all(shards, shards + shard_count);
  CServer& server = plan->service.servers.emplace_back(plan->service.name(), name, all, connections,
                                                       key, listen, *protocol);
  server.plan(plan->plan);
}

int bp_server_listen(bp_context* context, const char* name, const char* listen) {
  CService& service = ::of(context);
  const auto found = std::find_if(service.servers.begin(), service.servers.end(),
                                  [name](const CServer& each) { return each.name() == name; });
  if (found == service.servers.end()) {
    return c_fail(error_while("creating the server %s", name)
                      .set_answer("it is not planned")
                      .set_cure("call bp_plan_server in plan"));
  }
  auto created = found->create(*service.context, listen, service.tls ? &*service.tls : nullptr);
  return created.ok() ? 0 : c_fail(created.error());
}

const char* bp_session_arrived(const bp_session* session, size_t* bytes) {
  const std::string_view text = of(session).arrived();
  *bytes = text.size();
  return text.data();
}
const char* bp_session_arrived_line(const bp_session* session, size_t* bytes) {
  const std::string_view text = of(session).arrived_line();
  *bytes = text.size();
  return text.data();
}
int bp_session_is_input_full(const bp_session* session) {
  return of(session).is_input_full() ? 1 : 0;
}
void bp_session_take(bp_session* session, size_t bytes) { of(session).take(bytes); }
void bp_session_skip(bp_session* session, uint64_t bytes) { of(session).skip(bytes); }
void bp_session_fill(bp_session* session, void* memory, uint64_t bytes) {
  of(session).fill(static_cast<char*>(memory), bytes);
}
void bp_session_want(bp_session* session, uint64_t arrived_bytes) {
  of(session).want(arrived_bytes);
}
void bp_session_say(bp_session* session, const char* text, size_t bytes) {
  of(session).say({text, bytes});
}
void bp_session_say_number(bp_session* session, uint64_t number) { of(session).say_number(number); }
void bp_session_lend(bp_session* session, const void* text, size_t bytes, void* loan) {
  of(session).lend(text_of(text, bytes), loan);
}
void bp_session_answered(bp_session* session, bp_histogram* time_ns, unsigned kind) {
  of(session).answered(*reinterpret_cast<Histogram*>(time_ns), static_cast<uint8_t>(kind));
}
void bp_session_end(bp_session* session) { of(session).end(); }
void bp_session_end_foreign(bp_session* session, const char* what) {
  of(session).end_foreign(what);
}
bp_later* bp_session_later(bp_session* session) {
  return reinterpret_cast<bp_later*>(&of(session).later());
}

bp_tls bp_session_tls(bp_session* session) {
  const SessionLayer& layer = of(session).layer();
  if (layer.has_begun()) return BP_TLS_BEGUN;
  switch (layer.use()) {
    case LayerUse::kNone: return BP_TLS_NONE;
    case LayerUse::kOffered: return BP_TLS_OFFERED;
    case LayerUse::kRequired: return BP_TLS_REQUIRED;
  }
  return BP_TLS_NONE;
}
void bp_session_start_tls(bp_session* session) { of(session).start_layer(); }

void* bp_session_state(bp_session* session) { return of(session).state(); }
unsigned bp_session_shard(const bp_session* session) { return of(session).shard(); }
void bp_session_resume(bp_session* session, uint64_t now_ns) { of(session).resume(now_ns); }
int bp_session_has_left(const bp_session* session) { return of(session).has_left() ? 1 : 0; }

void bp_later_say(bp_later* later, const char* text, size_t bytes) { of(later).say({text, bytes}); }
void bp_later_say_number(bp_later* later, uint64_t number) { of(later).say_number(number); }
void bp_later_lend(bp_later* later, const void* text, size_t bytes, void* loan) {
  of(later).lend(text_of(text, bytes), loan);
}
void bp_later_answered(bp_later* later, bp_histogram* time_ns, unsigned kind) {
  of(later).answered(*reinterpret_cast<Histogram*>(time_ns), static_cast<uint8_t>(kind));
}
int bp_later_is_wanted(const bp_later* later) {
  return reinterpret_cast<const LaterAnswer*>(later)->is_wanted() ? 1 : 0;
}
void bp_later_finish(bp_later* later, uint64_t now_ns) { of(later).finish(now_ns); }

}  // extern "C"
