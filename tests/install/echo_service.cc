// A service written only with installed files: [echo] of the configuration, a carve of buffers,
// counters (one measures a key), and connections on the first shard that echo received bytes. Keys
// that contradict one another are refused. A method on the control socket sets how many connections
// it accepts; `bedplate trace` shows the times of receives and sends.
#include <memory>
#include <span>
#include <string>

#include <unistd.h>

#include "bedplate.hpp"

namespace {

using namespace bedplate;

constexpr uint64_t kBufferBytes = 4096;

struct EchoCounters {
  Counter echoed;
  Counter connections_peak;
};
void describe(CounterTable& table, EchoCounters& counters) {
  table.counter("echoed_bytes", counters.echoed, "bytes", "What was sent back.");
  table.gauge("connections_peak", counters.connections_peak, "connections", "The most at once.")
      .peak_of("max_connections", "A client more is turned away.");
}

struct Connection {
  StreamSocket socket;
  std::span<std::byte> buffer;
  iovec piece = {};
  RequestTrace trace;
  class EchoService* service = nullptr;
  bool is_open = false;
};

class EchoService final : public Service {
 public:
  const char* name() const noexcept override { return "echo"; }

  void describe(ConfigurationTable& table) override {
    table.addresses("listen", &listen_, 1, 4).required().help("Its addresses.");
    table.integer("max_connections", &max_connections_, 1, 64).help("How many may be connected.");
    table.integer("admitted", &admitted_, 0, 64)
        .otherwise("what `max_connections` says")
        .help("How many may be connected at first.");
    table.check([this](ReadTable& read) {
      if (read.was_refused("admitted") || read.was_refused("max_connections")) return;
      if (!read.has("admitted")) admitted_ = max_connections_;
      if (admitted_ <= max_connections_) return;
      read.refuse_value("admitted", "\"admitted\" is more than max_connections",
                        "expected at most " + std::to_string(max_connections_));
    });
  }

  Result<void> plan(ServicePlan& plan) override {
    plan.segment("echo", {{OwnerName("echo:buffers"), max_connections_ * kBufferBytes}},
                 plan.placement(0));
    plan.connections(0, max_connections_, "max_connections");
    plan.listen("listen", listen_);
    plan.counters<EchoCounters>("totals");
    plan.trace({.kinds = "echo", .stations = "received|sent"});
    return {};
  }

  Result<void> create(ServiceContext& context) override {
    auto memory = context.carve("echo:buffers");
    if (!memory.ok()) return memory.error();
    auto counters = context.counters<EchoCounters>("totals");
    if (!counters.ok()) return counters.error();
    counters_ = counters.value();
    auto trace = context.trace(0);
    BP_TRY(trace);
    trace_ = trace.value();
    sockets_ = &context.sockets(0);
    loop_ = &context.loop(0);
    connections_ = std::make_unique<Connection[]>(max_connections_);
    for (uint32_t i = 0; i < max_connections_; ++i) {
      connections_[i].buffer = memory.value().subspan(i * kBufferBytes, kBufferBytes);
      connections_[i].service = this;
    }
    auto listening = context.listeners("listen");
    BP_TRY(listening);
    const std::span<const Fd> opened = listening.value();
    listener_count_ = opened.size();
    for (size_t i = 0; i < listener_count_; ++i) {
      listeners_[i].fd = opened[i].number();
      listeners_[i].context = this;
      listeners_[i].accepted = [](void* self, int fd) noexcept {
        static_cast<EchoService*>(self)->accept(fd);
      };
    }
    return {};
  }

  void methods(ControlMethods& methods) override {
    methods.add(
        {.name = "admit",
         .parameters = {{.name = "clients",
                         .type = ControlType::kNumber,
                         .help = "How many may be connected from now on."}},
         .result = "{\"admitted\": N, \"connected\": N}",
         .help = "Turns further clients away; those that are connected stay.",
         .needs = "no more than max_connections"},
        [](void* self, ControlCall& call) noexcept {
          static_cast<EchoService*>(self)->admit(call);
        },
        this);
  }

