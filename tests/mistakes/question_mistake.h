// The base of mistakes with questions: a service that asks its own shard, and plans one question.
#pragma once

#include "tests/mistakes/mistake.h"
#include "transport/loop/shard_question_datapath.h"

namespace bedplate {

class QuestionMistake : public Mistake {
 public:
  using Mistake::Mistake;
  Result<void> plan(ServicePlan& plan) override {
    plan.questions(0, 1);
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    loop_ = &context.loop(0);
    BP_TRY_ASSIGN(asker_, context.asker(0));
    return {};
  }

 protected:
  EventLoop& loop() noexcept { return *loop_; }
  void ask(ShardQuestion& question) noexcept {
    asker_->ask(*loop_, question, [](ShardQuestion&) noexcept {});
  }

 private:
  EventLoop* loop_ = nullptr;
  ShardAsker* asker_ = nullptr;
};

}  // namespace bedplate
