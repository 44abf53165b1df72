// The C interface to messages: implements bedplate.h with JoinedProcess.
#include <algorithm>
#include <bit>
#include <climits>
#include <new>

#include <poll.h>

#include "apps/c_interface/bedplate.h"
#include "apps/c_interface/messages_c.h"

using namespace bedplate;

static_assert(static_cast<int>(SendStatus::kDone) == BP_DONE);
static_assert(static_cast<int>(SendStatus::kPending) == BP_PENDING);
static_assert(static_cast<int>(SendStatus::kAgain) == BP_AGAIN);
static_assert(static_cast<int>(SendStatus::kGone) == BP_GONE);
static_assert(static_cast<int>(SendStatus::kTooLong) == BP_TOO_LONG);
static_assert(static_cast<int>(SendStatus::kRefused) == BP_REFUSED);
static_assert(static_cast<int>(Outcome::kDone) == BP_OUTCOME_DONE);
static_assert(static_cast<int>(Outcome::kNotDone) == BP_OUTCOME_NOT_DONE);
static_assert(static_cast<int>(Outcome::kUnknown) == BP_OUTCOME_UNKNOWN);
static_assert(static_cast<int>(PeerEventKind::kJoined) == BP_PEER_JOINED);
static_assert(static_cast<int>(PeerEventKind::kLeft) == BP_PEER_LEFT);
static_assert(static_cast<int>(PeerEventKind::kPoolGone) == BP_POOL_GONE);
static_assert(static_cast<int>(PeerEventKind::kCutOff) == BP_CUT_OFF);
static_assert(sizeof(Completion) == sizeof(bp_completion::reserved));
static_assert(sizeof(RemoteMemory) == sizeof(bp_remote));
static_assert(sizeof(NumberQuery) <= sizeof(bp_number_query::reserved));
static_assert(sizeof(RoomCall) <= sizeof(bp_room_call::reserved));

Result<void> (*bedplate::c_before_ready)(JoinedProcess&) = nullptr;

namespace {

// Lives until the process ends, like the memory that it maps.
constinit JoinedProcess* the_process = nullptr;
constinit bp_member* the_members = nullptr;
constinit bp_peer_handler on_peer = nullptr;
constinit void* on_peer_context = nullptr;

Endpoint& of(bp_endpoint* endpoint) noexcept { return *reinterpret_cast<Endpoint*>(endpoint); }

RemoteMemory of(const bp_remote& remote) noexcept { return std::bit_cast<RemoteMemory>(remote); }

// The C++ completion is stored in `reserved`, the first member of the C one.
Completion* of(bp_completion* completion) noexcept {
  if (completion == nullptr) return nullptr;
  return new (&completion->reserved) Completion{[](Completion& self, Outcome outcome) noexcept {
    auto* told = reinterpret_cast<bp_completion*>(&self);
    told->call(told, static_cast<bp_outcome>(outcome));
  }};
}

bp_status status_of(SendStatus status) noexcept { return static_cast<bp_status>(status); }

std::span<const std::byte> bytes_at(const void* memory, size_t bytes) noexcept {
  return {static_cast<const std::byte*>(memory), bytes};
}
std::span<std::byte> bytes_at(void* memory, size_t bytes) noexcept {
  return {static_cast<std::byte*>(memory), bytes};
}

void deliver(void* context, const Message& message) noexcept {
  const auto& handler = *static_cast<const bp_member::Handler*>(context);
  const Loan& loan = message.loan;
  const bp_message told = {reinterpret_cast<bp_endpoint*>(&message.from),
                           message.id,
                           message.payload.data(),
                           message.payload.size(),
                           {loan.memory.data(), loan.memory.size(),
                            std::bit_cast<bp_remote>(loan.remote), loan.provider, loan.token}};
  handler.function(handler.context, &told);
}

}  // namespace

