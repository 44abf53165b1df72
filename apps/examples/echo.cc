#include "apps/boot/service_context.h"
#include "apps/program/program.h"
#include "apps/services/tls_keys.h"
#include "transport/sockets/stream_server.h"

using namespace bedplate;
namespace {

struct EchoCounters {
  StreamServerCounters clients;
  Counter lines;
};

void describe(CounterTable& table, EchoCounters& counters) {
  describe(table, counters.clients, "max_connections");
  table.counter("lines", counters.lines, "lines", "Lines that were sent back.");
}

// All clients share it.
struct Site {
  EchoCounters* counters = nullptr;
  EventLoop* loop = nullptr;
  File* journal = nullptr;
  uint64_t journal_bytes = 0;
  EventLoop* home = nullptr;  // of the journal, which no other shard touches
  ShardAsker* asker = nullptr;
};

// One client, in planned memory.
class Connection final : public StreamSession, private ShardQuestion {
 public:
  explicit Connection(Site& site) noexcept : StreamSession(input_, output_, later_), site_(site) {
    asked = [](ShardQuestion& self) noexcept { static_cast<Connection&>(self).keep(); };
  }

 private:
  StreamStep work(uint64_t) noexcept override {
    const std::string_view line = arrived_line();
    if (line.empty()) {
      if (is_input_full()) end();  // too long a line
      return StreamStep::kStarved;
    }
    line.copy(line_, line.size());
    answer_ = &later();
    write_.bytes = line.size();
    site_.asker->ask(*site_.home, *this,
                     [](ShardQuestion& self) noexcept { static_cast<Connection&>(self).reply(); });
    site_.counters->lines.add(1);
    take(line.size());
    return StreamStep::kTaken;
  }

  void keep() noexcept {
    write_.offset = site_.journal_bytes;
    site_.journal_bytes += write_.bytes;
    site_.journal->begin(write_);
  }
  static void written(void* context, int64_t result) noexcept {
    auto& self = *static_cast<Connection*>(context);
    self.is_kept_ = result > 0;
    self.answer();
  }
  void reply() noexcept {
    answer_->say(is_kept_ ? std::string_view(line_, write_.bytes) : "cannot be kept\n");
    answer_->finish(site_.loop->now_ns());
  }

  Site& site_;
  char line_[kStepTextBytes];
  LaterAnswer later_[1];
  LaterAnswer* answer_ = nullptr;
  bool is_kept_ = false;
  FileOperation write_ = {.action = FileAction::kWrite,
                          .is_durable = true,
                          .memory = line_,
                          .completed = &written,
                          .context = this};
  char input_[kStepTextBytes];
  char output_[2 * kStepTextBytes];
};

class Echo final : public Service {
  const char* name() const noexcept override { return "echo"; }

  void describe(ConfigurationTable& table) override {
    table.addresses("listen", &listen_, 1, 4).required().unique().help("Its addresses.");
    describe_tls_keys(table, &tls_);
    table.shard("shard", &shard_).help("The shard of its clients.");
    table.path("journal", &journal_, 1, 255).required().help("The file of all lines.");
    table.integer("max_connections", &max_connections_, 1, 1024)
        .help("How many clients may be connected.");
  }

  Result<void> plan(ServicePlan& plan) override {
    const uint64_t bytes = StreamServer::bytes_for<Connection>(max_connections_);
    plan.segment("echo", {{"connections:echo", bytes}}, plan.placement(shard_));
    plan.connections(shard_, max_connections_, "max_connections");
    plan.tls(shard_, max_connections_, tls_);
    plan.listen("listen", listen_);
    FilePlan journal = {.name = "journal", .path = journal_, .key = "journal"};
    journal.is_writable = journal.create = true;
    plan.file(home_, journal);
    plan.questions(shard_, max_connections_);
    plan.messages(home_);
    plan.message("say");
    plan.counters<EchoCounters>("echo");
    return {};
  }

  Result<void> create(ServiceContext& context) override {
    BP_TRY_ASSIGN(const auto memory, context.carve("connections:echo"));
    BP_TRY_ASSIGN(site_.counters, context.counters<EchoCounters>("echo"));
    BP_TRY_ASSIGN(const auto listening, context.listeners("listen"));
    BP_TRY_ASSIGN(site_.journal, context.file("journal"));
    site_.journal_bytes = site_.journal->bytes();
    BP_TRY_ASSIGN(site_.asker, context.asker(shard_));
    site_.home = &context.loop(home_);
    BP_TRY_ASSIGN(messenger_, context.messenger(home_));
    BP_TRY_ASSIGN(const AmId number, context.message("say"));
    messenger_->set_handler(number, {&Echo::say_back, this});
    BP_TRY_ASSIGN(const auto layers, context.tls(shard_));
    site_.loop = &context.loop(shard_);
    server_.create<Connection>({.name = "echo",
                                .loop = site_.loop,
                                .sockets = &context.sockets(shard_),
                                .counters = &site_.counters->clients,
                                .layers = layers},
                               memory, site_);
    for (const Fd& socket : listening) server_.add_listener(socket.number());
    return {};
  }

  void start(uint32_t shard) noexcept override {
    if (shard == shard_) server_.start();
  }

  // The answer is message 1, and lost if the sender's queue is full.
  static void say_back(void* context, const Message& message) noexcept {
    const bool is_lent = message.loan.is_there();
    const auto bytes = is_lent ? message.loan.memory : message.payload;
    const size_t bytes_max = message.from.limits().am_bytes_max;
    (void)message.from.am_send(1, bytes.first(std::min(bytes.size(), bytes_max)));
    static_cast<Echo*>(context)->messenger_->release(message.loan);
  }

  void request_drain() noexcept override { server_.request_drain(); }
  bool is_drained() const noexcept override { return server_.is_drained(); }

  std::vector<SocketAddress> listen_;
  TlsFiles tls_;
  std::string journal_;
  uint32_t shard_ = 0;  // of its clients
  uint32_t home_ = 0;   // of its journal
  uint32_t max_connections_ = 64;
  Site site_;
  StreamServer server_;
  Messenger* messenger_ = nullptr;
};

}  // namespace
int main(int count, char** words) {
  static Echo echo;
  return run_program(count, words, {&echo});
}
