#include <deque>

#include "apps/boot/placed_server.h"
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

// It lives on one shard, which no other one touches.
struct Journal {
  EventLoop* home = nullptr;
  File* file = nullptr;
  uint64_t bytes = 0;
};

// All clients of a shard share it.
struct Site {
  EchoCounters* counters = nullptr;
  EventLoop* loop = nullptr;
  ShardAsker* asker = nullptr;
  Journal* journal = nullptr;
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
    site_.asker->ask(*site_.journal->home, *this,
                     [](ShardQuestion& self) noexcept { static_cast<Connection&>(self).reply(); });
    site_.counters->lines.add(1);
    take(line.size());
    return StreamStep::kTaken;
  }

  void keep() noexcept {
    write_.offset = site_.journal->bytes;
    site_.journal->bytes += write_.bytes;
    site_.journal->file->begin(write_);
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
    table.shards_or_all("shards", &shards_).help("The shards of its clients.");
    table.path("journal", &journal_, 1, 255).required().help("The file of all lines.");
    table.integer("max_connections", &max_connections_, 1, 1024)
        .help("How many clients may be connected; its shards have equal parts.");
  }

  Result<void> plan(ServicePlan& plan) override {
    server_.plan<Connection, EchoCounters>(plan, {.service = "echo",
                                                  .shards = shards_,
                                                  .connection_count = max_connections_,
                                                  .connection_key = "max_connections",
                                                  .addresses = listen_,
                                                  .tls = &tls_});
    FilePlan journal = {.name = "journal", .path = journal_, .key = "journal"};
    journal.is_writable = journal.create = true;
    plan.file(home_, journal);
    for (const uint32_t shard : shards_) plan.questions(shard, max_connections_);
    plan.messages(home_);
    plan.message("say");
    return {};
  }

  Result<void> create(ServiceContext& context) override {
    BP_TRY_ASSIGN(lines_.file, context.file("journal"));
    lines_.bytes = lines_.file->bytes();
    lines_.home = &context.loop(home_);
    BP_TRY_ASSIGN(messenger_, context.messenger(home_));
    BP_TRY_ASSIGN(const AmId number, context.message("say"));
    messenger_->set_handler(number, {&Echo::say_back, this});
    for (const uint32_t shard : shards_) {
      Site& site = sites_.emplace_back();
      site.loop = &context.loop(shard);
      site.journal = &lines_;
      BP_TRY_ASSIGN(site.asker, context.asker(shard));
      BP_TRY_ASSIGN(site.counters, context.shard_counters<EchoCounters>("echo", shard));
    }
    return server_.create<Connection, EchoCounters>(context, {.name = "echo"}, sites_);
  }

  void start(uint32_t shard) noexcept override { server_.start(shard); }

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
  std::vector<uint32_t> shards_;  // of its clients
  uint32_t home_ = 0;             // of its journal
  uint32_t max_connections_ = 64;
  Journal lines_;
  std::deque<Site> sites_;  // of each of its shards
  PlacedServer server_;
  Messenger* messenger_ = nullptr;
};

}  // namespace
int main(int count, char** words) {
  static Echo echo;
  return run_program(count, words, {&echo});
}
