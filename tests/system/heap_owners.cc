// A service that allocates in every function that the runtime calls, and reports the account
// charged for each; and that fills the heap on demand. tests/system/heap_owners_test.py runs it.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <poll.h>
#include <sys/eventfd.h>

#include "alloc/heap_owner.h"
#include "apps/boot/service_context.h"
#include "apps/program/program.h"
#include "apps/services/control_methods.h"
#include "apps/services/service_plan.h"
#include "platform/units.h"
#include "transport/sockets/datagram_socket.h"
#include "transport/sockets/socket_address.h"

using namespace bedplate;
namespace {

// Larger than any page that a thread may have left, so its owner is charged at once.
constexpr uint64_t kBlockBytes = 3 * kMiB;

// The asm keeps the compiler from removing an unused block.
void* take(uint64_t bytes) noexcept {
  void* block = std::malloc(bytes);
  asm volatile("" : "+r"(block) : : "memory");
  return block;
}

class Eater final : public Service {
  const char* name() const noexcept override { return "eater"; }

  void describe(ConfigurationTable& table) override {
    table.addresses("listen", &listen_, 1, 1).required().unique().help("Its addresses.");
    table.path("file", &file_path_, 1, 255).required().help("What it writes to.");
  }

  Result<void> plan(ServicePlan& plan) override {
    plan.listen("listen", listen_);
    plan.connections(0, 4, nullptr);
    plan.timers(0, 2);
    plan.sources(0, 1);
    plan.watches(0, 2);
    plan.messages(0);
    plan.message("eat");
    plan.datagram_socket(0, "in", {.buffer_count = 4, .buffer_bytes = 2048});
    FilePlan file;
    file.name = "file";
    file.path = file_path_;
    file.is_writable = file.create = true;
    plan.file(0, file);
    return {};
  }

  Result<void> prepare() override { return eat("prepare"), Result<void>(); }
  Result<void> create(ServiceContext& context) override;
  Result<void> sealed() override { return eat("sealed"), Result<void>(); }
  void start(uint32_t shard) noexcept override;
  void tick() noexcept override { eat("tick"); }
  void methods(ControlMethods& methods) override;
  void request_drain() noexcept override {
    eat("request_drain");
    loop_->submit(drain_);
  }
  bool is_drained() const noexcept override {
    eat("is_drained");
    return has_drained_;
  }
  bool drains_alone() const noexcept override {
    eat("drains_alone");
    return true;
  }
  bool stopped() noexcept override { return eat("stopped"), true; }

  // On the first call from `where`, prints whether a block allocated here is charged to the
  // service's own account.
  void eat(const char* where) const noexcept {
    const std::lock_guard lock(mutex_);
    for (const char* known : eaten_) {
      if (known != nullptr && std::strcmp(known, where) == 0) return;
    }
    *std::find(std::begin(eaten_), std::end(eaten_), nullptr) = where;
    HeapOwner owner;
    const bool is_there = find_heap_owner("heap:eater", &owner);
    const uint64_t before = is_there ? heap_owner_use(owner).used_bytes : 0;
    void* block = take(kBlockBytes);
    const bool is_own = is_there && heap_owner_use(owner).used_bytes >= before + kBlockBytes;
    std::free(block);
    std::fprintf(stderr, "eater: %s: %s\n", where, is_own ? "own" : "of another");
  }

  // Called on the shard. Allocates everything that the heap has, and never frees it.
  void fill() noexcept {
    for (uint64_t bytes = 64 * kMiB; bytes >= 64; bytes /= 2) {
      while (void* block = take(bytes)) std::memset(block, 1, std::min<uint64_t>(bytes, 64));
    }
    std::fprintf(stderr, "eater: full\n");
  }

  struct Source final : PollSource {
    uint32_t poll(uint32_t) noexcept override {
      eater->eat("source");
      return 0;
    }
    Eater* eater = nullptr;
  };

