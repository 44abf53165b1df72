// The waits of coroutines for timers, other shards, files and the queues of peers: each goes on
// with the result of its operation.
#include "transport/coroutines/coroutine_waits.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/datapath_law.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/transport/coroutines/coroutine_rig.h"
#include "tests/transport/loop/running_loop.h"
#include "transport/self/self_provider.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr AmId kData = 3;

// Keeps operations until the test ends them.
struct ScriptedFiles final : FileBackend {
  ScriptedFiles() {
    const FileOptions options = {.name = "log", .fd = 0, .counters = &counters};
    CHECK(files.open({&options, 1}, *this, keys).ok());
    file = files.find("log");
  }
  Result<void> open(Files&, const KeyTable&, uint32_t) override { return {}; }
  void issue(FileOperation& operation) noexcept override { issued = &operation; }
  bool wait(uint64_t) noexcept override { return false; }
  void close(bool) noexcept override {}
  void end(int64_t result) { files.handle(*std::exchange(issued, nullptr), result); }

  FileOperation* issued = nullptr;
  File* file = nullptr;
  KeyTable keys;
  FileCounters counters;
  Files files;
};

}  // namespace

TEST_GROUP(CoroutineWaits) {
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  std::unique_ptr<FramesRig> rig;

  void setup() override {
    CHECK(loop->create({}).ok());
    loop->timers().reserve_more(4);
    rig = std::make_unique<FramesRig>(*loop);
  }
  void teardown() override {
    CHECK_EQUAL(0, rig->frames.in_use());
    rig.reset();
    loop.reset();
  }
  template <typename Make>
  void start(Make && make) {
    CHECK(start_coroutine(rig->frames, make));
  }
};

// ---- A timer ----

TEST(CoroutineWaits, AfterATime) {
  struct Body {
    static Coroutine<> run(int* count) {
      for (*count = 0; *count < 3; ++*count) co_await after(100);
    }
  };
  int count = -1;
  start([&] { return Body::run(&count); });
  const uint64_t now_ns = loop->now_ns();
  LONGS_EQUAL(0, loop->timers().expire(now_ns + 99));
  LONGS_EQUAL(0, count);
  LONGS_EQUAL(3, loop->timers().expire(now_ns + 100));  // the loop's time stands still
  LONGS_EQUAL(3, count);
}

// ---- Another shard ----

namespace {

// A shard that asks another one, each on its own thread.
struct TwoShards {
  TwoShards() { asker.create(*here.loop, 4); }
  ~TwoShards() {
    CHECK(eventually([&] { return rig.frames.in_use() == 0; }));
  }

  template <typename Make>
  void start(Make&& make) {
    bool has_started = false;
    here.run_there([&] { has_started = start_coroutine(rig.frames, make); });
    CHECK(has_started);
  }
  // Waits until the coroutines have ended.
  void finish() {
    CHECK(eventually([&] {
      uint64_t in_use = 1;
      here.run_there([&] { in_use = rig.frames.in_use(); });
      return in_use == 0;
    }));
  }

  RunningLoop here{0};
  RunningLoop there{0};
  ShardAsker asker;
  FramesRig rig{*here.loop};
};

}  // namespace

TEST(CoroutineWaits, AnotherShardCallsAFunction) {
  struct Body {
    static Coroutine<> run(ShardAsker& asker, EventLoop& to, std::thread::id* asked,
                           std::thread::id* answered, int* sum) {
      for (int i = 0; i < 100; ++i) {
        *sum += co_await ask(asker, to, [&]() noexcept {
          *asked = std::this_thread::get_id();
          return i;
        });
      }
      *answered = std::this_thread::get_id();
    }
  };
  TwoShards shards;
  std::thread::id asked, answered;
  int sum = 0;
  shards.start(
      [&] { return Body::run(shards.asker, *shards.there.loop, &asked, &answered, &sum); });
  shards.finish();
  LONGS_EQUAL(4950, sum);
  CHECK(asked == shards.there.thread.get_id());
  CHECK(answered == shards.here.thread.get_id());
  shards.start([&] { return Body::run(shards.asker, *shards.here.loop, &asked, &answered, &sum); });
  shards.finish();
  LONGS_EQUAL(9900, sum);
  CHECK(asked == shards.here.thread.get_id());
}

TEST(CoroutineWaits, AFunctionOfAnotherShardMayReturnNothing) {
  struct Body {
    static Coroutine<> run(ShardAsker& asker, EventLoop& to, int* number) {
      co_await ask(asker, to, [number]() noexcept { *number = 5; });
      *number *= 2;
    }
  };
  TwoShards shards;
  int number = 0;
  shards.start([&] { return Body::run(shards.asker, *shards.there.loop, &number); });
  shards.finish();
  LONGS_EQUAL(10, number);
}

