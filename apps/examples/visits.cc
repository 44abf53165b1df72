// Counts lines by their first letter, on one shard, and keeps each line in a journal before it is
// answered. docs/services.md shows this program.
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "apps/boot/service_context.h"
#include "apps/program/program.h"
#include "transport/coroutines/coroutines.h"
#include "transport/sockets/stream_server.h"

using namespace bedplate;
namespace {

// All connections share it.
struct Site {
  CoroutineFrames frames;
  ShardAsker* asker = nullptr;
  EventLoop* home = nullptr;  // of `counts`, which no other shard touches
  uint64_t counts[256] = {};
  File* journal = nullptr;
  uint64_t journal_bytes = 0;
};

class Connection final : public CoroutineSession {
 public:
  explicit Connection(Site& site) noexcept
      : CoroutineSession(site.frames, input_, output_), site_(site) {}

  Coroutine<> serve() noexcept override {
    for (;;) {
      const std::string_view text = co_await line();
      if (text.empty()) co_return;  // the client has gone
      const uint64_t count = co_await ask(*site_.asker, *site_.home, [&]() noexcept {
        return ++site_.counts[static_cast<unsigned char>(text.front())];
      });
      const bool is_kept = co_await keep(text);
      if (!is_kept) {
        co_await say("the journal cannot be written\n");
        co_return;
      }
      co_await say_number(count);
      co_await say("\n");
    }
  }

  // Returns when `text` is on the medium, or cannot be written.
  Coroutine<bool> keep(std::string_view text) noexcept {
    const uint64_t at = std::exchange(site_.journal_bytes, site_.journal_bytes + text.size());
    const auto bytes = std::as_bytes(std::span(text));
    const int64_t written = co_await write_to(*site_.journal, bytes, at, true);
    co_return written == static_cast<int64_t>(bytes.size());
  }

 private:
  Site& site_;
  char input_[1024];
  char output_[2 * kStepTextBytes];
};

class Visits final : public Service {
  const char* name() const noexcept override { return "visits"; }

  void describe(ConfigurationTable& table) override {
    table.addresses("listen", &listen_, 1, 4).required().unique().help("Its addresses.");
    table.path("journal", &journal_, 1, 255).required().help("The file of all lines.");
    table.shard("shard", &shard_).help("The shard of its connections.");
    table.shard("home", &home_).help("The shard that counts.");
    table.integer("max_connections", &max_connections_, 1, 1024)
        .help("How many clients may be connected.");
  }

  // serve() and keep() of each connection.
  std::array<FrameClass, 1> frames() const {
    return {{{.bytes = 768, .count = 2 * max_connections_}}};
  }

  Result<void> plan(ServicePlan& plan) override {
    plan.segment("visits",
                 {{"connections:visits", StreamServer::bytes_for<Connection>(max_connections_)},
                  {"frames:visits", CoroutineFrames::bytes_for(frames())}},
                 plan.placement(shard_));
    plan.connections(shard_, max_connections_, "max_connections");
    plan.questions(shard_, max_connections_);
    plan.file(shard_, {.name = "journal",
                       .path = journal_,
                       .key = "journal",
                       .is_writable = true,
                       .create = true});
    plan.listen("listen", listen_);
    plan.counters<StreamServerCounters>("visits");
    return {};
  }

  Result<void> create(ServiceContext& context) override {
    BP_TRY_ASSIGN(const auto connections, context.carve("connections:visits"));
    BP_TRY_ASSIGN(const auto frame_memory, context.carve("frames:visits"));
    BP_TRY_ASSIGN(const auto counters, context.counters<StreamServerCounters>("visits"));
    BP_TRY_ASSIGN(const auto listening, context.listeners("listen"));
    BP_TRY_ASSIGN(site_.asker, context.asker(shard_));
    BP_TRY_ASSIGN(site_.journal, context.file("journal"));
    site_.journal_bytes = site_.journal->bytes();
    site_.home = &context.loop(home_);
    site_.frames.create(
        {.loop = &context.loop(shard_), .classes = frames(), .memory = frame_memory});
    Connection sample(site_);
    BP_TRY(check_coroutine(site_.frames, "serve", [&] { return sample.serve(); }));
    BP_TRY(check_coroutine(site_.frames, "keep", [&] { return sample.keep({}); }));
    server_.create<Connection>({.name = "visits",
                                .loop = &context.loop(shard_),
                                .sockets = &context.sockets(shard_),
                                .counters = counters},
                               connections, site_);
    for (const Fd& socket : listening) server_.add_listener(socket.number());
    return {};
  }

  void start(uint32_t shard) noexcept override {
    if (shard == shard_) server_.start();
  }
  void request_drain() noexcept override { server_.request_drain(); }
  bool is_drained() const noexcept override { return server_.is_drained(); }

  std::vector<SocketAddress> listen_;
  std::string journal_;
  uint32_t shard_ = 0;
  uint32_t home_ = 0;
  uint32_t max_connections_ = 64;
  Site site_;
  StreamServer server_;
};

}  // namespace
int main(int count, char** words) {
  static Visits visits;
  return run_program(count, words, {&visits});
}
