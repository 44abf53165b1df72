// Polled files: the operations that go to the polled ring and those that do not, against scripted
// backends; and the ring itself, against the real kernel. tests/guest/polled_test.py has drives
// that are polled.
#include "transport/uring/polled_files.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/file.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/skip.h"
#include "tests/transport/files/asked_file.h"
#include "tests/transport/loop/plain_sleeper.h"
#include "transport/files/file_thread.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

using test::AskedFile;

// A backend that holds its operations until a test answers them.
struct KeepingBackend final : FileBackend {
  Files* files = nullptr;
  std::vector<FileOperation*> issued;
  bool answers = false;  // wait() has an answer
  bool is_closed = false;
  bool has_left = false;

  Result<void> open(Files& all, const KeyTable&, uint32_t) override {
    files = &all;
    return {};
  }
  void issue(FileOperation& operation) noexcept override { issued.push_back(&operation); }
  bool wait(uint64_t deadline_ns) noexcept override {
    while (!answers && monotonic_ns() < deadline_ns) usleep(100);
    if (!answers) return false;
    answer(static_cast<int64_t>(issued.front()->bytes));
    return true;
  }
  void close(bool leaves) noexcept override {
    is_closed = true;
    has_left = leaves;
  }
  void answer(int64_t result) {
    CHECK(!issued.empty());
    FileOperation& operation = *issued.front();
    issued.erase(issued.begin());
    files->handle(operation, result);
  }
};

constexpr PolledLimits kSixteenPages = {.bytes_max = 64 * kKiB, .page_count_max = 16};

}  // namespace

TEST_GROUP(PolledFilesLogic) {
  KeepingBackend ordinary;
  KeepingBackend polled;
  KeyTable keys;
  FileCounters counters[2];
  std::optional<Files> files;
  File* file = nullptr;
  // Static, because CppUTest's operator new ignores this alignment.
  alignas(4096) inline static std::byte memory[4096];

  void setup() override { begin(); }
  // Begins again, with new files and backends.
  void begin() {
    ordinary = {};
    polled = {};
    files.emplace();
    const FileOptions options[] = {{.name = "polled",
                                    .fd = 0,
                                    .operation_count_max = 8,
                                    .alignment_bytes = 512,
                                    .polled = kSixteenPages,
                                    .counters = &counters[0]},
                                   {.name = "other",
                                    .fd = 0,
                                    .operation_count_max = 8,
                                    .alignment_bytes = 512,
                                    .counters = &counters[1]}};
    CHECK(files->open(options, ordinary, keys, nullptr, &polled).ok());
    file = files->find("polled");
    CHECK(file->is_polled() && !files->find("other")->is_polled());
  }
  // The backend that gets such an operation.
  KeepingBackend& backend_of(FileAction action, uint64_t bytes, bool is_durable = false) {
    AskedFile outcome(action, memory, bytes, 0);
    outcome.operation.is_durable = is_durable;
    file->begin(outcome.operation);
    KeepingBackend& backend = polled.issued.empty() ? ordinary : polled;
    LONGS_EQUAL(1, polled.issued.size() + ordinary.issued.size());
    backend.answer(static_cast<int64_t>(bytes));
    LONGS_EQUAL(1, outcome.count);
    return backend;
  }
};

TEST(PolledFilesLogic, ReadsAndWritesGoThereAndNothingElse) {
  POINTERS_EQUAL(&polled, &backend_of(FileAction::kRead, 4096));
  POINTERS_EQUAL(&polled, &backend_of(FileAction::kWrite, 64 * kKiB));
  LONGS_EQUAL(2, counters[0].polled.read());
  POINTERS_EQUAL(&ordinary,
                 &backend_of(FileAction::kWrite, 4096, true));  // it may need a flush, too
  POINTERS_EQUAL(&ordinary, &backend_of(FileAction::kRead, 64 * kKiB + 512));
  for (const FileAction each : {FileAction::kSync, FileAction::kSyncData, FileAction::kAllocate,
                                FileAction::kWriteZeroes, FileAction::kDiscard}) {
    POINTERS_EQUAL(&ordinary, &backend_of(each, 4096));
  }
  LONGS_EQUAL(2, counters[0].polled.read());
  LONGS_EQUAL(9, counters[0].operations.read());
  AskedFile other(FileAction::kRead, memory, 512, 0);
  files->find("other")->begin(other.operation);
  LONGS_EQUAL(1, ordinary.issued.size());
  ordinary.answer(512);
  LONGS_EQUAL(0, counters[1].polled.read());
}

