// Clients of several shards in the test's thread: while a client speaks, all shards run. The clock
// is the test's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/units.h"
#include "tests/apps/kvd/shards_rig.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/request_limit_datapath.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::kvd {

inline constexpr uint64_t kShardsBeginNs = 1000 * kNsPerSecond;

inline std::string set_request(const std::string& key, const std::string& value) {
  return "set " + key + " 0 0 " + std::to_string(value.size()) + "\r\n" + value + "\r\n";
}
inline std::string value_reply(const std::string& key, const std::string& value) {
  return "VALUE " + key + " 0 " + std::to_string(value.size()) + "\r\n" + value + "\r\n";
}

// The loops of shards, which run when the test says so.
struct Loops {
  explicit Loops(uint32_t count) {
    EventLoopOptions options;
    options.test_clock_ns = &clock_ns;
    for (uint32_t i = 0; i < count; ++i) {
      loops.push_back(std::make_unique<EventLoop>());
      CHECK(loops.back()->create(options).ok());
      loops.back()->timers().reserve_more(RequestLimit::kTimerCount);
    }
  }
  std::vector<EventLoop*> all() const {
    std::vector<EventLoop*> pointers;
    for (const auto& each : loops) pointers.push_back(each.get());
    return pointers;
  }
  // Returns how much there was to do.
  uint32_t run() {
    uint32_t total = 0;
    for (uint32_t work = 1; work > 0; total += work) {
      work = 0;
      for (const auto& each : loops) work += each->run_round();
    }
    return total;
  }

  uint64_t clock_ns = kShardsBeginNs;
  std::vector<std::unique_ptr<EventLoop>> loops;
};

// Shards of one thread, and clients that run them while they speak.
struct Shards {
  explicit Shards(uint32_t count, uint64_t cache_bytes = 1024 * 1024)
      : loops(count), rig(loops.all(), cache_bytes) {
    rig.set_time(loops.clock_ns);
  }
  void pass(uint64_t ns) {
    loops.clock_ns += ns;
    loops.run();
    rig.set_time(loops.clock_ns);
  }

  Loops loops;
  ShardsRig rig;
};

class ShardClient {
 public:
  explicit ShardClient(Shards& shards, uint32_t shard = 0)
      : shards_(shards), client_(shards.rig.environment(shard)) {}
  ~ShardClient() { leave(); }

  Session& session() { return client_.session(); }
  // Gives as much as the session takes, and runs nothing.
  void give(std::string_view text) {
    while (!text.empty() && client_.give(&text, SIZE_MAX)) {
    }
    CHECK(text.empty());
  }
  std::string take() { return client_.take(); }
  // Runs all shards until they have nothing to do, and takes all replies.
  std::string run() {
    std::string all = take();
    for (bool goes_on = true; goes_on;) {
      const uint32_t work = shards_.loops.run();
      const std::string replies = take();
      all += replies;
      goes_on = work > 0 || !replies.empty();
    }
    return all;
  }
  std::string say(std::string_view text, size_t piece_max = SIZE_MAX) {
    std::string all;
    for (bool goes_on = true; goes_on && !text.empty();) {
      const bool moved = client_.give(&text, piece_max);
      const std::string replies = run();
      all += replies;
      goes_on = moved || !replies.empty();
    }
    return all;
  }
  // The client goes; the session may have the next one.
  void leave() {
    session().leave();
    shards_.loops.run();
    session().reset();
    shards_.loops.run();
  }

 private:
  Shards& shards_;
  Client client_;
};

}  // namespace bedplate::kvd

#define SAYS(answer, ...) STRCMP_EQUAL(std::string(answer).c_str(), (__VA_ARGS__).c_str())
