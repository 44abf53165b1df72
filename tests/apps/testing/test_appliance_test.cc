// The appliance of the test kit: problems in the words of `check`, time that a test moves, shards
// in one thread, files in memory, clients, control methods, drains.
#include "apps/testing/test_appliance.h"

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::MemoryFile;
using bedplate::testing::TestAppliance;
using bedplate::testing::TestClient;

namespace {

struct NoteCounters {
  Counter notes;
  Histogram bytes;
};
void describe(CounterTable& table, NoteCounters& counters) {
  table.counter("notes", counters.notes, "notes", "Written notes.");
  table.histogram("note_bytes", counters.bytes, "bytes", "The bytes of a note.");
}

// Writes what a client sends to a file, and answers with "done", or with the number of the error.
// Each second it sends "tick" to all. Its shard "other" counts calls.
class Notes final : public Service {
 public:
  const char* name() const noexcept override { return "notes"; }
  void describe(ConfigurationTable& table) override {
    table.addresses("listen", &listen_, 1, 2).required().help("Where it listens.");
    table.path("file", &path_, 1, 100).required().help("Where notes are kept.");
  }
  Result<void> plan(ServicePlan& plan) override {
    plan.segment("notes", {{"text:notes", 64}}, plan.placement(0));
    plan.connections(0, 1, nullptr);
    plan.timers(0, 1);
    plan.listen("listen", listen_);
    plan.file(0, {.name = "log", .path = path_, .key = "file", .is_writable = true});
    plan.counters<NoteCounters>("notes");
    return to_plan ? to_plan(plan) : Result<void>();
  }
  Result<void> prepare() override {
    steps += "prepare ";
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    steps += "create ";
    BP_TRY_ASSIGN(const auto text, context.carve("text:notes"));
    text_ = text.data();
    BP_TRY_ASSIGN(file_, context.file("log"));
    BP_TRY_ASSIGN(counters_, context.counters<NoteCounters>("notes"));
    BP_TRY_ASSIGN(const auto listening, context.listeners("listen"));
    listener_.fd = listening[0].number();
    listener_.context = this;
    listener_.accepted = [](void* self, int fd) noexcept { static_cast<Notes*>(self)->open(fd); };
    sockets_ = &context.sockets(0);
    loop_ = &context.loop(0);
    other_ = context.shard_count() > 1 ? &context.loop(1) : nullptr;
    return to_create ? to_create(context) : Result<void>();
  }
  Result<void> sealed() override {
    steps += "sealed ";
    return {};
  }
  void start(uint32_t shard) noexcept override {
    steps += "start-" + std::to_string(shard) + " ";
    if (shard != 0) return;
    sockets_->start_listening(listener_);
    loop_->timers().arm(second_, loop_->now_ns() + kNsPerSecond);
  }
  void tick() noexcept override { ++tick_count; }
  void methods(ControlMethods& methods) override {
    methods.add(
        {.name = "count", .result = "N", .help = "Says how many notes there are."},
        [](void* self, ControlCall& call) noexcept {
          auto& notes = *static_cast<Notes*>(self);
          call.go_on(
              *notes.loop_,
              [](void* its, ControlCall& there) noexcept {
                there.result().number(static_cast<Notes*>(its)->counters_->notes.read());
              },
              self);
        },
        this);
  }
  void request_drain() noexcept override { must_drain_ = true; }
  bool is_drained() const noexcept override {
    return must_drain_ && seconds.size() >= drains_after;
  }
  bool stopped() noexcept override {
    steps += "stopped ";
    return true;
  }

  std::function<Result<void>(ServicePlan&)> to_plan;
  std::function<Result<void>(ServiceContext&)> to_create;
  std::string steps;
  std::vector<uint64_t> seconds;  // when the timer expired
  uint32_t other_count = 0;
  uint32_t tick_count = 0;
  size_t drains_after = 0;

 private:
  void open(int fd) noexcept {
    socket_.fd = fd;
    if (sockets_->attach(socket_) == 0) receive();
  }
  void receive() noexcept {
    piece_ = {text_, 64};
    socket_.receive.pieces = &piece_;
    socket_.receive.piece_count = 1;
    socket_.receive.context = this;
    socket_.receive.completed = [](void* self, int64_t bytes) noexcept {
      static_cast<Notes*>(self)->received(bytes);
    };
    sockets_->receive(socket_);
  }
  void received(int64_t bytes) noexcept {
    if (bytes <= 0) {
      sockets_->detach(socket_);
      ::close(socket_.fd);
      return;
    }
    write_.action = FileAction::kWrite;
    write_.memory = text_;
    write_.bytes = static_cast<uint64_t>(bytes);
    write_.context = this;
    write_.completed = [](void* self, int64_t result) noexcept {
      static_cast<Notes*>(self)->written(result);
    };
    file_->begin(write_);
    if (other_ != nullptr) other_->submit(call_);
  }
  void written(int64_t result) noexcept {
    if (result > 0) {
      counters_->notes.add(1);
      counters_->bytes.add(static_cast<uint64_t>(result));
      write_.offset += static_cast<uint64_t>(result);
    }
    answer_ = result > 0 ? "done" : std::to_string(-result);
    piece_ = {answer_.data(), answer_.size()};
    socket_.send.pieces = &piece_;
    socket_.send.piece_count = 1;
    socket_.send.context = this;
    socket_.send.completed = [](void* self, int64_t) noexcept {
      static_cast<Notes*>(self)->receive();
    };
    sockets_->send(socket_);
  }