  void start(uint32_t shard) noexcept override {
    if (shard != 0) return;
    for (size_t i = 0; i < listener_count_; ++i) sockets_->start_listening(listeners_[i]);
  }

 private:
  // The change runs on the shard, which owns the state.
  void admit(ControlCall& call) noexcept {
    if (call.number("clients") > max_connections_) {
      Error error;
      error.set_doing("admitting %llu clients",
                      static_cast<unsigned long long>(call.number("clients")));
      error.set_answer("there is memory for %u", max_connections_);
      call.refuse(error.set_cure("raise max_connections in [echo], and start again"));
      return;
    }
    call.go_on(
        *loop_,
        [](void* self, ControlCall& there) noexcept {
          auto& service = *static_cast<EchoService*>(self);
          service.admitted_ = static_cast<uint32_t>(there.number("clients"));
          there.result().begin_object().key("admitted").number(service.admitted_);
          there.result().key("connected").number(service.open_count_).end_object();
        },
        this);
  }

  void accept(int fd) noexcept {
    for (uint32_t i = 0; i < max_connections_ && open_count_ < admitted_; ++i) {
      Connection& one = connections_[i];
      if (one.is_open) continue;
      one.socket = StreamSocket{};
      one.socket.fd = fd;
      one.socket.receive.context = one.socket.send.context = &one;
      one.socket.receive.completed = [](void* self, int64_t result) noexcept {
        auto& connection = *static_cast<Connection*>(self);
        connection.service->received(connection, result);
      };
      one.socket.send.completed = [](void* self, int64_t result) noexcept {
        auto& connection = *static_cast<Connection*>(self);
        connection.service->sent(connection, result);
      };
      if (sockets_->attach(one.socket) != 0) break;
      one.is_open = true;
      counters_->connections_peak.raise(++open_count_);
      return receive(one);
    }
    ::close(fd);
  }

  void receive(Connection& one) noexcept {
    one.piece = {one.buffer.data(), one.buffer.size()};
    one.socket.receive.pieces = &one.piece;
    one.socket.receive.piece_count = 1;
    one.socket.receive.min_bytes = 1;
    sockets_->receive(one.socket);
  }

  void received(Connection& one, int64_t result) noexcept {
    if (result <= 0) return close(one);
    one.trace.begin(loop_->now_ns());
    one.piece = {one.buffer.data(), static_cast<size_t>(result)};
    one.socket.send.pieces = &one.piece;
    one.socket.send.piece_count = 1;
    one.socket.send.min_bytes = static_cast<uint64_t>(result);
    sockets_->send(one.socket);
  }

  void sent(Connection& one, int64_t result) noexcept {
    if (result <= 0) return close(one);
    counters_->echoed.add(static_cast<uint64_t>(result));
    one.trace.pass(1, loop_->now_ns());
    trace_.write(one.trace, {.handle = ++echo_count_, .bytes = static_cast<uint32_t>(result)});
    receive(one);
  }

  void close(Connection& one) noexcept {
    sockets_->detach(one.socket);
    ::close(one.socket.fd);
    one.is_open = false;
    --open_count_;
  }

  std::vector<SocketAddress> listen_;
  uint32_t max_connections_ = 8;
  uint32_t open_count_ = 0;
  uint32_t admitted_ = 0;
  uint64_t echo_count_ = 0;
  TraceWriter trace_;
  EventLoop* loop_ = nullptr;
  StreamSockets* sockets_ = nullptr;
  EchoCounters* counters_ = nullptr;
  std::unique_ptr<Connection[]> connections_;
  StreamListener listeners_[4];
  size_t listener_count_ = 0;
};

}  // namespace

int main(int count, char** words) {
  static EchoService echo;
  return bedplate::run_program(count, words, {&echo});
}