TEST(CoroutineWaits, AQuestionMayBeAnsweredLater) {
  struct Keeping : AwaitedQuestion {
    Keeping() noexcept
        : AwaitedQuestion([](ShardQuestion& self) noexcept {
            static_cast<Keeping&>(self).has_arrived = true;
          }) {}
    bool has_arrived = false;
    int answer_number = 0;
  };
  struct Body {
    static Coroutine<> run(ShardAsker& asker, EventLoop& to, Keeping& question, int* number) {
      co_await ask(asker, to, question);
      *number = question.answer_number;
    }
  };
  TwoShards shards;
  Keeping question;
  int number = 0;
  shards.start([&] { return Body::run(shards.asker, *shards.there.loop, question, &number); });
  CHECK(eventually([&] {
    bool has_arrived = false;
    shards.there.run_there([&] { has_arrived = question.has_arrived; });
    return has_arrived;
  }));
  LONGS_EQUAL(0, number);
  shards.there.run_there([&] {
    question.answer_number = 7;
    question.answer();
  });
  shards.finish();
  LONGS_EQUAL(7, number);
}

// ---- A file ----

TEST(CoroutineWaits, AFile) {
  struct Body {
    static Coroutine<> run(File& file, std::vector<int64_t>* results) {
      char text[8] = "journal";
      const auto written = std::as_bytes(std::span(text));
      results->push_back(co_await write_to(file, written, 16));
      results->push_back(co_await write_to(file, written, 24, true));
      FileOperation sync;
      sync.action = FileAction::kSyncData;
      results->push_back(co_await carry_out(file, sync));
      results->push_back(co_await read_from(file, std::as_writable_bytes(std::span(text)), 40));
      results->push_back(text[0]);
    }
  };
  ScriptedFiles backend;
  std::vector<int64_t> results;
  start([&] { return Body::run(*backend.file, &results); });
  const FileOperation* issued = backend.issued;
  CHECK(issued->action == FileAction::kWrite && !issued->is_durable);
  CHECK_EQUAL(16, issued->offset);
  CHECK_EQUAL(8, issued->bytes);
  STRCMP_EQUAL("journal", static_cast<const char*>(issued->memory));
  LONGS_EQUAL(0, results.size());
  backend.end(8);
  issued = backend.issued;
  CHECK(issued->action == FileAction::kWrite && issued->is_durable);
  CHECK_EQUAL(24, issued->offset);
  backend.end(-ENOSPC);
  CHECK(backend.issued->action == FileAction::kSyncData);
  backend.end(0);
  issued = backend.issued;
  CHECK(issued->action == FileAction::kRead);
  CHECK_EQUAL(40, issued->offset);
  std::memcpy(issued->memory, "r", 1);
  backend.end(8);
  CHECK(results == (std::vector<int64_t>{8, -ENOSPC, 0, 8, 'r'}));
  CHECK(backend.issued == nullptr && backend.files.close(0));
}

// ---- The queue of a peer ----

namespace {

struct ToItself {
  ToItself() : self(5, messenger.dispatcher(), "here") {
    messenger.add_provider(self);
    endpoint = messenger.connect({5}).value();
    messenger.set_handler(kData, {[](void* context, const Message& message) noexcept {
                                    auto& its = *static_cast<ToItself*>(context);
                                    ++its.arrived_count;
                                    if (message.loan.is_there()) its.loans.push_back(message.loan);
                                  },
                                  this});
  }
  // Fills the queue. Returns how many messages it has taken.
  size_t fill() {
    size_t count = 0;
    while (endpoint->am_send(kData, {}) == SendStatus::kDone) ++count;
    return count;
  }

  Messenger messenger;
  SelfProvider self;
  Endpoint* endpoint = nullptr;
  size_t arrived_count = 0;
  std::vector<Loan> loans;
};

}  // namespace