// The rest of an operation may be small enough to be polled.
TEST(PolledFilesLogic, EachPartGoesToItsOwnBackend) {
  AskedFile write(FileAction::kWrite, memory, 128 * kKiB, 0);
  file->begin(write.operation);
  ordinary.answer(96 * kKiB);
  LONGS_EQUAL(0, ordinary.issued.size());
  polled.answer(32 * kKiB);
  LONGS_EQUAL(128 * kKiB, write.result);
  CHECK(files->is_valid());
}

TEST(PolledFilesLogic, WhatTheRingRefusesGoesToTheOrdinaryBackend) {
  AskedFile busy(FileAction::kRead, memory, 512, 0);
  file->begin(busy.operation);
  polled.answer(-EAGAIN);
  LONGS_EQUAL(0, busy.count);
  ordinary.answer(512);
  LONGS_EQUAL(512, busy.result);
  POINTERS_EQUAL(&polled, &backend_of(FileAction::kRead, 512));
  LONGS_EQUAL(0, counters[0].polling_ended.read());
  AskedFile never(FileAction::kRead, memory, 512, 0);
  file->begin(never.operation);
  polled.answer(-EOPNOTSUPP);
  ordinary.answer(512);
  LONGS_EQUAL(512, never.result);
  POINTERS_EQUAL(&ordinary, &backend_of(FileAction::kRead, 512));  // from now on
  LONGS_EQUAL(1, counters[0].polled.read());
  LONGS_EQUAL(1, counters[0].polling_ended.read());
}

TEST(PolledFilesLogic, TheEndWaitsForBothBackends) {
  AskedFile small(FileAction::kRead, memory, 512, 0);
  AskedFile large(FileAction::kRead, memory, 128 * kKiB, 0);
  file->begin(small.operation);
  file->begin(large.operation);
  polled.answers = ordinary.answers = true;
  CHECK(files->close(test::kPatienceNs));
  LONGS_EQUAL(512, small.result);
  LONGS_EQUAL(128 * kKiB, large.result);
  CHECK(polled.is_closed && !polled.has_left && ordinary.is_closed && !ordinary.has_left);
}

TEST(PolledFilesLogic, WhatTheDriveDoesNotAnswerIsLeft) {
  AskedFile small(FileAction::kRead, memory, 512, 0);
  file->begin(small.operation);
  CHECK_FALSE(files->close(0));
  CHECK(polled.has_left && !ordinary.has_left);
  LONGS_EQUAL(0, small.count);
}

// close() gives up after a time, in which this process may get no core. The test then allows more.
TEST(PolledFilesLogic, WhatTheDriveDoesNotAnswerHidesNothing) {
  for (uint64_t patience_ns = 20 * kNsPerMs;; patience_ns *= 2) {
    begin();
    AskedFile small(FileAction::kRead, memory, 512, 0);
    AskedFile large(FileAction::kRead, memory, 128 * kKiB, 0);
    file->begin(small.operation);
    AskedFile second(FileAction::kRead, memory, 128 * kKiB, 0);
    file->begin(large.operation);
    file->begin(second.operation);
    ordinary.answers = true;
    CHECK_FALSE(files->close(patience_ns));
    LONGS_EQUAL(0, small.count);
    CHECK(polled.has_left);
    if (large.count + second.count < 2 && patience_ns < test::kPatienceNs) continue;
    LONGS_EQUAL(1, large.count);
    LONGS_EQUAL(1, second.count);
    CHECK_FALSE(ordinary.has_left);
    return;
  }
}