  std::vector<SocketAddress> listen_;
  std::string file_path_;
  EventLoop* loop_ = nullptr;
  StreamSockets* sockets_ = nullptr;
  Messenger* messenger_ = nullptr;
  AmId message_ = 0;
  Endpoint* self_ = nullptr;
  Source source_;
  Timer timer_;
  LoopCall drain_;
  Watch watch_;
  Fd event_;
  StreamListener listener_;
  StreamSocket stream_;
  iovec piece_ = {};
  char byte_ = 0;
  File* file_ = nullptr;
  FileOperation write_;
  DatagramSocket* datagrams_ = nullptr;
  mutable std::mutex mutex_;
  mutable const char* eaten_[64] = {};
  std::atomic<bool> has_drained_{false};
};

Result<void> Eater::create(ServiceContext& context) {
  eat("create");
  loop_ = &context.loop(0);
  sockets_ = &context.sockets(0);
  source_.eater = this;
  BP_TRY(context.add_source(0, source_, 1));
  auto listeners = context.listeners("listen");
  BP_TRY(listeners);
  listener_.fd = listeners.value()[0].number();
  auto file = context.file("file");
  BP_TRY(file);
  file_ = file.value();
  auto messenger = context.messenger(0);
  BP_TRY(messenger);
  messenger_ = messenger.value();
  auto number = context.message("eat");
  BP_TRY(number);
  message_ = number.value();
  messenger_->set_handler(message_, {[](void* self, const Message&) noexcept {
                                       static_cast<Eater*>(self)->eat("message");
                                     },
                                     this});
  auto endpoint = messenger_->connect({.name = context.configuration().shards[0].name.c_str()});
  BP_TRY(endpoint);
  self_ = endpoint.value();
  auto datagrams = context.datagram_socket("in");
  BP_TRY(datagrams);
  datagrams_ = datagrams.value();
  DatagramOptions options;
  options.local = parse_datagram_address("127.0.0.1:0").value();
  options.owner.context = this;
  options.owner.received = [](void* self, std::span<ReceivedDatagram>) noexcept {
    static_cast<Eater*>(self)->eat("datagram");
  };
  BP_TRY(datagrams_->open(options));
  drain_.context = this;
  drain_.function = [](void* self) noexcept {
    static_cast<Eater*>(self)->eat("call");
    static_cast<Eater*>(self)->has_drained_ = true;
  };
  return {};
}

void Eater::start(uint32_t) noexcept {
  eat("start");
  timer_.context = this;
  timer_.expired = [](void* self) noexcept { static_cast<Eater*>(self)->eat("timer"); };
  loop_->timers().arm(timer_, loop_->now_ns() + kNsPerMs);

  event_ = Fd(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  watch_.fd = event_.number();
  watch_.events = POLLIN;
  watch_.context = this;
  watch_.ready = [](void* self, uint32_t) noexcept {
    static_cast<Eater*>(self)->eat("watch");
    static_cast<Eater*>(self)->sockets_->stop_watching(static_cast<Eater*>(self)->watch_);
  };
  BP_ASSERT(sockets_->start_watching(watch_) == 0);

  write_.action = FileAction::kWrite;
  write_.memory = &byte_;
  write_.bytes = 1;
  write_.context = this;
  write_.completed = [](void* self, int64_t) noexcept { static_cast<Eater*>(self)->eat("file"); };
  file_->begin(write_);

  listener_.context = this;
  listener_.accepted = [](void* self, int fd) noexcept {
    auto& eater = *static_cast<Eater*>(self);
    eater.eat("accepted");
    eater.stream_.fd = fd;
    BP_ASSERT(eater.sockets_->attach(eater.stream_) == 0);
    eater.piece_ = {&eater.byte_, 1};
    eater.stream_.receive.pieces = &eater.piece_;
    eater.stream_.receive.piece_count = 1;
    eater.stream_.receive.context = self;
    eater.stream_.receive.completed = [](void* context, int64_t) noexcept {
      auto& its = *static_cast<Eater*>(context);
      its.eat("received");
      if (its.byte_ == 'f') its.fill();
    };
    eater.sockets_->receive(eater.stream_);
  };
  sockets_->start_listening(listener_);

  BP_ASSERT(datagrams_->start() == 0);
  OutgoingDatagram to_itself;
  to_itself.bytes = reinterpret_cast<const std::byte*>(&byte_);
  to_itself.byte_count = 1;
  to_itself.to = datagrams_->local();
  (void)datagrams_->send_batch({&to_itself, 1});

  (void)self_->am_send(message_, {});
}

void Eater::methods(ControlMethods& methods) {
  eat("methods");
  methods.add(
      {.name = "eat", .result = "true", .help = "Allocates."},
      [](void* self, ControlCall& call) noexcept {
        static_cast<Eater*>(self)->eat("method");
        call.go_on(
            *static_cast<Eater*>(self)->loop_,
            [](void* its, ControlCall& there) noexcept {
              static_cast<Eater*>(its)->eat("method_at_loop");
              there.result().boolean(true);
            },
            self);
      },
      this);
}

}  // namespace

int main(int count, char** words) {
  static Eater eater;
  return run_program(count, words, {&eater});
}
