// A store on a real file: the effect of each operation on the file, and growth with the file.
#include "apps/blockd/stores/file_store.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/file.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "transport/files/file_thread.h"
#include "transport/loop/event_loop.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(FileStore) {
  static constexpr uint64_t kBytes = 64 * kKiB;

  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  std::unique_ptr<FileThread> thread;
  std::unique_ptr<Files> files = std::make_unique<Files>();
  KeyTable keys;
  FileCounters counters;
  char path[64] = "/tmp/bedplate-store-XXXXXX";
  Fd fd;
  std::unique_ptr<FileStore> store;
  std::byte* memory = nullptr;
  int64_t result = 0;
  bool is_done = false;

  void setup() override {
    CHECK(loop->create({}).ok());
    thread = std::make_unique<FileThread>(*loop);
    fd = Fd(mkostemp(path, O_CLOEXEC));
    unlink(path);
    CHECK(ftruncate(fd.number(), kBytes) == 0);
    memory = static_cast<std::byte*>(std::aligned_alloc(4096, kBytes));
    std::memset(memory, 0x11, kBytes);
  }
  void teardown() override {
    files->close(test::kPatienceNs);
    std::free(memory);
  }
  void open(uint64_t bytes = 0, bool tells_extents = true) {
    const FileOptions options = {.name = "volume0",
                                 .fd = fd.number(),
                                 .operation_count_max = 4,
                                 .bytes = kBytes,
                                 .tells_extents = tells_extents,
                                 .counters = &counters};
    CHECK(files->open({&options, 1}, *thread, keys).ok());
    store = std::make_unique<FileStore>(*files->find("volume0"), bytes);
  }
  StoreOperation operation(StoreAction action, uint64_t bytes, uint64_t offset = 0) const {
    StoreOperation made;
    made.action = action;
    made.memory = memory;
    made.bytes = bytes;
    made.offset = offset;
    return made;
  }
  int64_t ask(StoreOperation asked) {
    is_done = false;
    asked.context = this;
    asked.completed = [](void* self, int64_t outcome) noexcept {
      auto& its = *static_cast<TEST_GROUP_CppUTestGroupFileStore*>(self);
      its.result = outcome;
      its.is_done = true;
    };
    store->begin(asked);
    CHECK(test::eventually([this] {
      thread->poll(8);
      return is_done;
    }));
    return result;
  }
  uint64_t taken_bytes() {
    struct stat status {};
    CHECK(fsync(fd.number()) == 0 && fstat(fd.number(), &status) == 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  }
};

TEST(FileStore, HasTheBytesOfItsFile) {
  open();
  UNSIGNED_LONGS_EQUAL(kBytes, store->bytes());
  LONGS_EQUAL(512, store->block_bytes());
  CHECK(store->has_extents() && store->zeroes_fast());
  POINTERS_EQUAL(nullptr, store->memory());
}

// A regular file that the configuration calls a device was opened without them.
TEST(FileStore, HasExtentsOnlyIfItsFileTellsThem) {
  open(0, false);
  CHECK_FALSE(store->has_extents());
}

TEST(FileStore, ReadsWhatItWroteAndFlushes) {
  open();
  StoreOperation durable = operation(StoreAction::kWrite, 8192, 4096);
  durable.is_durable = true;
  LONGS_EQUAL(8192, ask(durable));
  LONGS_EQUAL(0, ask(operation(StoreAction::kFlush, 0)));
  StoreOperation read = operation(StoreAction::kRead, 4096, 8192);
  read.memory = memory + 16384;
  std::memset(read.memory, 0, 4096);
  LONGS_EQUAL(4096, ask(read));
  MEMCMP_EQUAL(memory, memory + 16384, 4096);
}

TEST(FileStore, ZeroesWithAndWithoutItsRoomAndGivesItBack) {
  open();
  const auto fill = [this] {
    ask(operation(StoreAction::kWrite, kBytes));
    UNSIGNED_LONGS_EQUAL(kBytes, taken_bytes());
  };
  fill();
  StoreOperation zeroes = operation(StoreAction::kWriteZeroes, kBytes / 2);
  if (ask(zeroes) != 0) BP_SKIP("the file system of /tmp punches no holes");
  UNSIGNED_LONGS_EQUAL(kBytes / 2, taken_bytes());
  fill();
  LONGS_EQUAL(0, ask(operation(StoreAction::kDiscard, kBytes / 2)));
  UNSIGNED_LONGS_EQUAL(kBytes / 2, taken_bytes());
  fill();
  zeroes.keeps_room = true;
  if (ask(zeroes) == 0) UNSIGNED_LONGS_EQUAL(kBytes, taken_bytes());
  std::memset(memory, 0, kBytes);
  LONGS_EQUAL(kBytes, ask(operation(StoreAction::kRead, kBytes)));
  CHECK(std::all_of(memory + kBytes / 2, memory + kBytes,
                    [](std::byte each) { return each == std::byte{0x11}; }));
}

TEST(FileStore, GrowsWithItsFileUnlessItsSizeWasSaid) {
  open();
  CHECK(ftruncate(fd.number(), 2 * kBytes + 100) == 0);
  UNSIGNED_LONGS_EQUAL(kBytes, store->bytes());
  store->look_at_size();
  UNSIGNED_LONGS_EQUAL(2 * kBytes, store->bytes());  // whole blocks
  CHECK(ftruncate(fd.number(), kBytes) == 0);
  store->look_at_size();
  UNSIGNED_LONGS_EQUAL(2 * kBytes, store->bytes());  // the store never shrinks
}

TEST(FileStore, KeepsTheSizeThatWasSaid) {
  open(kBytes / 2);
  CHECK(ftruncate(fd.number(), 2 * kBytes) == 0);
  store->look_at_size();
  UNSIGNED_LONGS_EQUAL(kBytes / 2, store->bytes());
}
