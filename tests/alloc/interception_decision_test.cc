// The choice of malloc's memory: the sixteen combinations of both settings, the variables that
// switch the pool off, and whole processes (alloc/ordinary_memory.h).
#include "alloc/interception_decision.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/confined_heap.h"
#include "alloc/interception.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/file.h"
#include "platform/units.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::allocate;
using bedplate::test::keep;

namespace {

constexpr Wish kWishes[] = {Wish::kYes, Wish::kNo, Wish::kRuntime, Wish::kAbsent};
constexpr const char* kNames[] = {"yes", "no", "runtime", "absent"};

int question_count = 0;

bool there_is_one() noexcept {
  ++question_count;
  return true;
}

bool there_is_none() noexcept {
  ++question_count;
  return false;
}

InterceptionInputs wishes(Wish leave_pinned, Wish pipeline, bool (*device)() noexcept) {
  InterceptionInputs inputs;
  inputs.leave_pinned = leave_pinned;
  inputs.leave_pinned_pipeline = pipeline;
  inputs.bypass_device_is_present = device;
  return inputs;
}

std::string explained(const InterceptionDecision& decision) {
  char text[256];
  return explain_decision(decision, text, sizeof text);
}

bool lies_in_pool(const void* block) { return in_pool_range(block); }

// Uses the heap as a tool does: blocks of all sizes up to `bytes_max`, and blocks that grow. Only
// the first thread takes the largest sizes, whose pages take most of the time.
void use_heap(bool in_pool, size_t bytes_max) {
  const auto work = [in_pool](size_t largest) {
    test::BlockList list;
    for (size_t bytes = 8; bytes <= largest; bytes *= 2) {
      void* block = allocate(bytes);
      BP_PROBE_CHECK(block != nullptr && lies_in_pool(block) == in_pool);
      std::memset(block, 0x5A, bytes);
      block = keep(std::realloc(block, bytes + bytes / 2));
      BP_PROBE_CHECK(block != nullptr && lies_in_pool(block) == in_pool);
      std::free(block);
      BP_PROBE_CHECK(list.add(bytes < kMiB ? bytes : 8));
    }
    const std::string text(100'000, 'x');
    BP_PROBE_CHECK(lies_in_pool(text.data()) == in_pool);
  };
  work(bytes_max);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work, std::min(bytes_max, 2 * kMiB));
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

BP_PROBE(HeapIsOrdinary) {
  BP_PROBE_CHECK(interception_decision().backing == HeapBacking::kOrdinary);
  BP_PROBE_CHECK(!malloc_is_intercepted());
  BP_PROBE_CHECK(process_pool().segment_count() == 0);
  use_heap(false, 64 * kMiB);
  BP_PROBE_CHECK(process_pool().segment_count() == 0);
  // The program can still create the pool explicitly; malloc does not use the pool's memory.
  auto created = process_pool().create_segment("heap", 8 * kMiB, PageSize::k4KiB, 1);
  BP_PROBE_CHECK(created.ok());
  BP_PROBE_CHECK(add_heap_memory(created.value()->memory()));
  retire_boot_heap();
  use_heap(false, 64 * kMiB);
}

BP_PROBE(HeapIsInThePool) {
  BP_PROBE_CHECK(interception_decision().backing == HeapBacking::kPool);
  BP_PROBE_CHECK(malloc_is_intercepted());
  use_heap(true, 64 * kKiB);
}

// A forked child has its own copy of the ordinary heap.
BP_PROBE(OrdinaryHeapIsCopiedOnFork) {
  auto* const word = static_cast<int*>(allocate(sizeof(int)));
  *word = 1;
  const pid_t child = fork();
  if (child == 0) {
    use_heap(false, 64 * kMiB);
    *word = 2;
    _exit(0);
  }
  int status = -1;
  BP_PROBE_CHECK(waitpid(child, &status, 0) == child && status == 0);
  BP_PROBE_CHECK(*word == 1);
  std::free(word);
}

TEST_GROUP(InterceptionDecision){void setup() override{question_count = 0;
}
}
;

TEST(InterceptionDecision, SixteenCells) {
  // As in docs/allocator.md: rows are leave_pinned, columns are leave_pinned_pipeline.
  const char* const expected[4] = {
      "yes yes yes yes",
      "yes no  no  no ",
      "yes no  run run",
      "yes no  run run",
  };
  for (size_t row = 0; row < 4; ++row) {
    for (size_t column = 0; column < 4; ++column) {
      const std::string cell(expected[row] + 4 * column, 3);
      const std::string text = std::string(kNames[row]) + " by " + kNames[column];
      for (auto* device : {&there_is_one, &there_is_none}) {
        question_count = 0;
        const auto decision = decide_interception(wishes(kWishes[row], kWishes[column], device));
        const bool is_pool = cell == "yes" || (cell == "run" && device == &there_is_one);
        CHECK_TEXT((decision.backing == HeapBacking::kPool) == is_pool, text.c_str());
        CHECK_TEXT((decision.backing == HeapBacking::kOrdinary) == !is_pool, text.c_str());
        LONGS_EQUAL_TEXT(cell == "run" ? 1 : 0, question_count, text.c_str());
        CHECK_TEXT((decision.search == DeviceSearch::kNotAsked) == (cell != "run"), text.c_str());
      }
    }
  }
}

TEST(InterceptionDecision, SwitchWinsOverEveryCell) {
  for (const Wish row : kWishes) {
    for (const Wish column : kWishes) {
      InterceptionInputs inputs = wishes(row, column, &there_is_one);
      inputs.disabled_by = "FAKEROOTKEY";
      CHECK(decide_interception(inputs).backing == HeapBacking::kOrdinary);
    }
  }
  LONGS_EQUAL(0, question_count);
}

TEST(InterceptionDecision, IsExplainedInOneSentence) {
  STRCMP_EQUAL("is the program's own: libbedplate-malloc.a is not linked",
               explained(InterceptionDecision()).c_str());
  STRCMP_EQUAL("hands out pool memory, because leave_pinned is yes, leave_pinned_pipeline is "
               "absent",
               explained(decide_interception(wishes(Wish::kYes, Wish::kAbsent, nullptr))).c_str());
  STRCMP_EQUAL("hands out ordinary memory, because leave_pinned is runtime, leave_pinned_pipeline "
               "is absent and no bypass device is present",
               explained(decide_interception(wishes(Wish::kRuntime, Wish::kAbsent, &there_is_none)))
                   .c_str());
  STRCMP_EQUAL(
      "hands out pool memory, because leave_pinned is absent, leave_pinned_pipeline is "
      "runtime and a bypass device is present",
      explained(decide_interception(wishes(Wish::kAbsent, Wish::kRuntime, &there_is_one))).c_str());
  InterceptionInputs inputs;
  inputs.disabled_by = "BEDPLATE_ALLOC_DISABLE";
  STRCMP_EQUAL("hands out ordinary memory, because BEDPLATE_ALLOC_DISABLE is set",
               explained(decide_interception(inputs)).c_str());
}

TEST(InterceptionDecision, ReadsTheWords) {
  CHECK(parse_wish("yes", "x").value() == Wish::kYes);
  CHECK(parse_wish("no", "x").value() == Wish::kNo);
  CHECK(parse_wish("runtime", "x").value() == Wish::kRuntime);
  CHECK(parse_wish(nullptr, "x").value() == Wish::kAbsent);
  for (const char* word : {"", "Yes", "yes ", " yes", "1", "-1", "true", "absent", "y"}) {
    CHECK_TEXT(!parse_wish(word, "x").ok(), word);
  }
}

TEST(InterceptionDecision, OtherWordsStopTheProgramBeforeMain) {
  BP_SKIP_UNDER_SANITIZER();
  for (const std::string name : {"BEDPLATE_LEAVE_PINNED", "BEDPLATE_LEAVE_PINNED_PIPELINE"}) {
    const test::Ended ended = test::run_fresh("none", {name + "=maybe"});
    LONGS_EQUAL(2, ended.exit_code);
    STRCMP_EQUAL(("bedplate: deciding whether malloc hands out pool memory: " + name +
                  " is \"maybe\"; set it to yes, no or runtime, or unset it\n")
                     .c_str(),
                 ended.text);
  }
}

TEST(InterceptionDecision, LinkedArchiveMeansPool) {
  BP_SKIP_UNDER_SANITIZER();
  const char* room = "BEDPLATE_BOOT_BYTES=64 MiB";
  BP_CHECK_PROBE(HeapIsInThePool, room);
  BP_CHECK_PROBE(HeapIsInThePool, room, "BEDPLATE_LEAVE_PINNED=yes");
  BP_CHECK_PROBE(HeapIsInThePool, room, "BEDPLATE_LEAVE_PINNED=no",
                 "BEDPLATE_LEAVE_PINNED_PIPELINE=yes");
}

TEST(InterceptionDecision, NoMeansAnOrdinaryHeapThatWorks) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(HeapIsOrdinary, "BEDPLATE_LEAVE_PINNED=no");
  BP_CHECK_PROBE(HeapIsOrdinary, "BEDPLATE_ALLOC_DISABLE=");
  BP_CHECK_PROBE(HeapIsOrdinary, "FAKEROOTKEY=17", "BEDPLATE_LEAVE_PINNED=yes");
  BP_CHECK_PROBE(OrdinaryHeapIsCopiedOnFork, "BEDPLATE_LEAVE_PINNED=no");
}

TEST(InterceptionDecision, KnowsTheDevicesThatBypassTheKernel) {
  char directory[] = "/tmp/bedplate-root-XXXXXX";
  CHECK(mkdtemp(directory) != nullptr);
  const std::filesystem::path root(directory);
  const Fd root_fd(open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC));
  CHECK(!bypass_device_is_present_below(root_fd.number()));
  // Drivers without devices do not count.
  for (const char* path : {"sys/class/infiniband", "sys/class/uio", "dev/vfio/vfio"}) {
    std::filesystem::create_directories(root / path);
  }
  CHECK(!bypass_device_is_present_below(root_fd.number()));
  for (const char* device : {"sys/class/infiniband/mlx5_0", "sys/class/uio/uio0", "dev/vfio/17"}) {
    std::filesystem::create_directory(root / device);
    CHECK_TEXT(bypass_device_is_present_below(root_fd.number()), device);
    std::filesystem::remove(root / device);
    CHECK_TEXT(!bypass_device_is_present_below(root_fd.number()), device);
  }
  std::filesystem::remove_all(root);
}

TEST(InterceptionDecision, RuntimeAsksThisMachine) {
  BP_SKIP_UNDER_SANITIZER();
  if (bypass_device_is_present()) {
    BP_CHECK_PROBE(HeapIsInThePool, "BEDPLATE_BOOT_BYTES=64 MiB", "BEDPLATE_LEAVE_PINNED=runtime");
  } else {
    BP_CHECK_PROBE(HeapIsOrdinary, "BEDPLATE_LEAVE_PINNED=runtime");
  }
}