extern "C" {

const char* bp_status_text(bp_status status) { return to_text(static_cast<SendStatus>(status)); }

void bp_on_peer(bp_peer_handler function, void* context) {
  on_peer = function;
  on_peer_context = context;
}

int bp_join(const char* socket, const char* process, unsigned member_count, unsigned timeout_ms) {
  JoinedProcessOptions options;
  options.join.socket_path = socket;
  options.join.process = process;
  options.join.member_count = member_count;
  options.join.timeout_ns = timeout_ms * kNsPerMs;
  options.on_peer = {[](void*, const PeerEvent& event) noexcept {
                       if (on_peer == nullptr) return;
                       on_peer(on_peer_context, static_cast<bp_peer_event>(event.kind),
                               event.member);
                     },
                     nullptr};
  if (c_before_ready != nullptr) options.before_ready = c_before_ready;
  auto joined = JoinedProcess::join(options);
  if (!joined.ok()) return c_fail(joined.error());
  the_process = joined.take().release();
  the_members = new (std::nothrow) bp_member[member_count];
  if (the_members == nullptr) {
    return c_fail(error_while("joining the pool at %s as %s", socket, process)
                      .set_answer("the heap is exhausted")
                      .set_cure("give the process more heap"));
  }
  for (unsigned i = 0; i < member_count; ++i) {
    the_members[i].messenger = &the_process->messenger(i);
    the_members[i].number = the_process->member(i);
  }
  return 0;
}

void bp_leave(void) { the_process->leave(); }

bp_member* bp_own_member(unsigned index) {
  BP_REQUIRE(the_process != nullptr, "a process without a pool asks for its member: bp_join");
  BP_REQUIRE(index < the_process->member_count(),
             "the process asks for its member %u, and has %u: bp_own_member", index,
             the_process->member_count());
  return &the_members[index];
}

unsigned bp_member_number(const bp_member* member) { return member->number; }

int bp_find_member(const char* process) {
  const uint32_t number = the_process->find_member(process);
  return number == UINT32_MAX ? -1 : static_cast<int>(number);
}

bp_endpoint* bp_connect(bp_member* self, unsigned number) {
  auto endpoint = self->messenger->connect({number});
  if (endpoint.ok()) return reinterpret_cast<bp_endpoint*>(endpoint.value());
  c_fail(endpoint.error());
  return nullptr;
}

void bp_set_handler(bp_member* self, unsigned char id, bp_handler handler, void* context) {
  self->handlers[id] = {handler, context};
  self->messenger->set_handler(id, {handler != nullptr ? &deliver : nullptr, &self->handlers[id]});
}

static void wake_up(bp_member* self) noexcept {
  if (self->descriptor != nullptr) self->descriptor->disarm();
}

unsigned bp_poll(bp_member* self, unsigned budget) {
  wake_up(self);
  return self->messenger->poll(budget);
}

void bp_wait(bp_member* self, unsigned timeout_ms) {
  if (self->descriptor == nullptr) return self->messenger->wait(timeout_ms * kNsPerMs);
  // The descriptor's thread sleeps on the member's doorbell. A second sleeper there misses rings.
  if (!self->descriptor->arm()) return;
  pollfd readable = {self->descriptor->fd(), POLLIN, 0};
  poll(&readable, 1, static_cast<int>(std::min<unsigned>(timeout_ms, INT_MAX)));
  wake_up(self);
}

int bp_member_fd(bp_member* self) {
  if (self->descriptor != nullptr) return self->descriptor->fd();
  BP_REQUIRE(the_process != nullptr && self >= the_members &&
                 self < the_members + the_process->member_count(),
             "a descriptor is asked for of a member that is no joined process's: bp_member_fd");
  const auto index = static_cast<uint32_t>(self - the_members);
  auto made = std::make_unique<MemberDescriptor>(the_process->parts(index));
  if (auto outcome = made->create(); !outcome.ok()) return c_fail(outcome.error());
  self->descriptor = made.release();  // lives until the process ends
  return self->descriptor->fd();
}

int bp_member_arm(bp_member* self) {
  BP_REQUIRE(self->descriptor != nullptr,
             "a member is armed that has no descriptor: bp_member_fd comes first");
  return self->descriptor->arm() ? 1 : 0;
}

void bp_notify_room(bp_member* self, bp_endpoint* to, bp_room_call* room) {
  auto* own = new (room->reserved) RoomCall;
  own->call = [](RoomCall& called) noexcept {
    auto* told = reinterpret_cast<bp_room_call*>(&called);
    told->call(told);
  };
  self->messenger->notify_room(of(to), *own);
}

void bp_take_back_room(bp_member* self, bp_room_call* room) {
  void* own = room->reserved;
  self->messenger->take_back(*static_cast<RoomCall*>(own));
}

bp_status bp_am_send(bp_endpoint* to, unsigned char id, const void* payload, size_t bytes) {
  return status_of(of(to).am_send(id, bytes_at(payload, bytes)));
}

bp_status bp_am_send_loan(bp_endpoint* to, unsigned char id, const void* header,
                          size_t header_bytes, void* block, size_t bytes, bp_completion* returned) {
  return status_of(of(to).am_send_loan(id, bytes_at(header, header_bytes), bytes_at(block, bytes),
                                       of(returned)));
}

bp_limits bp_limits_of(const bp_endpoint* to) {
  const EndpointLimits& limits = reinterpret_cast<const Endpoint*>(to)->limits();
  return {limits.am_bytes_max, limits.inline_bytes_max, limits.loan_header_bytes_max};
}

int bp_has_room(bp_endpoint* to) { return of(to).has_room() ? 1 : 0; }

const char* bp_provider_name(const bp_endpoint* to) {
  return reinterpret_cast<const Endpoint*>(to)->provider_name();
}

void bp_release(const bp_loan* loan) {
  if (loan->provider == nullptr) return;
  Loan returned;
  returned.provider = static_cast<Provider*>(loan->provider);
  returned.token = loan->token;
  returned.memory = bytes_at(loan->memory, loan->bytes);
  returned.remote = of(loan->remote);
  returned.provider->release(returned);
}

int bp_expose(bp_endpoint* to, void* memory, size_t bytes, bp_remote* described) {
  auto exposed = of(to).expose(bytes_at(memory, bytes));
  if (!exposed.ok()) return c_fail(exposed.error());
  *described = std::bit_cast<bp_remote>(exposed.value());
  return 0;
}

void bp_withdraw(bp_endpoint* to, const bp_remote* described) { of(to).withdraw(of(*described)); }

bp_status bp_put(bp_endpoint* to, const void* from, size_t bytes, const bp_remote* remote,
                 bp_completion* done) {
  return status_of(of(to).put(bytes_at(from, bytes), of(*remote), of(done)));
}

bp_status bp_get(bp_endpoint* from, void* into, size_t bytes, const bp_remote* remote,
                 bp_completion* done) {
  return status_of(of(from).get(bytes_at(into, bytes), of(*remote), of(done)));
}

bp_status bp_fetch_add(bp_endpoint* to, const bp_remote* remote, uint64_t addend, uint64_t* before,
                       bp_completion* done) {
  return status_of(of(to).fetch_add(of(*remote), addend, before, of(done)));
}

bp_status bp_compare_swap(bp_endpoint* to, const bp_remote* remote, uint64_t expected,
                          uint64_t desired, uint64_t* before, bp_completion* done) {
  return status_of(of(to).compare_swap(of(*remote), expected, desired, before, of(done)));
}

bp_status bp_flush(bp_endpoint* to, bp_completion* done) {
  return status_of(of(to).flush(of(done)));
}

bp_endpoint* bp_connect_by_name(bp_member* self, const char* name) {
  auto endpoint = self->messenger->connect({.name = name});
  if (endpoint.ok()) return reinterpret_cast<bp_endpoint*>(endpoint.value());
  c_fail(endpoint.error());
  return nullptr;
}

bp_status bp_ask_number(bp_member* self, bp_endpoint* peer, const char* name,
                        bp_number_query* query) {
  auto* own = new (query->reserved) NumberQuery;
  own->answered = [](NumberQuery& answered, std::optional<AmId> number) noexcept {
    auto* told = reinterpret_cast<bp_number_query*>(&answered);
    told->answered(told, number ? *number : -1);
  };
  return status_of(self->messenger->ask_number(of(peer), name, *own));
}

void bp_take_back_query(bp_member* self, bp_number_query* query) {
  void* own = query->reserved;
  self->messenger->take_back(*static_cast<NumberQuery*>(own));
}

}  // extern "C"
