// The base of mistakes with coroutines: a service with frames on its shard.
#pragma once

#include "tests/mistakes/mistake.h"
#include "transport/coroutines/coroutines.h"

namespace bedplate {

class CoroutineMistake : public Mistake {
 public:
  using Mistake::Mistake;
  Result<void> plan(ServicePlan& plan) override {
    const uint64_t bytes = CoroutineFrames::bytes_for(kFrames);
    plan.segment("cache", {{"frames:cache", bytes}}, plan.placement(0));
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    BP_TRY_ASSIGN(const auto memory, context.carve("frames:cache"));
    loop_ = &context.loop(0);
    frames_.create({.loop = loop_, .classes = kFrames, .memory = memory});
    return {};
  }
  void start(uint32_t) noexcept override {
    if (!start_coroutine(frames_, [this] { return run(); })) end();
    begun();
  }

 protected:
  virtual Coroutine<> run() noexcept = 0;
  // run() has ended, or waits.
  virtual void begun() noexcept {}
  EventLoop& loop() noexcept { return *loop_; }

 private:
  static constexpr FrameClass kFrames[] = {{.bytes = 1024, .count = 8}};

  EventLoop* loop_ = nullptr;
  CoroutineFrames frames_;
};

}  // namespace bedplate
