// The base of mistakes with sessions: a service with one client, which sends a line, and closes.
#pragma once

#include <vector>

#include <sys/socket.h>

#include "tests/mistakes/mistake.h"
#include "transport/sockets/socket_address.h"
#include "transport/sockets/stream_server.h"

namespace bedplate {

class LineSession : public StreamSession {
 public:
  explicit LineSession(EventLoop& loop) noexcept
      : StreamSession(input_, output_, later_), loop_(loop) {}

 protected:
  ~LineSession() = default;
  virtual void asked(uint64_t now_ns) noexcept = 0;
  EventLoop& loop() noexcept { return loop_; }

 private:
  StreamStep work(uint64_t now_ns) noexcept final {
    const size_t bytes = arrived_line().size();
    if (bytes == 0) return StreamStep::kStarved;
    take(bytes);
    asked(now_ns);
    return StreamStep::kTaken;
  }

  EventLoop& loop_;
  LaterAnswer later_[4];
  char input_[64];
  char output_[2 * kStepTextBytes];
};

// `Session`: derives from LineSession.
template <typename Session>
class SessionMistake final : public Mistake {
 public:
  using Mistake::Mistake;
  void describe(ConfigurationTable& table) override {
    table.addresses("listen", &listen_, 1, 1).required().help("Its address.");
  }
  Result<void> plan(ServicePlan& plan) override {
    const uint64_t bytes = StreamServer::bytes_for<Session>(1);
    plan.segment("cache", {{"connections:cache", bytes}}, plan.placement(0));
    plan.connections(0, 1, nullptr);
    plan.listen("listen", listen_);
    plan.counters<StreamServerCounters>("cache");
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    BP_TRY_ASSIGN(const auto memory, context.carve("connections:cache"));
    BP_TRY_ASSIGN(const auto counters, context.counters<StreamServerCounters>("cache"));
    BP_TRY_ASSIGN(const auto listening, context.listeners("listen"));
    server_.create<Session>({.name = "cache",
                             .loop = &context.loop(0),
                             .sockets = &context.sockets(0),
                             .counters = counters},
                            memory, context.loop(0));
    for (const Fd& socket : listening) server_.add_listener(socket.number());
    return {};
  }
  void start(uint32_t) noexcept override {
    server_.start();
    auto client = start_connecting(listen_.front());
    if (!client.ok() || ::send(client.value().number(), "?\n", 2, MSG_NOSIGNAL) != 2) end();
  }
  void request_drain() noexcept override { server_.request_drain(); }
  bool is_drained() const noexcept override { return server_.is_drained(); }

 private:
  std::vector<SocketAddress> listen_;
  StreamServer server_;
};

}  // namespace bedplate
