// An event loop that runs on a thread of its own, with nothing to poll: a shard for tests of calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>

#include "tests/transport/loop/plain_sleeper.h"
#include "transport/loop/event_loop.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

struct RunningLoop {
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  PlainSleeper sleeper{*loop};
  std::thread thread;

  explicit RunningLoop(uint64_t spin_ns) {
    EventLoopOptions options;
    options.spin_ns = spin_ns;
    CHECK(loop->create(options).ok());
    loop->set_sleeper(sleeper);
    thread = std::thread([this] { loop->run(); });
    run_there([] {});  // from here on the loop is its thread's
  }
  ~RunningLoop() {
    loop->stop();
    thread.join();
    CHECK_FALSE(sleeper.overslept);
  }

  // Runs `body` on the loop's thread, and waits for its end. No check may fail in `body`.
  template <typename Body>
  void run_there(Body&& body) {
    struct Run {
      std::remove_reference_t<Body>& body;
      std::atomic<bool> is_over{false};
    } run{body};
    LoopCall call = {.function =
                         [](void* context) noexcept {
                           auto& its = *static_cast<Run*>(context);
                           its.body();
                           its.is_over.store(true);
                         },
                     .context = &run};
    loop->submit(call);
    CHECK(eventually([&] { return run.is_over.load(); }));
  }
};

}  // namespace bedplate::test
