// Files of a shard: one contract over io_uring (transport/uring/uring_files.h) and over a thread,
// against the real kernel; and the handling of short and interrupted results, against a scripted
// backend.
#include "transport/files/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/file.h"
#include "tests/support/datapath_law.h"
#include "tests/support/patience.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/skip.h"
#include "tests/transport/files/asked_file.h"
#include "transport/files/file_thread.h"
#include "transport/loop/event_loop.h"
#include "transport/sockets/stream_sockets.h"

#include "CppUTest/TestHarness.h"

namespace bedplate {
namespace {

using test::AskedFile;

// A file without a name, on the file system of /tmp.
Fd make_file(int flags = 0) {
  char path[] = "/tmp/bedplate-files-XXXXXX";
  Fd made(mkostemp(path, O_CLOEXEC | flags));
  unlink(path);
  return made;
}

void fill(std::byte* bytes, uint64_t count, unsigned seed) {
  for (uint64_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed) & 0xff);
}

class FilesFixture : public Utest {
 public:
  virtual std::unique_ptr<StreamSockets> make() = 0;

  std::unique_ptr<EventLoop> loop;
  SocketCounters socket_counters;
  std::unique_ptr<StreamSockets> sockets;
  std::unique_ptr<FileThread> thread;
  std::unique_ptr<test::TestPool> pool;
  KeyTable keys;
  FileCounters counters;
  std::unique_ptr<Files> files;
  Fd fd;
  File* file = nullptr;
  std::vector<std::byte> data = std::vector<std::byte>(256 * kKiB);
  std::vector<std::byte> got = std::vector<std::byte>(256 * kKiB);

  void setup() override {
    loop = std::make_unique<EventLoop>();
    CHECK(loop->create({}).ok());
    sockets = make();
    files = std::make_unique<Files>();
    pool = std::make_unique<test::TestPool>(test::kTestPoolBaseInRange);
    fill(data.data(), data.size(), 7);
  }
  // The same order as in Shard::close().
  void teardown() override {
    files->close(test::kPatienceNs);
    thread.reset();
    keys.destroy();
    sockets.reset();
    files.reset();
    loop.reset();
    pool.reset();
  }

  // Opens `which` for `operation_count_max` operations in flight. Returns false without io_uring.
  bool open(Fd which, uint32_t operation_count_max = 8, uint32_t alignment_bytes = 1) {
    CHECK(which.is_open());
    fd = std::move(which);
    StreamSocketsOptions options;
    options.loop = loop.get();
    options.counters = &socket_counters;
    options.file_operation_count_max = operation_count_max;
    if (!sockets->create(options).ok()) return false;
    if (sockets->device() != nullptr && pool->operator*().segment_count() > 0) {
      CHECK(keys.create(**pool, *sockets->device()).ok());
    }
    loop->add_source(*sockets, 64);
    loop->set_sleeper(*sockets);
    FileBackend* backend = sockets->file_backend();
    if (backend == nullptr) {
      thread = std::make_unique<FileThread>(*loop);
      loop->add_source(*thread, 64);
      backend = thread.get();
    }
    const FileOptions file_options = {.name = "journal",
                                      .fd = fd.number(),
                                      .operation_count_max = operation_count_max,
                                      .alignment_bytes = alignment_bytes,
                                      .tells_extents = true,
                                      .counters = &counters};
    FileBackend* searcher = nullptr;
    if (thread == nullptr) {
      thread = std::make_unique<FileThread>(*loop);
      loop->add_source(*thread, 64);
      searcher = thread.get();
    }
    CHECK(files->open({&file_options, 1}, *backend, keys, searcher).ok());
    file = files->find("journal");
    CHECK(file != nullptr && files->find("other") == nullptr);
    return true;
  }

  uint32_t poll() { return sockets->poll(64) + (thread != nullptr ? thread->poll(64) : 0); }