  std::vector<SocketAddress> listen_;
  std::string path_;
  std::byte* text_ = nullptr;
  File* file_ = nullptr;
  NoteCounters* counters_ = nullptr;
  StreamSockets* sockets_ = nullptr;
  EventLoop* loop_ = nullptr;
  EventLoop* other_ = nullptr;
  StreamListener listener_;
  StreamSocket socket_;
  iovec piece_ = {};
  std::string answer_;
  FileOperation write_;
  LoopCall call_ = {
      .function = [](void* self) noexcept { ++static_cast<Notes*>(self)->other_count; },
      .context = this};
  Timer second_ = {.expired =
                       [](void* self) noexcept {
                         auto& its = *static_cast<Notes*>(self);
                         its.seconds.push_back(its.loop_->now_ns());
                         its.loop_->timers().arm(its.second_, its.loop_->now_ns() + kNsPerSecond);
                       },
                   .context = this};
  bool must_drain_ = false;
};

constexpr char kTables[] = "[notes]\nlisten = [\"tcp:127.0.0.1:7\"]\nfile = \"/var/notes\"\n";

}  // namespace

TEST_GROUP(TestAppliance) {
  std::unique_ptr<Notes> notes = std::make_unique<Notes>();
  std::unique_ptr<TestAppliance> appliance =
      std::make_unique<TestAppliance>(std::vector<Service*>{notes.get()});
};

TEST(TestAppliance, CallsTheServiceInTheOrderOfABoot) {
  STRCMP_EQUAL("", appliance->plan(kTables).c_str());
  STRCMP_EQUAL("", notes->steps.c_str());
  STRCMP_EQUAL("", appliance->create().c_str());
  STRCMP_EQUAL("prepare create sealed ", notes->steps.c_str());
  appliance->start();
  STRCMP_EQUAL("prepare create sealed start-0 ", notes->steps.c_str());
  appliance.reset();
  STRCMP_EQUAL("prepare create sealed start-0 stopped ", notes->steps.c_str());
}

TEST(TestAppliance, TellsProblemsOfTheConfigurationByTheirPosition) {
  STRCMP_CONTAINS("configuration:3:8: \"file\" ",
                  appliance->plan("[notes]\nlisten = [\"tcp:127.0.0.1:7\"]\nfile = 5\n").c_str());
  appliance = std::make_unique<TestAppliance>(std::vector<Service*>{notes.get()});
  const std::string two = appliance->plan("[notes]\nlitsen = []\n");
  STRCMP_CONTAINS("configuration:2:1: unknown key \"litsen\"; did you mean \"listen\"?",
                  two.c_str());
  STRCMP_CONTAINS("\n", two.c_str());  // the missing key is another problem
  STRCMP_EQUAL("", notes->steps.c_str());
}

TEST(TestAppliance, TellsARefusedPlan) {
  notes->to_plan = [](ServicePlan& plan) {
    plan.timers(7, 1);
    return Result<void>();
  };
  STRCMP_CONTAINS("notes: planning timers on shard number 7: the configuration has 1",
                  appliance->plan(kTables).c_str());
}

TEST(TestAppliance, TellsWhyCreateFails) {
  notes->to_create = [](ServiceContext& context) -> Result<void> {
    BP_TRY(context.carve("text:notes"));
    return {};
  };
  STRCMP_EQUAL("notes: carving text:notes: it was handed out before; this is a defect of the "
               "service: plan() must ask for all that create() uses",
               appliance->boot(kTables).c_str());
  appliance.reset();
  STRCMP_EQUAL("prepare create stopped ", notes->steps.c_str());
}

TEST(TestAppliance, LetsAClientTalkToTheService) {
  STRCMP_EQUAL("", appliance->boot(kTables).c_str());
  TestClient client = appliance->connect("notes", "listen");
  MemoryFile& file = appliance->file("notes", "log");
  CHECK(client.send("milk "));
  STRCMP_EQUAL("done", client.receive(4).c_str());
  CHECK(client.send("tea"));
  STRCMP_EQUAL("done", client.receive_all().c_str());
  STRCMP_EQUAL("milk tea", file.content.c_str());
  CHECK(appliance->counter("notes", "notes") == 2);
  CHECK(appliance->counter("notes", "note_bytes") == 2);
  CHECK(appliance->counter("notes", "file_written_bytes", "log") == 8);
  CHECK_FALSE(appliance->counter("notes", "none").has_value());
  file.fail(FileAction::kWrite, ENOSPC);
  CHECK(client.send("rum"));
  STRCMP_EQUAL(std::to_string(ENOSPC).c_str(), client.receive(2).c_str());
  file.hold();
  CHECK(client.send("rum"));
  STRCMP_EQUAL("", client.receive_all().c_str());
  file.release();
  STRCMP_EQUAL("done", client.receive_all().c_str());
  CHECK_FALSE(client.is_closed());
  client.end_sending();
  CHECK(client.is_closed());
}

