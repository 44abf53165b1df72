// The handles of the C interface to services (bedplate_service.h), shared by its files. They hold
// the runtime's own objects and pointers to C functions. The service owns them: create() makes
// them, and they are freed with the service.
#pragma once

#include <atomic>
#include <deque>
#include <string>

#include "apps/boot/service_context.h"
#include "apps/c_interface/bedplate_service.h"
#include "apps/c_interface/messages_c.h"
#include "apps/program/program.h"
#include "transport/sockets/connecting.h"

struct bp_loop {
  bedplate::EventLoop* loop = nullptr;
  bedplate::StreamSockets* sockets = nullptr;
  bedplate::ShardAsker* asker = nullptr;  // nullptr: no questions are planned on this shard
};

struct bp_stream {
  struct Half {
    iovec piece = {};
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
  void describe(ConfigurationTable& table) override;
  Result<void> plan(ServicePlan& plan) override;
  Result<void> create(ServiceContext& context) override;
  void start(uint32_t shard) noexcept override;
  void methods(ControlMethods& methods) override;
  void request_drain() noexcept override;
  bool is_drained() const noexcept override {
    return c_.drain == nullptr || has_drained.load(std::memory_order_acquire);
  }

  void* self() const noexcept { return c_.self; }
  // Lets the service's variables point to the texts of the file.
  void hand_out_texts();

  // Values of the file. The description of a sample leaves them as they are.
  struct Text {
    std::string text;
    std::string usual;  // the default
    const char** to = nullptr;
  };
  struct Addresses {
    std::string key;
    std::vector<SocketAddress> addresses;
  };
  // The call that starts the drain of one shard.
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
  std::deque<bp_loop> loops;      // of each shard
  std::deque<bp_member> members;  // of each shard
  std::deque<CSource> sources;
  std::deque<CListener> listeners;
  std::deque<bp_stream> streams;
  std::deque<bp_datagram_socket> datagram_sockets;
  std::deque<CControlMethod> control_methods;
  std::atomic<bool> has_drained{false};

 private:
  void drain(unsigned shard) noexcept;

  bp_service c_;
  std::deque<Draining> draining_;  // of each shard
};

}  // namespace bedplate

struct bp_plan {
  bedplate::ServicePlan& plan;
  bedplate::CService& service;
};

// A bp_context is the CService itself.
inline bedplate::CService& of(bp_context* context) noexcept {
  return *reinterpret_cast<bedplate::CService*>(context);
}
