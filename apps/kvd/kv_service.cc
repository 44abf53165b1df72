#include "apps/kvd/kv_service.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <unistd.h>

#include "apps/boot/service_context.h"
#include "apps/boot/service_plan.h"

namespace bedplate {

struct KvService::Connection {
  explicit Connection(KvService& its_service) noexcept
      : service(its_service), session(its_service.environment_) {}

  KvService& service;
  StreamSocket socket;
  bool is_ending = false;  // nothing is received any more
  bool is_broken = false;  // nothing is sent any more, either
  Connection* next_free = nullptr;
  kvd::Session session;
};

// ---- before the seal ----------------------------------------------------------------------------

void KvService::describe(ConfigurationTable& table) {
  table.addresses("listen", &listen_, 1, kListenersMax)
      .required()
      .unique()
      .help("Where kvd listens; see Addresses below.");
  table.addresses("image_listen", &image_listen_, 1, kListenersMax)
      .otherwise("those of listen")
      .unique()
      .help("Where it listens instead as first process of an image.");
  table.shard("shard", &shard_).help("The shard that all of it lives on.");
  table.size("cache", &cache_bytes_, kMiB, kvd::Store::kMemoryMaxBytes)
      .rule(ConfigurationKey::Rule::kMultipleOf4KiB)
      .help("What keys and values may take. The index takes up to a sixteenth beside it.");
  table.size("max_value", &value_bytes_max_, kKiB, kGiB)
      .help("A longer value is refused. At most a quarter of the cache.");
  table.integer("max_connections", &max_connections_, 1, 65536)
      .help("How many clients may be connected. Their buffers are planned; one more is "
            "closed at once.");
  table.integer("client_timeout_s", &client_timeout_s_, 0, 3600)
      .help("After how long a client over TCP is disconnected whose host gives no sign of life, or "
            "that takes none of its replies. 0: it keeps its place for ever.");
}

Result<void> KvService::plan(ServicePlan& plan) {
  if (value_bytes_max_ > cache_bytes_ / 4) {
    Error error;
    error.kind = ErrorKind::kConfiguration;
    return error.set_doing("max_value in [kvd]")
        .set_answer("it is more than a quarter of the cache")
        .set_cure("raise cache, or lower max_value");
  }
  plan.segment(
      "kvd",
      {{"cache:kvd", cache_bytes_},
       {"index:kvd", kvd::Store::index_bytes(cache_bytes_)},
       {"connections:kvd", align_up(max_connections_ * sizeof(Connection), kCacheLineBytes)}},
      plan.placement(shard_));
  plan.connections(shard_, max_connections_, "max_connections");
  plan.listen("listen", listen_, image_listen_);
  plan.counters<kvd::Counters>("kvd");
  plan.messages(shard_);
  plan.message("get");
  plan.sources(shard_, 1);
  return {};
}

Result<void> KvService::create(ServiceContext& context) {
  loop_ = &context.loop(shard_);
  sockets_ = &context.sockets(shard_);
  auto counters = context.counters<kvd::Counters>("kvd");
  BP_TRY(counters);
  counters_ = counters.value();
  auto cache = context.carve("cache:kvd");
  BP_TRY(cache);
  auto index = context.carve("index:kvd");
  BP_TRY(index);
  auto memory = context.carve("connections:kvd");
  BP_TRY(memory);
  uint64_t seed = monotonic_ns();
  (void)getrandom(&seed, sizeof seed, GRND_NONBLOCK);
  store_.create(cache.value(), index.value(), seed, *counters_);
  environment_ = {&store_, counters_, value_bytes_max_, monotonic_ns()};
  auto messenger = context.messenger(shard_);
  BP_TRY(messenger);
  auto get = context.message("get");
  BP_TRY(get);
  message_gets_.create(*messenger.value(), get.value(), environment_, *loop_);
  BP_TRY(context.add_source(shard_, message_gets_, 64));
  connections_ = {reinterpret_cast<Connection*>(memory.value().data()), max_connections_};
  for (Connection& place : connections_) {
    auto* connection = new (&place) Connection(*this);
    connection->next_free = free_;
    free_ = connection;
  }
  auto listening = context.listeners("listen");
  BP_TRY(listening);
  for (const Fd& socket : listening.value()) {
    StreamListener& listener = listeners_[listener_count_++];
    listener.fd = socket.number();
    listener.silence_ns_max = client_timeout_s_ * kNsPerSecond;
    listener.context = this;
    listener.accepted = [](void* self, int fd) noexcept {
      static_cast<KvService*>(self)->accept(fd);
    };
  }
  return {};
}

// ---- on the shard -------------------------------------------------------------------------------

void KvService::start(uint32_t shard) noexcept {
  if (shard != shard_) return;
  for (uint32_t i = 0; i < listener_count_; ++i) sockets_->start_listening(listeners_[i]);
}

void KvService::accept(int fd) noexcept {
  Connection* connection = free_;
  if (connection != nullptr) connection->socket.fd = fd;
  if (connection == nullptr || is_draining_ || sockets_->attach(connection->socket) != 0) {
    counters_->connections_refused.add(1);
    ::close(fd);
    return;
  }
  free_ = connection->next_free;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails on a Unix socket: as well
  counters_->connections_total.add(1);
  counters_->connections_open.set(++open_count_);
  connection->is_ending = connection->is_broken = false;
  connection->socket.receive.context = connection->socket.send.context = connection;
  connection->socket.receive.completed = [](void* context, int64_t result) noexcept {
    auto& self = *static_cast<Connection*>(context);
    self.is_broken |= result < 0;
    self.is_ending |= result <= 0 || self.service.is_draining_;
    self.service.store_.set_time(self.service.loop_->now_ns());
    if (result > 0) self.session.received(static_cast<uint64_t>(result));
    self.service.advance(self);
  };
  connection->socket.send.completed = [](void* context, int64_t result) noexcept {
    auto& self = *static_cast<Connection*>(context);
    self.is_broken |= result < 0;
    self.session.sent();
    self.service.advance(self);
  };
  advance(*connection);
}

// Sends what is ready, receives where that makes sense, closes when nothing is left to do.
void KvService::advance(Connection& connection) noexcept {
  StreamSocket& socket = connection.socket;
  kvd::Session& session = connection.session;
  if (const auto pieces =
          connection.is_broken || socket.send.is_in_flight ? std::span<iovec>() : session.replies();
      !pieces.empty()) {
    socket.send.pieces = pieces.data();
    socket.send.piece_count = static_cast<uint32_t>(pieces.size());
    session.handed_over(loop_->look_at_clock());  // once for all that this send answers
    sockets_->send(socket);
  }
  connection.is_ending |= connection.is_broken || session.is_over();
  if (!connection.is_ending && !socket.receive.is_in_flight) {
    const kvd::Session::Input input = session.input();
    if (input.piece_count > 0) {
      socket.receive.pieces = input.pieces;
      socket.receive.piece_count = input.piece_count;
      socket.receive.min_bytes = input.min_bytes;
      sockets_->receive(socket);
    }
  }
  if (!connection.is_ending) return;
  if (socket.receive.is_in_flight) ::shutdown(socket.fd, SHUT_RD);
  if (connection.is_broken) sockets_->abort(socket);
  if (!socket.send.is_in_flight && !socket.receive.is_in_flight) close(connection);
}

void KvService::close(Connection& connection) noexcept {
  sockets_->detach(connection.socket);
  ::close(connection.socket.fd);
  connection.socket.fd = -1;
  connection.session.reset();
  connection.next_free = free_;
  free_ = &connection;
  counters_->connections_open.set(--open_count_);
  if (is_draining_ && open_count_ == 0) is_drained_.store(true, std::memory_order_release);
}

// What was received whole is answered: a connection ends with what its present receive brings.
void KvService::drain() noexcept {
  if (is_draining_) return;
  is_draining_ = true;
  for (uint32_t i = 0; i < listener_count_; ++i) sockets_->stop_listening(listeners_[i]);
  for (Connection& connection : connections_) {
    if (connection.socket.fd < 0) continue;
    if (connection.socket.receive.is_in_flight) {
      ::shutdown(connection.socket.fd, SHUT_RD);
    } else {
      connection.is_ending = true;
    }
  }
  if (open_count_ == 0) is_drained_.store(true, std::memory_order_release);
}

}  // namespace bedplate