TEST(TestAppliance, MovesTheClockOnlyAsTheTestSays) {
  STRCMP_EQUAL("", appliance->boot(kTables).c_str());
  const uint64_t begin_ns = appliance->now_ns();
  appliance->run();
  LONGS_EQUAL(0, notes->seconds.size());
  appliance->advance(kNsPerSecond - 1);
  LONGS_EQUAL(0, notes->seconds.size());
  appliance->advance(2 * kNsPerSecond + 1);
  LONGS_EQUAL(3, notes->seconds.size());
  for (size_t i = 0; i < 3; ++i) {
    CHECK_EQUAL(begin_ns + (i + 1) * kNsPerSecond, notes->seconds[i]);  // each at its own time
  }
  CHECK_EQUAL(begin_ns + 3 * kNsPerSecond, appliance->now_ns());
}

TEST(TestAppliance, PlaysAllShardsInOneThread) {
  const std::string shards = "[[shard]]\nname = \"main\"\ncpu = 0\n"
                             "[[shard]]\nname = \"other\"\ncpu = 1\n";
  STRCMP_EQUAL("", appliance->boot(kTables + shards).c_str());
  STRCMP_EQUAL("prepare create sealed start-0 start-1 ", notes->steps.c_str());
  TestClient client = appliance->connect("notes", "listen");
  client.send("milk");
  STRCMP_EQUAL("done", client.receive(4).c_str());
  appliance->run();
  LONGS_EQUAL(1, notes->other_count);
}

TEST(TestAppliance, CallsControlMethods) {
  STRCMP_EQUAL("", appliance->boot(kTables).c_str());
  STRCMP_EQUAL(R"({"jsonrpc":"2.0","id":1,"result":0})", appliance->call("notes.count").c_str());
  TestClient client = appliance->connect("notes", "listen");
  client.send("milk");
  client.receive(4);
  STRCMP_EQUAL(R"({"jsonrpc":"2.0","id":1,"result":1})", appliance->call("notes.count").c_str());
  STRCMP_CONTAINS("\"error\"", appliance->call("notes.none").c_str());
  STRCMP_CONTAINS("\"error\"", appliance->call("notes.count", "{\"more\":1}").c_str());
}

TEST(TestAppliance, DrainsWithinItsTime) {
  STRCMP_EQUAL("", appliance->boot(kTables).c_str());
  notes->drains_after = 2;  // seconds
  const uint64_t begin_ns = appliance->now_ns();
  CHECK(appliance->drain());
  const uint64_t took_ns = appliance->now_ns() - begin_ns;
  CHECK(took_ns >= 2 * kNsPerSecond && took_ns < 3 * kNsPerSecond);
  CHECK(notes->tick_count > 0);
}

TEST(TestAppliance, TellsThatADrainTakesTooLong) {
  STRCMP_EQUAL("", appliance->boot(kTables).c_str());
  notes->drains_after = 1000;
  CHECK_FALSE(appliance->drain());  // after 5 seconds: drain_timeout_ms
  LONGS_EQUAL(5, notes->seconds.size());
}

TEST(TestAppliance, MakesSocketPairs) {
  STRCMP_EQUAL("", appliance->boot(kTables).c_str());
  Fd other;
  TestClient client = appliance->socket_pair(&other);
  CHECK(client.send("hello"));
  char got[8] = {};
  LONGS_EQUAL(5, recv(other.number(), got, sizeof got, 0));
  STRCMP_EQUAL("hello", got);
  LONGS_EQUAL(2, ::send(other.number(), "ok", 2, 0));
  STRCMP_EQUAL("ok", client.receive(2).c_str());
  other.close();
  STRCMP_EQUAL("", client.receive(1).c_str());
  CHECK_FALSE(client.send("more"));
}

// Each begins with the same empty pool.
TEST(TestAppliance, MayBeMadeManyTimes) {
  for (int i = 0; i < 5; ++i) {
    appliance.reset();
    notes = std::make_unique<Notes>();
    appliance = std::make_unique<TestAppliance>(std::vector<Service*>{notes.get()});
    STRCMP_EQUAL("", appliance->boot(kTables).c_str());
    TestClient client = appliance->connect("notes", "listen");
    client.send("milk");
    STRCMP_EQUAL("done", client.receive(4).c_str());
    STRCMP_EQUAL("milk", appliance->file("notes", "log").content.c_str());
  }
}
