#include "transport/sockets/stream_acceptor.h"

#include "platform/assert.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {

bool StreamAcceptor::is_valid() const noexcept {
  return refused_.is_valid() &&
         (!is_drained() || (is_draining_ && open_count_ == 0 && is_settled()));
}

void StreamAcceptor::create(const StreamAcceptorOptions& options) noexcept {
  BP_ASSERT(options_.loop == nullptr && options.loop != nullptr && options.sockets != nullptr);
  BP_ASSERT(options.counters != nullptr && options.take != nullptr && options.drain != nullptr);
  options_ = options;
  if (options.refusals.are_any()) refused_.create(*options.sockets);
  if (options.moves == nullptr) return;
  options.moves->serve(
      {.arrived =
           [](void* self, const AcceptedClient& client) noexcept {
             static_cast<StreamAcceptor*>(self)->take(client);
           },
       .settled = [](void* self) noexcept { static_cast<StreamAcceptor*>(self)->look_drained(); },
       .context = this,
       .open = &options.counters->connections_open});
}

void StreamAcceptor::add(int fd, void* terms) noexcept {
  BP_DCHECK(options_.loop != nullptr && fd >= 0);
  BP_REQUIRE(listener_count_ < kListenersMax,
             "more than %u listeners are added: StreamServer::add_listener", kListenersMax);
  Listener& listener = listeners_[listener_count_++];
  listener.acceptor = this;
  listener.terms = terms;
  if (options_.layers != nullptr) listener.layer_use = options_.layers->use_on(fd);
  listener.is_only = !is_port_shared(fd);
  listener.socket.fd = fd;
  listener.socket.silence_ns_max = options_.silence_ns_max;
  listener.socket.context = &listener;
  listener.socket.accepted = [](void* context, int accepted_fd) noexcept {
    const auto& its = *static_cast<Listener*>(context);
    its.acceptor->accept({accepted_fd, its.layer_use, its.terms}, its.is_only);
  };
}

void StreamAcceptor::start() noexcept {
  BP_DCHECK(is_own_thread());
  for (uint32_t i = 0; i < listener_count_; ++i) {
    options_.sockets->start_listening(listeners_[i].socket);
  }
}

void StreamAcceptor::accept(const AcceptedClient& client, bool is_only) noexcept {
  BP_ASSERT(is_own_thread() && client.fd >= 0);
  if (const StreamRefusals& asked = options_.refusals; asked.refusal != nullptr) {
    char room[kWordsBytesMax];
    const std::string_view words = asked.refusal(asked.context, client.fd, std::span(room));
    if (!words.empty()) return refused_.refuse(client.fd, words);
  }
  ClientMoves* const moves = options_.moves;
  if (moves != nullptr && is_accepting() && moves->try_move(client, is_only)) return;
  take(client);
}

// The client has come here, or another shard has given it.
void StreamAcceptor::take(const AcceptedClient& client) noexcept {
  BP_ASSERT(is_own_thread() && client.fd >= 0);
  BP_KEEPS_VALID(*this);
  const AcceptOutcome outcome =
      is_accepting() ? options_.take(options_.context, client) : AcceptOutcome::kTurnedAway;
  if (outcome != AcceptOutcome::kTaken) refuse(client.fd, outcome);
}

void StreamAcceptor::refuse(int fd, AcceptOutcome outcome) noexcept {
  BP_DCHECK(outcome != AcceptOutcome::kTaken);
  const bool is_turned_away = outcome == AcceptOutcome::kTurnedAway;
  Counter* const counter = is_turned_away && options_.turned_away != nullptr
                               ? options_.turned_away
                               : &options_.counters->connections_refused;
  counter->add(1);
  const StreamRefusals& asked = options_.refusals;
  char room[kWordsBytesMax];
  const bool has_words = !is_draining_ && asked.too_many != nullptr;
  refused_.refuse(fd,
                  has_words ? asked.too_many(asked.context, std::span(room)) : std::string_view());
}

void StreamAcceptor::opened() noexcept {
  BP_DCHECK(is_own_thread() && !is_draining_);
  AcceptorCounters& counters = *options_.counters;
  counters.connections_total.add(1);
  counters.connections_open.set(++open_count_);
  counters.connections_peak.raise(open_count_);
}

void StreamAcceptor::closed() noexcept {
  BP_ASSERT(open_count_ > 0);
  BP_KEEPS_VALID(*this);
  options_.counters->connections_open.set(--open_count_);
  look_drained();
}

void StreamAcceptor::look_drained() noexcept {
  if (is_draining_ && open_count_ == 0 && is_settled()) {
    is_drained_.store(true, std::memory_order_release);
  }
}

void StreamAcceptor::drain() noexcept {
  BP_ASSERT(is_own_thread());
  if (is_draining_) return;
  BP_KEEPS_VALID(*this);
  is_draining_ = true;
  for (uint32_t i = 0; i < listener_count_; ++i) {
    options_.sockets->stop_listening(listeners_[i].socket);
  }
  options_.drain(options_.context);
  look_drained();
}

}  // namespace bedplate
