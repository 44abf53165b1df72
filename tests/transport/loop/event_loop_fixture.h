// An event loop with sources that a test scripts.
#pragma once

#include <memory>
#include <string>

#include "tests/transport/loop/plain_sleeper.h"
#include "transport/loop/event_loop.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

// Reports as much work as a test sets, and adds its name to the journal at each poll.
class Scripted final : public PollSource {
 public:
  Scripted(char name, std::string& journal) noexcept : name_(name), journal_(journal) {}
  uint32_t poll(uint32_t budget) noexcept override {
    last_budget = budget;
    if (journal_.size() < journal_.capacity()) journal_ += name_;
    if (on_poll != nullptr) on_poll(*this);
    return work;
  }
  uint32_t work = 0;
  uint32_t last_budget = 0;
  uint32_t rounds = 0;
  EventLoop* loop = nullptr;
  void (*on_poll)(Scripted&) noexcept = nullptr;

 private:
  char name_;
  std::string& journal_;
};

struct EventLoopFixture : Utest {
  // Allocated separately, because CppUTest's operator new ignores the alignment.
  std::unique_ptr<EventLoop> loop_memory = std::make_unique<EventLoop>();
  EventLoop& loop = *loop_memory;
  EventLoopCounters counters;
  PlainSleeper sleeper{loop};
  std::string journal;
  Scripted a{'a', journal};
  Scripted b{'b', journal};
  Scripted c{'c', journal};

  void setup() override { journal.reserve(4096); }

  void make(uint64_t spin_ns) { make(spin_ns, sleeper); }
  void make(uint64_t spin_ns, Sleeper& what_it_sleeps_in, uint64_t stall_ns = 0,
            const ProcessPulse* pulse = nullptr) {
    EventLoopOptions options;
    options.stall_ns = stall_ns;
    options.pulse = pulse;
    options.spin_ns = spin_ns;
    options.counters = &counters;
    CHECK(loop.create(options).ok());
    loop.set_sleeper(what_it_sleeps_in);
    a.loop = b.loop = c.loop = &loop;
  }
};

}  // namespace bedplate::test