TEST(CoroutineWaits, ASendForRoom) {
  struct Body {
    static Coroutine<> run(ToItself& peer, std::span<const std::byte> payload,
                           std::vector<SendStatus>* ends) {
      for (int i = 0; i < 2; ++i) {
        ends->push_back(co_await send_message(peer.messenger, *peer.endpoint, kData, payload));
      }
    }
  };
  const auto peer = std::make_unique<ToItself>();
  const std::vector<std::byte> payload(peer->endpoint->limits().am_bytes_max + 1);
  std::vector<SendStatus> ends;
  start([&] { return Body::run(*peer, payload, &ends); });
  CHECK(ends == (std::vector<SendStatus>{SendStatus::kTooLong, SendStatus::kTooLong}));
  ends.clear();
  const size_t filled_count = peer->fill();
  start([&] { return Body::run(*peer, {payload.data(), 8}, &ends); });
  LONGS_EQUAL(0, ends.size());
  CHECK(eventually([&] {
    peer->messenger.poll(64);
    return ends.size() == 2 && peer->arrived_count == filled_count + 2;
  }));
  CHECK(ends == (std::vector<SendStatus>{SendStatus::kDone, SendStatus::kDone}));
}

TEST(CoroutineWaits, ALoanForItsReturn) {
  struct Body {
    static Coroutine<> run(ToItself& peer, std::span<std::byte> block, MessageEnd* end,
                           int* count) {
      for (; *count < 2; ++*count) {
        *end = co_await complete(peer.messenger, *peer.endpoint, [&](Completion* done) {
          return peer.endpoint->am_send_loan(kData, {}, block, done);
        });
      }
    }
  };
  const auto peer = std::make_unique<ToItself>();
  std::byte block[64];
  MessageEnd end;
  int count = 0;
  const size_t filled_count = peer->fill();
  start([&] { return Body::run(*peer, block, &end, &count); });
  LONGS_EQUAL(0, peer->loans.size());  // it waits for room
  for (uint32_t i = 1; i <= 2; ++i) {
    CHECK(eventually([&] {
      peer->messenger.poll(64);
      return peer->loans.size() == i;
    }));
    LONGS_EQUAL(i - 1, count);
    peer->messenger.release(peer->loans.back());
    CHECK(eventually([&] {
      peer->messenger.poll(64);
      return count == static_cast<int>(i);
    }));
    CHECK(end.is_done() && end.status == SendStatus::kPending);
  }
  LONGS_EQUAL(filled_count + 2, peer->arrived_count);
}

TEST(CoroutineWaits, AnOperationThatIsRefusedOrDoneAtOnce) {
  struct Body {
    static Coroutine<> run(ToItself& peer, MessageEnd* flushed, MessageEnd* refused) {
      *flushed = co_await complete(peer.messenger, *peer.endpoint,
                                   [&](Completion* done) { return peer.endpoint->flush(done); });
      std::byte bytes[8];
      *refused = co_await complete(peer.messenger, *peer.endpoint, [&](Completion* done) {
        return peer.endpoint->get(bytes, {}, done);
      });
    }
  };
  const auto peer = std::make_unique<ToItself>();
  MessageEnd flushed, refused;
  start([&] { return Body::run(*peer, &flushed, &refused); });
  CHECK(flushed.is_done() && flushed.status == SendStatus::kDone);
  CHECK(!refused.is_done() && refused.status != SendStatus::kPending);
}

// Ends with the loop's run, so that the answer comes within the watch.
TEST(CoroutineWaits, KeepTheLawOfTheDataPath) {
  BP_SKIP_WITHOUT_LAW();
  struct Body {
    static Coroutine<> run(ShardAsker& asker, EventLoop& loop, int* number) {
      co_await after(0);
      *number = co_await ask(asker, loop, []() noexcept { return 4; });
      loop.stop();
    }
  };
  ShardAsker asker;
  asker.create(*loop, 1);
  PlainSleeper sleeper(*loop);
  loop->set_sleeper(sleeper);
  int number = 0;
  bool has_started = false;
  LONGS_EQUAL(0, breaches_in([&] {
                has_started =
                    start_coroutine(rig->frames, [&] { return Body::run(asker, *loop, &number); });
                loop->run();
              }));
  CHECK(has_started);
  LONGS_EQUAL(4, number);
}

// ---- Mistakes -----------------------------------------------------------------------------------

TEST(CoroutineWaits, MoreQuestionsThanPlannedAreAProgrammingError) {
  struct Body {
    static Coroutine<> run(ShardAsker& asker, EventLoop& to) {
      co_await ask(asker, to, []() noexcept {});
    }
  };
  BP_CHECK_DIES(
      "broken contract: more questions are in flight than a service plans on this shard, 1", {
        EventLoop own_loop;
        if (!own_loop.create({}).ok()) abort();
        FramesRig own(own_loop);
        ShardAsker asker;
        asker.create(own_loop, 1);
        for (int i = 0; i < 2; ++i) {
          if (!start_coroutine(own.frames, [&] { return Body::run(asker, own_loop); })) abort();
        }
      });
}
