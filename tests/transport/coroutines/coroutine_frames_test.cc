// Frames come from the smallest class that they fit, and from no other; a coroutine whose frame
// fits none is refused by name.
#include "transport/coroutines/coroutine_frames.h"
#include "transport/coroutines/coroutine.h"  // before CppUTest's macro `new`

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "tests/support/datapath_law.h"
#include "tests/support/death_test.h"
#include "tests/transport/coroutines/coroutine_rig.h"
#include "tests/transport/loop/running_loop.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

Coroutine<> small() { co_return; }
[[gnu::noinline]] void touch(char* bytes) noexcept { asm volatile("" : : "r"(bytes) : "memory"); }
// Its array lives across a wait, so it lies in the frame.
Coroutine<> large(EventLoop& loop) {
  char bytes[8000];
  CoroutineEvent event(loop);
  touch(bytes);
  co_await event;
  touch(bytes);
}

}  // namespace

TEST_GROUP(CoroutineFrames) {
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  std::unique_ptr<FramesRig> rig;
  CoroutineFrames* frames = nullptr;
  char text[1024];

  void setup() override {
    CHECK(loop->create({}).ok());
    rig = std::make_unique<FramesRig>(*loop);
    frames = &rig->frames;
  }
  void teardown() override {
    CHECK(frames->is_valid());
    rig.reset();
    loop.reset();
  }
};

TEST(CoroutineFrames, ComeFromTheSmallestClassThatTheyFit) {
  const CoroutineFrames::Scope scope(*frames);
  void* all[16];
  for (void*& each : all) {
    each = CoroutineFrames::take(1 + 511 * (&each - all) / 15);  // 1 to 512 bytes
    CHECK(each != nullptr);
    LONGS_EQUAL(0, reinterpret_cast<uintptr_t>(each) % alignof(std::max_align_t));
    std::memset(each, 1, 512);
  }
  CHECK_EQUAL(16, frames->in_use());
  CHECK(CoroutineFrames::take(512) == nullptr);  // though frames of the larger class are spare
  CHECK_EQUAL(1, rig->refused.read());
  void* large_one = CoroutineFrames::take(513);
  CHECK(large_one != nullptr);
  std::memset(large_one, 1, 4096);
  CHECK(CoroutineFrames::take(4097) == nullptr);
  CHECK_EQUAL(2, rig->refused.read());
  CHECK(frames->is_valid());
  CoroutineFrames::give_back(all[7]);
  POINTERS_EQUAL(all[7], CoroutineFrames::take(100));
  for (void* each : all) CoroutineFrames::give_back(each);
  CoroutineFrames::give_back(large_one);
  CHECK_EQUAL(0, frames->in_use());
}

TEST(CoroutineFrames, OfTheInnermostScopeAreTaken) {
  FramesRig other(*loop);
  const CoroutineFrames::Scope scope(*frames);
  void* inner = nullptr;
  {
    const CoroutineFrames::Scope within(other.frames);
    inner = CoroutineFrames::take(8);
  }
  void* outer = CoroutineFrames::take(8);
  CHECK_EQUAL(1, frames->in_use());
  CHECK_EQUAL(1, other.frames.in_use());
  CoroutineFrames::give_back(inner);  // each finds its own
  CHECK_EQUAL(0, other.frames.in_use());
  CoroutineFrames::give_back(outer);
}

TEST(CoroutineFrames, ACoroutineThatFitsIsMadeAndDestroyedUnrun) {
  CHECK(check_coroutine(*frames, "small", [] { return small(); }).ok());
  CHECK_EQUAL(0, frames->in_use());
}

TEST(CoroutineFrames, ACoroutineThatFitsNoClassIsRefusedByName) {
  const auto refused = check_coroutine(*frames, "Cache::large", [&] { return large(*loop); });
  CHECK(!refused.ok());
  unsigned bytes = 0;
  format_error(refused.error(), text, sizeof text);
  CHECK_EQUAL(1, std::sscanf(text,
                             "making the coroutine Cache::large: its frame has %u bytes, and the "
                             "largest planned class has 4096; plan a class for it",
                             &bytes));
  CHECK(bytes > 8000);
  STRCMP_CONTAINS(("FrameClass::bytes of at least " + std::to_string(bytes)).c_str(), text);
}

TEST(CoroutineFrames, ACoroutineThatFindsAllFramesInUseIsToldSo) {
  const CoroutineFrames::Scope scope(*frames);
  void* all[16];
  for (void*& each : all) each = CoroutineFrames::take(8);
  const auto refused = check_coroutine(*frames, "small", [] { return small(); });
  CHECK(!refused.ok());
  STRCMP_CONTAINS("all frames of its class are in use; plan more of them: FrameClass::count",
                  format_error(refused.error(), text, sizeof text));
  for (void* each : all) CoroutineFrames::give_back(each);
}

TEST(CoroutineFrames, KeepTheLawOfTheDataPath) {
  BP_SKIP_WITHOUT_LAW();
  const CoroutineFrames::Scope scope(*frames);
  LONGS_EQUAL(0, breaches_in([] { CoroutineFrames::give_back(CoroutineFrames::take(8)); }));
}

// ---- Mistakes -----------------------------------------------------------------------------------

TEST(CoroutineFrames, ACoroutineThatIsMadeOutsideAScopeIsAProgrammingError) {
  BP_CHECK_DIES("a coroutine is called by neither start_coroutine(), a session nor a coroutine",
                (void)small());
}

TEST(CoroutineFrames, ClassesThatDoNotAscendAreAProgrammingError) {
  BP_CHECK_DIES("broken contract: classes of frames do not ascend", {
    static constexpr FrameClass kClasses[] = {{.bytes = 512, .count = 1},
                                              {.bytes = 512, .count = 1}};
    static FramesRig::Memory memory;
    CoroutineFrames wrong;
    wrong.create({.loop = loop.get(), .classes = kClasses, .memory = memory.bytes});
  });
}

TEST(CoroutineFrames, OfAnotherShardAreAProgrammingError) {
  RunningLoop running(0);
  FramesRig others(*running.loop);
  const Ended end = run_forked([&] {
    const CoroutineFrames::Scope scope(others.frames);
    (void)small();
  });
  check_died(end, "a coroutine of a shard's CoroutineFrames was called on another thread", __FILE__,
             __LINE__);
}