TEST_GROUP(PolledFiles) {
  std::unique_ptr<test::TestPool> pool;
  std::unique_ptr<PolledFiles> polled = std::make_unique<PolledFiles>();
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  std::unique_ptr<FileThread> thread;
  std::unique_ptr<Files> files = std::make_unique<Files>();
  KeyTable keys;
  FileCounters counters;
  Counter system_calls;
  Fd fd;

  void setup() override {
    pool = std::make_unique<test::TestPool>(test::kTestPoolBaseInRange);
    CHECK(loop->create({}).ok());
    thread = std::make_unique<FileThread>(*loop);
  }
  void teardown() override {
    files->close(test::kPatienceNs);
    polled->destroy();
    thread.reset();
    files.reset();
    loop.reset();
    polled.reset();
    pool.reset();
  }
  bool make_direct_file() {
    char path[] = "/tmp/bedplate-polled-XXXXXX";
    fd = Fd(mkostemp(path, O_CLOEXEC | O_DIRECT));
    unlink(path);
    return fd.is_open();
  }
};

// Operations complete, on a polled drive or not. While none is under way, a poll makes no system
// call.
TEST(PolledFiles, WhatIsNotPolledAfterAllIsDoneAllTheSame) {
  std::byte* const memory = pool->memory(64 * kKiB).data();
  if (!make_direct_file()) BP_SKIP("the file system of /tmp has no direct access");
  if (!polled->create(*loop, **pool, 8, system_calls).ok()) {
    BP_SKIP("io_uring is not available here");
  }
  const FileOptions options = {.name = "log",
                               .fd = fd.number(),
                               .operation_count_max = 8,
                               .alignment_bytes = 4096,
                               .polled = kSixteenPages,
                               .counters = &counters};
  CHECK(files->open({&options, 1}, *thread, keys, nullptr, polled.get()).ok());
  LONGS_EQUAL(0, polled->poll(64));
  LONGS_EQUAL(0, system_calls.read());
  std::memset(memory, 'x', 4096);
  AskedFile write(FileAction::kWrite, memory, 4096, 0);
  files->find("log")->begin(write.operation);
  LONGS_EQUAL(1, polled->poll(64));  // counts as work until its result has come
  const auto ends = [&](const AskedFile& each) {
    return test::eventually([&] {
      polled->poll(64);
      thread->poll(64);
      return each.count > 0;
    });
  };
  CHECK(ends(write));
  LONGS_EQUAL(4096, write.result);
  AskedFile read(FileAction::kRead, memory + 8192, 4096, 0);
  files->find("log")->begin(read.operation);
  CHECK(ends(read));
  LONGS_EQUAL(4096, read.result);
  MEMCMP_EQUAL(memory, memory + 8192, 4096);
  const uint64_t calls = system_calls.read();
  LONGS_EQUAL(0, polled->poll(64));
  LONGS_EQUAL(calls, system_calls.read());
  LONGS_EQUAL(2, counters.operations.read());
  AskedFile last(FileAction::kRead, memory + 16384, 4096, 0);
  files->find("log")->begin(last.operation);
  CHECK(files->close(test::kPatienceNs));
  LONGS_EQUAL(4096, last.result);
}

#if BP_DEBUG
TEST(PolledFiles, AreTheLoopsThreads) {
  pool->memory(64 * kKiB);
  if (!polled->create(*loop, **pool, 8, system_calls).ok()) {
    BP_SKIP("io_uring is not available here");
  }
  test::PlainSleeper sleeper(*loop);
  loop->set_sleeper(sleeper);
  std::thread shard([this] { loop->run(); });
  CHECK(test::eventually([this] { return !loop->is_own_thread(); }));
  FileOperation operation;
  BP_CHECK_DIES("loop_->is_own_thread()", polled->issue(operation));
  BP_CHECK_DIES("loop_->is_own_thread()", polled->poll(1));
  BP_CHECK_DIES("loop_->is_own_thread()", polled->wait(0));
  BP_CHECK_DIES("loop_->is_own_thread()", polled->destroy());
  loop->stop();
  shard.join();
}
#endif
