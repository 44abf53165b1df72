#include <unistd.h>

#include <atomic>

#include "apps/boot/service_context.h"
#include "apps/program/program.h"

using namespace bedplate;
namespace {

struct EchoCounters {
  Counter connections;
  Counter bytes;
};

void describe(CounterTable& table, EchoCounters& counters) {
  table.counter("connections", counters.connections, "connections", "Clients that have connected.");
  table.counter("bytes", counters.bytes, "bytes", "Sent back to clients.");
}

class Echo;

// The memory of one client: planned, and carved once.
struct Connection {
  StreamSocket socket;
  Echo* echo = nullptr;
  Connection* next_free = nullptr;
  bool is_ending = false;
  iovec piece = {};
  char buffer[4096];
};

class Echo final : public Service {
  const char* name() const noexcept override { return "echo"; }

  void describe(ConfigurationTable& table) override {
    table.addresses("listen", &listen_, 1, 4).required().unique().help("Its addresses.");
    table.shard("shard", &shard_).help("The shard that it lives on.");
    table.integer("max_connections", &max_connections_, 1, 1024)
        .help("How many clients may be connected.");
  }

  Result<void> plan(ServicePlan& plan) override {
    const uint64_t bytes = align_up(max_connections_ * sizeof(Connection), kCacheLineBytes);
    plan.segment("echo", {{"connections:echo", bytes}}, plan.placement(shard_));
    plan.connections(shard_, max_connections_, "max_connections");
    plan.listen("listen", listen_);
    plan.counters<EchoCounters>("echo");
    return {};
  }

  Result<void> create(ServiceContext& context) override {
    auto memory = context.carve("connections:echo");
    BP_TRY(memory);
    auto counters = context.counters<EchoCounters>("echo");
    BP_TRY(counters);
    counters_ = counters.value();
    loop_ = &context.loop(shard_);
    sockets_ = &context.sockets(shard_);
    connections_ = {reinterpret_cast<Connection*>(memory.value().data()), max_connections_};
    for (Connection& slot : connections_) {
      auto* connection = new (&slot) Connection;
      connection->echo = this;
      connection->next_free = free_;
      free_ = connection;
    }
    auto listening = context.listeners("listen");
    BP_TRY(listening);
    for (const Fd& socket : listening.value()) {
      StreamListener& listener = listeners_[listener_count_++];
      listener.fd = socket.number();
      listener.context = this;
      listener.accepted = [](void* self, int fd) noexcept { static_cast<Echo*>(self)->accept(fd); };
    }
    return {};
  }

  void start(uint32_t shard) noexcept override {
    if (shard != shard_) return;
    for (uint32_t i = 0; i < listener_count_; ++i) sockets_->start_listening(listeners_[i]);
  }

  void request_drain() noexcept override { loop_->submit(drain_call_); }
  bool is_drained() const noexcept override { return is_drained_.load(std::memory_order_acquire); }

  void accept(int fd) noexcept {
    Connection* connection = free_;
    if (connection != nullptr) connection->socket.fd = fd;
    if (connection == nullptr || is_draining_ || sockets_->attach(connection->socket) != 0) {
      ::close(fd);
      return;
    }
    counters_->connections.add(1);
    ++open_count_;
    free_ = connection->next_free;
    connection->is_ending = false;
    SocketOperation& receive = connection->socket.receive;
    SocketOperation& send = connection->socket.send;
    receive.context = send.context = connection;
    receive.completed = [](void* self, int64_t bytes) noexcept {
      auto& its = *static_cast<Connection*>(self);
      its.echo->received(its, bytes);
    };
    send.completed = [](void* self, int64_t bytes) noexcept {
      auto& its = *static_cast<Connection*>(self);
      its.echo->sent(its, bytes);
    };
    begin_receive(*connection);
  }

  void begin_receive(Connection& connection) noexcept {
    connection.piece = {connection.buffer, sizeof connection.buffer};
    connection.socket.receive.pieces = &connection.piece;
    connection.socket.receive.piece_count = 1;
    sockets_->receive(connection.socket);
  }

  void received(Connection& connection, int64_t bytes) noexcept {
    if (bytes <= 0) return close(connection);
    connection.piece = {connection.buffer, static_cast<size_t>(bytes)};
    connection.socket.send.pieces = &connection.piece;
    connection.socket.send.piece_count = 1;
    sockets_->send(connection.socket);
  }

  void sent(Connection& connection, int64_t bytes) noexcept {
    if (bytes <= 0 || connection.is_ending) return close(connection);
    counters_->bytes.add(static_cast<uint64_t>(bytes));
    begin_receive(connection);
  }

  void close(Connection& connection) noexcept {
    sockets_->detach(connection.socket);
    ::close(connection.socket.fd);
    connection.socket.fd = -1;
    connection.next_free = free_;
    free_ = &connection;
    --open_count_;
    look_whether_drained();
  }

  // A receive that waits ends with nothing; bytes that are being sent back are sent.
  void drain() noexcept {
    is_draining_ = true;
    for (uint32_t i = 0; i < listener_count_; ++i) sockets_->stop_listening(listeners_[i]);
    for (Connection& connection : connections_) {
      if (connection.socket.fd < 0) continue;
      connection.is_ending = true;
      if (connection.socket.receive.is_in_flight) ::shutdown(connection.socket.fd, SHUT_RD);
    }
    look_whether_drained();
  }

  void look_whether_drained() noexcept {
    if (is_draining_ && open_count_ == 0) is_drained_.store(true, std::memory_order_release);
  }

  std::vector<SocketAddress> listen_;
  uint32_t shard_ = 0;
  uint32_t max_connections_ = 64;
  StreamSockets* sockets_ = nullptr;
  std::span<Connection> connections_;
  Connection* free_ = nullptr;
  StreamListener listeners_[4];
  uint32_t listener_count_ = 0;
  EventLoop* loop_ = nullptr;
  EchoCounters* counters_ = nullptr;
  LoopCall drain_call_ = {
      .function = [](void* self) noexcept { static_cast<Echo*>(self)->drain(); }, .context = this};
  uint32_t open_count_ = 0;
  bool is_draining_ = false;
  std::atomic<bool> is_drained_{false};
};

}  // namespace
int main(int count, char** words) {
  static Echo echo;
  return run_program(count, words, {&echo});
}
