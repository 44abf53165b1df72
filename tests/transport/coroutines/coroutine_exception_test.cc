// A coroutine of a program with exceptions: one that leaves it ends the process, with a clear text.
#include "transport/coroutines/coroutine.h"

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "tests/support/death_test.h"
#include "tests/transport/coroutines/coroutine_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

Coroutine<int> checked(int number) {
  if (number < 0) throw std::runtime_error("it is negative");
  co_return number;
}
Coroutine<> keep_checked(int number, int* result) { *result = co_await checked(number); }
Coroutine<> run_and_catch(bool* has_caught) {
  try {
    throw std::runtime_error("it is negative");
  } catch (const std::exception&) {
    *has_caught = true;
  }
  co_return;
}

}  // namespace

TEST_GROUP(CoroutineException) {
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  std::unique_ptr<FramesRig> rig;

  void setup() override {
    CHECK(loop->create({}).ok());
    rig = std::make_unique<FramesRig>(*loop);
  }
  void teardown() override {
    rig.reset();
    loop.reset();
  }
};

TEST(CoroutineException, ThatStaysInsideIsTheProgramsOwn) {
  int result = 0;
  bool has_caught = false;
  CHECK(start_coroutine(rig->frames, [&] { return keep_checked(4, &result); }));
  CHECK(start_coroutine(rig->frames, [&] { return run_and_catch(&has_caught); }));
  LONGS_EQUAL(4, result);
  CHECK(has_caught);
}

TEST(CoroutineException, ThatLeavesTheCoroutineEndsTheProcess) {
  BP_CHECK_DIES("broken contract: an exception left a coroutine", {
    EventLoop own_loop;
    if (!own_loop.create({}).ok()) abort();
    FramesRig own(own_loop);
    int result = 0;
    if (!start_coroutine(own.frames, [&] { return keep_checked(-1, &result); })) abort();
  });
}