  int64_t finish(AskedFile& asked) {
    CHECK(test::eventually([&] {
      poll();
      return asked.count > 0;
    }));
    LONGS_EQUAL(1, asked.count);
    CHECK(!asked.operation.is_in_flight);
    return asked.result;
  }
  int64_t ask(FileAction action, void* memory, uint64_t bytes, uint64_t offset) {
    AskedFile asked(action, memory, bytes, offset);
    file->begin(asked.operation);
    return finish(asked);
  }
  int64_t read(void* memory, uint64_t bytes, uint64_t offset) {
    return ask(FileAction::kRead, memory, bytes, offset);
  }
  int64_t write(void* memory, uint64_t bytes, uint64_t offset) {
    return ask(FileAction::kWrite, memory, bytes, offset);
  }

  // ---- The tests ----

  void reads_what_it_wrote_and_tells_the_end() {
    LONGS_EQUAL(100'000, write(data.data(), 100'000, 12'345));
    LONGS_EQUAL(100'000, read(got.data(), 100'000, 12'345));
    MEMCMP_EQUAL(data.data(), got.data(), 100'000);
    LONGS_EQUAL(50'000, read(got.data(), got.size(), 62'345));  // up to the end of the file
    MEMCMP_EQUAL(data.data() + 50'000, got.data(), 50'000);
    LONGS_EQUAL(0, read(got.data(), 1, 112'345));
    LONGS_EQUAL(0, read(got.data(), 1, (1024 * kGiB)));
    LONGS_EQUAL(0, ask(FileAction::kSync, nullptr, 0, 0));
    LONGS_EQUAL(0, ask(FileAction::kSyncData, nullptr, 0, 0));
    LONGS_EQUAL(7, counters.operations.read());
    LONGS_EQUAL(100'000, counters.written_bytes.read());
    LONGS_EQUAL(150'000, counters.read_bytes.read());
    LONGS_EQUAL(0, counters.errors.read());
  }

  void moves_memory_of_the_pool() {
    std::byte* const memory = pool->operator*().segment(0).address;
    fill(memory, 64 * kKiB, 3);
    LONGS_EQUAL(64 * kKiB, write(memory, 64 * kKiB, 0));
    LONGS_EQUAL(64 * kKiB, read(memory + 64 * kKiB, 64 * kKiB, 0));
    MEMCMP_EQUAL(memory, memory + 64 * kKiB, 64 * kKiB);
  }

  void errors_go_to_the_operation() {
    LONGS_EQUAL(-EBADF, write(data.data(), 1, 0));
    LONGS_EQUAL(-EFAULT, read(reinterpret_cast<void*>(8), 1, 0));
    LONGS_EQUAL(1, read(got.data(), 1, 0));  // the next operation works
    LONGS_EQUAL(3, counters.operations.read());
    LONGS_EQUAL(2, counters.errors.read());
  }

  void more_than_planned_wait_for_their_turn() {
    std::deque<AskedFile> asked;
    for (uint64_t i = 0; i < 100; ++i) {
      asked.emplace_back(FileAction::kWrite, data.data() + i * 64, 64, i * 64);
      file->begin(asked.back().operation);
      CHECK(asked.back().operation.is_in_flight);
      LONGS_EQUAL(0, asked.back().count);  // never from within begin()
    }
    for (AskedFile& each : asked) LONGS_EQUAL(64, finish(each));
    LONGS_EQUAL(6'400, read(got.data(), got.size(), 0));
    MEMCMP_EQUAL(data.data(), got.data(), 6'400);
  }

  // Permits only the backend's own calls: to enter its ring, or to wake its thread.
  void keeps_the_law_of_the_data_path() {
    BP_SKIP_WITHOUT_LAW();
    uint32_t done = 0;
    FileOperation operations[8];
    for (FileOperation& operation : operations) {
      operation.action = FileAction::kWrite;
      operation.memory = data.data();
      operation.bytes = 4096;
      operation.offset = static_cast<uint64_t>(&operation - operations) * 4096;
      operation.context = &done;
      operation.completed = [](void* count, int64_t result) noexcept {
        *static_cast<uint32_t*>(count) += result == 4096 ? 1 : 0;
      };
    }
    const auto run = [&]() noexcept {
      const uint32_t before = done;
      for (FileOperation& operation : operations) file->begin(operation);
      const uint64_t end_ns = monotonic_ns() + test::kPatienceNs;
      while (done < before + 8 && monotonic_ns() < end_ns) poll();
    };
    run();
    const bool has_ring = sockets->device() != nullptr;
    LONGS_EQUAL(0, test::breaches_in(run, has_ring ? test::Permit::kRing : test::Permit::kEpoll));
    LONGS_EQUAL(16, done);
  }

  void takes_room_zeroes_and_gives_back() {
    LONGS_EQUAL(64 * kKiB, write(data.data(), 64 * kKiB, 0));
    const int64_t allocated = ask(FileAction::kAllocate, nullptr, 64 * kKiB, 64 * kKiB);
    if (allocated == -EOPNOTSUPP) BP_SKIP("the file system of /tmp does not preallocate");
    LONGS_EQUAL(0, allocated);
    LONGS_EQUAL(128 * kKiB, lseek(fd.number(), 0, SEEK_END));
    LONGS_EQUAL(0, ask(FileAction::kDiscard, nullptr, 4 * kKiB, 8 * kKiB));
    LONGS_EQUAL(128 * kKiB, lseek(fd.number(), 0, SEEK_END));
    std::memset(data.data() + 8 * kKiB, 0, 4 * kKiB);
    const int64_t zeroed = ask(FileAction::kWriteZeroes, nullptr, 4 * kKiB, 32 * kKiB);
    if (zeroed != -EOPNOTSUPP) {
      LONGS_EQUAL(0, zeroed);
      std::memset(data.data() + 32 * kKiB, 0, 4 * kKiB);
    }
    LONGS_EQUAL(64 * kKiB, read(got.data(), 64 * kKiB, 0));
    MEMCMP_EQUAL(data.data(), got.data(), 64 * kKiB);
    LONGS_EQUAL(-EINVAL, ask(FileAction::kAllocate, nullptr, 0, 0));  // no bytes
  }

  void extents_are_told() {
    constexpr uint64_t kPiece = 64 * kKiB;
    LONGS_EQUAL(0, ftruncate(fd.number(), 4 * kPiece));
    LONGS_EQUAL(kPiece, write(data.data(), kPiece, kPiece));
    LONGS_EQUAL(0, ask(FileAction::kSync, nullptr, 0, 0));
    FileExtent extents[4];
    AskedFile all(FileAction::kExtents, extents, 4 * kPiece - 100, 100);
    all.operation.extent_count_max = 4;
    file->begin(all.operation);
    LONGS_EQUAL(3, finish(all));
    CHECK(!extents[0].has_data && extents[1].has_data && !extents[2].has_data);
    UNSIGNED_LONGS_EQUAL(kPiece - 100, extents[0].bytes);
    UNSIGNED_LONGS_EQUAL(kPiece, extents[1].bytes);
    UNSIGNED_LONGS_EQUAL(2 * kPiece, extents[2].bytes);
    AskedFile few(FileAction::kExtents, extents, 4 * kPiece, kPiece + 10);
    few.operation.extent_count_max = 1;
    file->begin(few.operation);
    LONGS_EQUAL(1, finish(few));
    CHECK(extents[0].has_data);
    UNSIGNED_LONGS_EQUAL(kPiece - 10, extents[0].bytes);
    AskedFile last(FileAction::kExtents, extents, 2 * kPiece, kPiece);  // in flight at the close
    last.operation.extent_count_max = 1;
    file->begin(last.operation);
    CHECK(files->close(test::kPatienceNs));
    LONGS_EQUAL(1, last.count);
    LONGS_EQUAL(1, last.result);
  }

  // A test can see whether a write lasts only on a file system that forgets the rest
  // (tests/system/stores_test.py).
  void durable_writes_move_their_bytes() {
    AskedFile durable(FileAction::kWrite, data.data(), 8192, 4096);
    durable.operation.is_durable = true;
    file->begin(durable.operation);
    LONGS_EQUAL(8192, finish(durable));
    LONGS_EQUAL(8192, read(got.data(), 8192, 4096));
    MEMCMP_EQUAL(data.data(), got.data(), 8192);
  }

  void a_sleeping_loop_is_woken() {
    AskedFile asked(FileAction::kWrite, data.data(), data.size(), 0);
    asked.to_stop = loop.get();
    struct Give {
      bool up = false;
      EventLoop* loop = nullptr;
    } give{false, loop.get()};
    Timer bound;
    bound.context = &give;
    bound.expired = [](void* self) noexcept {
      static_cast<Give*>(self)->up = true;
      static_cast<Give*>(self)->loop->stop();
    };
    loop->timers().reserve_more(1);
    loop->timers().arm(bound, monotonic_ns() + test::kPatienceNs);
    file->begin(asked.operation);
    loop->run();
    CHECK(!give.up);
    LONGS_EQUAL(static_cast<long>(data.size()), asked.result);
    loop->timers().cancel(bound);
  }

  void the_end_is_told() {
    std::deque<AskedFile> asked;
    for (uint64_t i = 0; i < 10; ++i) {
      file->begin(asked.emplace_back(FileAction::kWrite, data.data(), 4096, i * 4096).operation);
    }
    CHECK(files->close(test::kPatienceNs));
    for (uint64_t i = 0; i < 10; ++i) {
      LONGS_EQUAL(1, asked[i].count);
      LONGS_EQUAL(i < 2 ? 4096 : -ECANCELED, asked[i].result);  // two were in flight
    }
    LONGS_EQUAL(0, counters.errors.read());
    AskedFile late(FileAction::kWrite, data.data(), 4096, 0);
    file->begin(late.operation);
    LONGS_EQUAL(0, late.count);
    CHECK(!late.operation.is_in_flight);
    CHECK(files->close(test::kPatienceNs));
  }

  void direct_access_ends_at_the_end() {
    void* memory =
        mmap(nullptr, 64 * kKiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    LONGS_EQUAL(0, ftruncate(fd.number(), 5'000));
    LONGS_EQUAL(5'000, read(memory, 32 * kKiB, 0));
    LONGS_EQUAL(904, read(memory, 32 * kKiB, 4096));
    munmap(memory, 64 * kKiB);
  }
};

}  // namespace

TEST_GROUP_BASE(UringFiles, FilesFixture){std::unique_ptr<StreamSockets> make()
                                              override{return make_uring_sockets();
}  // namespace bedplate
}
;
TEST_GROUP_BASE(ThreadFiles, FilesFixture){std::unique_ptr<StreamSockets> make()
                                               override{return make_epoll_sockets();
}
}
;

#define BP_BOTH_FILES(sentence, opening, ...)                  \
  TEST(UringFiles, sentence) {                                 \
    if (!(opening)) BP_SKIP("io_uring is not available here"); \
    __VA_ARGS__;                                               \
  }                                                            \
  TEST(ThreadFiles, sentence) {                                \
    CHECK(opening);                                            \
    __VA_ARGS__;                                               \
  }

BP_BOTH_FILES(ReadsWhatItWroteAndTellsTheEnd, open(make_file()),
              reads_what_it_wrote_and_tells_the_end())
BP_BOTH_FILES(MovesMemoryOfThePool, (pool->memory(128 * kKiB), open(make_file())),
              moves_memory_of_the_pool())
BP_BOTH_FILES(ErrorsGoToTheOperation, open(Fd(::open("/etc/passwd", O_RDONLY | O_CLOEXEC))),
              errors_go_to_the_operation())
BP_BOTH_FILES(MoreThanPlannedWaitForTheirTurn, open(make_file(), 3),
              more_than_planned_wait_for_their_turn())
BP_BOTH_FILES(KeepsTheLawOfTheDataPath, open(make_file(), 3), keeps_the_law_of_the_data_path())
BP_BOTH_FILES(TakesRoomZeroesAndGivesBack, open(make_file()), takes_room_zeroes_and_gives_back())
BP_BOTH_FILES(ExtentsAreTold, open(make_file()), extents_are_told())
BP_BOTH_FILES(DurableWritesMoveTheirBytes, open(make_file()), durable_writes_move_their_bytes())
BP_BOTH_FILES(ASleepingLoopIsWoken, open(make_file()), a_sleeping_loop_is_woken())
BP_BOTH_FILES(TheEndIsTold, open(make_file(), 2), the_end_is_told())

// A pipe without data stands for a disk that does not answer.
TEST(UringFiles, TheEndDoesNotWaitForWhatHangs) {
  int ends[2];
  CHECK(pipe2(ends, O_CLOEXEC) == 0);
  const Fd other_end(ends[1]);
  if (!open(Fd(ends[0]), 1)) BP_SKIP("io_uring is not available here");
  AskedFile hanging(FileAction::kRead, got.data(), 1, 0);
  file->begin(hanging.operation);
  CHECK_FALSE(files->close(kNsPerMs));
  LONGS_EQUAL(0, hanging.count);
}

// No file can make pread(2) wait, but memory can: its page does not come.
TEST(ThreadFiles, TheEndDoesNotWaitForWhatHangs) {
  const Fd faults(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  uffdio_api api = {.api = UFFD_API, .features = 0, .ioctls = 0};
  if (!faults.is_open() || ioctl(faults.number(), UFFDIO_API, &api) != 0) {
    BP_SKIP("userfaultfd is not available here");
  }
  void* const page =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uffdio_register wanted = {.range = {.start = reinterpret_cast<uintptr_t>(page), .len = 4096},
                            .mode = UFFDIO_REGISTER_MODE_MISSING,
                            .ioctls = 0};
  LONGS_EQUAL(0, ioctl(faults.number(), UFFDIO_REGISTER, &wanted));
  CHECK(open(make_file()));
  LONGS_EQUAL(1, write(data.data(), 1, 0));
  AskedFile hanging(FileAction::kRead, page, 1, 0);
  file->begin(hanging.operation);
  CHECK(test::has_input(faults.number()));  // the read has begun; else close() would cancel it
  CHECK_FALSE(files->close(kNsPerMs));
  LONGS_EQUAL(0, hanging.count);
  // Now the page comes, and the read ends. The thread's objects must live until then.
  uffdio_zeropage given = {.range = wanted.range, .mode = 0, .zeropage = 0};
  LONGS_EQUAL(0, ioctl(faults.number(), UFFDIO_ZEROPAGE, &given));
  CHECK(test::eventually([&] { return thread->poll(1) == 1; }));
  // Leaks the thread and its loop, because nothing joins the thread.
  static FileThread* left_thread = nullptr;
  static EventLoop* left_loop = nullptr;
  left_thread = thread.release();
  left_loop = loop.release();
  CHECK(left_thread != nullptr && left_loop != nullptr);
  munmap(page, 4096);
}

TEST(UringFiles, DirectAccessEndsAtTheEnd) {
  Fd direct = make_file(O_DIRECT);
  if (!direct.is_open()) BP_SKIP("the file system of /tmp has no direct access");
  if (!open(std::move(direct), 8, 4096)) BP_SKIP("io_uring is not available here");
  direct_access_ends_at_the_end();
}
TEST(ThreadFiles, DirectAccessEndsAtTheEnd) {
  Fd direct = make_file(O_DIRECT);
  if (!direct.is_open()) BP_SKIP("the file system of /tmp has no direct access");
  CHECK(open(std::move(direct), 8, 4096));
  direct_access_ends_at_the_end();
}

// Memory of the pool is a registered buffer: the kernel moves bytes of the registered pages.
TEST(UringFiles, UseTheRegistration) {
  pool->memory(64 * kKiB);
  if (!open(make_file())) BP_SKIP("io_uring is not available here");
  std::byte* const memory = pool->operator*().segment(0).address;
  LONGS_EQUAL(4096, write(memory, 4096, 0));
  // The new mapping has other pages, but the registered buffer still has the earlier ones.
  std::byte* const before = memory + 8 * kKiB;
  void* const replaced =
      mmap(before, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  POINTERS_EQUAL(before, replaced);
  std::memset(memory, 'x', 4096);
  LONGS_EQUAL(4096, write(memory, 4096, 0));
  LONGS_EQUAL(4096, read(before, 4096, 0));
  BYTES_EQUAL(0, *reinterpret_cast<const char*>(before));
}

namespace {

// A backend whose results the test sets.
struct ScriptedBackend final : FileBackend {
  Result<void> open(Files&, const KeyTable&, uint32_t) override { return {}; }
  void issue(FileOperation& operation) noexcept override { issued.push_back(&operation); }
  bool wait(uint64_t) noexcept override { return false; }
  void close(bool leaves) noexcept override { has_left = leaves; }
  bool has_left = false;
  std::vector<FileOperation*> issued;
};

}  // namespace

TEST_GROUP(FilesLogic) {
  ScriptedBackend backend;
  KeyTable keys;
  FileCounters counters;
  Files files;
  std::byte memory[64] = {};

  File& open(uint32_t operation_count_max, uint32_t alignment_bytes = 1) {
    const FileOptions options = {.name = "log",
                                 .fd = 0,
                                 .operation_count_max = operation_count_max,
                                 .alignment_bytes = alignment_bytes,
                                 .counters = &counters};
    CHECK(files.open({&options, 1}, backend, keys).ok());
    return *files.find("log");
  }
  // Ends the oldest issued operation with this result.
  void answer(int64_t result) {
    CHECK(!backend.issued.empty());
    FileOperation& operation = *backend.issued.front();
    backend.issued.erase(backend.issued.begin());
    files.handle(operation, result);
  }
};

TEST(FilesLogic, ShortAndInterruptedAnswersAreNotTheEnd) {
  File& file = open(4);
  AskedFile write(FileAction::kWrite, memory, 64, 100);
  file.begin(write.operation);
  answer(24);
  LONGS_EQUAL(24, write.operation.moved_bytes);
  answer(-EINTR);
  answer(-EAGAIN);
  LONGS_EQUAL(0, write.count);
  answer(40);
  LONGS_EQUAL(64, write.result);

  AskedFile read(FileAction::kRead, memory, 64, 0);
  file.begin(read.operation);
  answer(10);
  answer(20);
  answer(0);  // the end of the file
  LONGS_EQUAL(30, read.result);
  LONGS_EQUAL(1, read.count);
  LONGS_EQUAL(30, counters.read_bytes.read());
}

TEST(FilesLogic, AWriteIsWholeOrAnError) {
  File& file = open(4);
  AskedFile full(FileAction::kWrite, memory, 64, 0);
  file.begin(full.operation);
  answer(32);
  answer(-ENOSPC);
  LONGS_EQUAL(-ENOSPC, full.result);
  LONGS_EQUAL(32, counters.written_bytes.read());
  AskedFile stuck(FileAction::kWrite, memory, 64, 0);
  file.begin(stuck.operation);
  answer(0);
  LONGS_EQUAL(-EIO, stuck.result);
}

TEST(FilesLogic, DirectReadsStopWithinABlock) {
  File& file = open(4, 512);
  std::vector<std::byte> blocks(4096);
  AskedFile read(FileAction::kRead, blocks.data(), 4096, 0);
  file.begin(read.operation);
  answer(512);
  answer(100);
  LONGS_EQUAL(612, read.result);
}

TEST(FilesLogic, WhatTheKernelDoesNotAnswerIsLeftAndWhatWaitsIsNot) {
  File& file = open(1);
  AskedFile hanging(FileAction::kWrite, memory, 8, 0);
  AskedFile waiting(FileAction::kWrite, memory, 8, 8);
  file.begin(hanging.operation);
  file.begin(waiting.operation);
  CHECK_FALSE(files.close(0));
  CHECK(backend.has_left);
  LONGS_EQUAL(0, hanging.count);
  CHECK(hanging.operation.is_in_flight);
  LONGS_EQUAL(-ECANCELED, waiting.result);
  CHECK_FALSE(files.close(0));
}

TEST(FilesLogic, WaitingOperationsKeepTheirOrder) {
  File& file = open(1);
  std::vector<AskedFile*> order;
  std::deque<AskedFile> asked;
  for (uint64_t i = 0; i < 4; ++i) {
    asked.emplace_back(FileAction::kWrite, memory, 8, i).order = &order;
    file.begin(asked.back().operation);
  }
  for (uint64_t i = 0; i < 4; ++i) {
    LONGS_EQUAL(1, backend.issued.size());
    answer(8);
    LONGS_EQUAL(i + 1, order.size());
    POINTERS_EQUAL(&asked[i], order[i]);
  }
  LONGS_EQUAL(0, backend.issued.size());
}

}  // namespace bedplate
