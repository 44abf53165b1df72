// The handles of the C interface to services (bedplate_service.h), shared by its files. They hold
// the runtime's own objects and pointers to C functions. The service owns them: create() makes
// them, and they are freed with the service.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "apps/boot/service_context.h"
#include "apps/c_interface/bedplate_service.h"
#include "apps/c_interface/messages_c.h"
#include "apps/c_interface/session_c.h"
#include "apps/program/program.h"
#include "platform/thread_stack.h"
#include "platform/trace_ring.h"
#include "transport/sockets/connecting.h"

struct bp_loop {
  bedplate::EventLoop* loop = nullptr;
  bedplate::StreamSockets* sockets = nullptr;
  bedplate::ShardAsker* asker = nullptr;  // nullptr: no questions are planned on this shard
};

struct bp_stream {
  struct Half {
    iovec pieces[BP_PIECES_MAX] = {};
    void (*done)(void* context, int64_t result) = nullptr;
    void* context = nullptr;
  };
  bedplate::StreamSocket socket;
  bedplate::StreamSockets* sockets = nullptr;
  Half receive;
  Half send;
  bedplate::EventLoop* loop = nullptr;
  bedplate::Connecting connecting;
  void (*connected)(void* context, int result) = nullptr;
  void* connected_context = nullptr;
};

struct bp_trace {
  bedplate::TraceWriter writer;
};

struct bp_thread {
  bedplate::StackedThread thread;
  void (*function)(void* context) = nullptr;
  void* context = nullptr;
};

struct bp_datagram_socket {
  bedplate::DatagramSocket* socket = nullptr;
  bp_datagram_options options = {};
};

namespace bedplate {

struct CSource final : PollSource {
  uint32_t poll(uint32_t budget) noexcept override { return function(self, budget); }
  unsigned (*function)(void* self, unsigned budget) = nullptr;
  void* self = nullptr;
};

struct CListener {
  StreamListener listener;
  unsigned shard = 0;
  void (*accepted)(void* self, int fd) = nullptr;
  void* self = nullptr;
};

struct CControlMethod {
  void (*function)(void* self, bp_control_call* call) = nullptr;
  void* self = nullptr;
};

class CService final : public Service {
 public:
  explicit CService(const bp_service& service) : c_(service) {}

  const char* name() const noexcept override { return c_.name; }
  uint32_t table_count_max() const noexcept override { return c_.table_count_max; }
  void describe(ConfigurationTable& table) override;
  Result<void> plan(ServicePlan& plan) override;
  void preflight(std::vector<Error>* problems) override;
  Result<void> prepare() override;
  Result<void> create(ServiceContext& context) override;
  Result<void> sealed() override;
  void start(uint32_t shard) noexcept override;
  void tick() noexcept override {
    if (c_.tick != nullptr) c_.tick(c_.self);
  }
  void methods(ControlMethods& methods) override;
  void request_drain() noexcept override;
  bool is_drained() const noexcept override;

  bool drains_alone() const noexcept override { return c_.drains_with_appliance == 0; }
  bool stopped() noexcept override {
    for (CServer& server : servers) server.server().end();
    return c_.stopped == nullptr || c_.stopped(c_.self) == 0;
  }

  void* self() const noexcept { return c_.self; }
  // Gives the service's variables the values of the file. Called before a check of them, too.
  void hand_over_values();

  // The call that starts the drain of one shard.
  struct Draining {
    LoopCall call;
    CService* service = nullptr;
    unsigned shard = 0;
  };

  // Each hands values of the file over to C, or plans what the table says. `plan`: nullptr in
  // hand_over_values().
  using HandOver = std::function<void(ServicePlan* plan)>;
  std::vector<HandOver> at_plan;
  // The same for descriptions that are only listed: never called, but their keys refer to them.
  std::vector<HandOver> of_samples;
  std::map<const char**, std::string> default_texts;  // of the variables that have texts
  // Planned at the end of plan(), in this order.
  std::optional<CTls> tls;  // bp_table_tls
  std::vector<ListenNeed> listens;
  std::vector<FileNeed> files;
  std::deque<CServer> servers;
  CounterSet counters;
  ServiceContext* context = nullptr;
  std::byte* counter_memory = nullptr;
  std::deque<bp_loop> loops;      // of each shard
  std::deque<bp_member> members;  // of each shard
  std::deque<CSource> sources;
  std::deque<CListener> listeners;
  std::deque<bp_stream> streams;
  std::deque<bp_datagram_socket> datagram_sockets;
  std::deque<bp_trace> traces;
  std::deque<bp_thread> threads;
  std::deque<CControlMethod> control_methods;
  std::atomic<bool> has_drained{false};

 private:
  void drain(unsigned shard) noexcept;

  bp_service c_;
  std::deque<Draining> draining_;  // of each shard
};

}  // namespace bedplate

struct bp_table {
  bedplate::ConfigurationTable& table;
  bedplate::CService& service;

  // Keeps `call`, with the variables that it owns.
  void keep(bedplate::CService::HandOver call) const {
    (table.is_sample() ? service.of_samples : service.at_plan).push_back(std::move(call));
  }
};

struct bp_plan {
  bedplate::ServicePlan& plan;
  bedplate::CService& service;
};

// A bp_context is the CService itself.
inline bedplate::CService& of(bp_context* context) noexcept {
  return *reinterpret_cast<bedplate::CService*>(context);
}
