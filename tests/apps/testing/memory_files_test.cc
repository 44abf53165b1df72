// Files in memory behave as files of the kernel do, and fail, wait and lose power as a test says.
#include "apps/testing/memory_files.h"

#include <cerrno>
#include <string>
#include <vector>

#include "tests/transport/files/asked_file.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::AskedFile;
using bedplate::testing::MemoryFile;
using bedplate::testing::MemoryFiles;

TEST_GROUP(MemoryFiles) {
  MemoryFile memory;
  MemoryFiles backend;
  KeyTable keys;
  FileCounters counters;
  Files files;
  File* file = nullptr;

  void open(bool is_writable = true, uint32_t operation_count_max = 4,
            uint32_t alignment_bytes = 1) {
    const FileOptions options = {.name = "log",
                                 .fd = 0,
                                 .operation_count_max = operation_count_max,
                                 .alignment_bytes = alignment_bytes,
                                 .tells_extents = true,
                                 .counters = &counters};
    backend.add(memory, is_writable);
    CHECK(files.open({&options, 1}, backend, keys).ok());
    file = files.find("log");
  }
  void teardown() override { CHECK(files.close(kNsPerSecond)); }

  // Carries out one operation. Returns its result.
  int64_t ask(FileAction action, void* bytes, uint64_t byte_count, uint64_t offset,
              bool is_durable = false) {
    AskedFile asked(action, bytes, byte_count, offset);
    asked.operation.is_durable = is_durable;
    asked.operation.extent_count_max = 4;
    file->begin(asked.operation);
    LONGS_EQUAL(0, asked.count);  // never from within begin()
    while (backend.poll(8) > 0) {
    }
    LONGS_EQUAL(1, asked.count);
    return asked.result;
  }
  int64_t write(std::string text, uint64_t offset, bool is_durable = false) {
    return ask(FileAction::kWrite, text.data(), text.size(), offset, is_durable);
  }
  std::string read(uint64_t bytes, uint64_t offset) {
    std::string got(bytes, '?');
    const int64_t result = ask(FileAction::kRead, got.data(), bytes, offset);
    return result < 0 ? "error " + std::to_string(-result)
                      : got.substr(0, static_cast<size_t>(result));
  }
};

TEST(MemoryFiles, AreReadAndWrittenAsFilesAre) {
  memory.content = "begin";
  open();
  LONGS_EQUAL(3, write("end", 8));
  STRCMP_EQUAL("begin", read(5, 0).c_str());
  CHECK(memory.content == std::string("begin\0\0\0end", 11));
  STRCMP_EQUAL("end", read(100, 8).c_str());  // up to the end of the file
  STRCMP_EQUAL("", read(1, 11).c_str());
  LONGS_EQUAL(0, ask(FileAction::kAllocate, nullptr, 4, 10));
  LONGS_EQUAL(14, memory.content.size());
  LONGS_EQUAL(0, ask(FileAction::kDiscard, nullptr, 100, 8));
  LONGS_EQUAL(14, memory.content.size());
  CHECK(memory.content == "begin" + std::string(9, '\0'));
  LONGS_EQUAL(0, ask(FileAction::kWriteZeroes, nullptr, 20, 2));
  CHECK(memory.content == "be" + std::string(20, '\0'));
  FileExtent extents[4];
  LONGS_EQUAL(1, ask(FileAction::kExtents, extents, 100, 2));
  LONGS_EQUAL(20, extents[0].bytes);
  CHECK(extents[0].has_data);
  LONGS_EQUAL(0, ask(FileAction::kExtents, extents, 100, 22));
  CHECK_EQUAL(0, counters.errors.read());
}

TEST(MemoryFiles, FailAsOftenAsTheTestSays) {
  open();
  memory.fail(FileAction::kWrite, ENOSPC, 2, 1);
  LONGS_EQUAL(3, write("one", 0));
  LONGS_EQUAL(-ENOSPC, write("two", 0));
  LONGS_EQUAL(-ENOSPC, write("two", 0));
  LONGS_EQUAL(5, write("three", 0));
  memory.fail(FileAction::kRead, EIO);
  STRCMP_EQUAL("error 5", read(5, 0).c_str());
  STRCMP_EQUAL("three", read(100, 0).c_str());
  CHECK_EQUAL(3, counters.errors.read());
  // The rest of a read that meets the end of the file is no operation of its own.
  memory.fail(FileAction::kRead, EIO, 1, 1);
  STRCMP_EQUAL("three", read(100, 0).c_str());
  STRCMP_EQUAL("error 5", read(100, 0).c_str());
}

TEST(MemoryFiles, RefuseWhatTheKernelRefuses) {
  open(false, 4, 512);
  alignas(512) static char block[1024];
  LONGS_EQUAL(-EBADF, ask(FileAction::kWrite, block, 512, 0));
  LONGS_EQUAL(-EBADF, ask(FileAction::kDiscard, nullptr, 512, 0));
  LONGS_EQUAL(-EINVAL, ask(FileAction::kRead, block + 1, 512, 0));
  LONGS_EQUAL(-EINVAL, ask(FileAction::kRead, block, 512, 100));
  LONGS_EQUAL(0, ask(FileAction::kRead, block, 512, 512));
  LONGS_EQUAL(0, ask(FileAction::kSync, nullptr, 0, 0));
}

TEST(MemoryFiles, HoldOperationsInTheirOrder) {
  open(true, 2);
  memory.hold();
  std::string texts[3] = {"aaa", "bb", "c"};
  std::vector<std::unique_ptr<AskedFile>> all;
  std::vector<AskedFile*> order;
  for (std::string& text : texts) {
    all.push_back(std::make_unique<AskedFile>(FileAction::kWrite, text.data(), text.size(), 0));
    all.back()->order = &order;
    file->begin(all.back()->operation);
  }
  LONGS_EQUAL(0, backend.poll(8));
  LONGS_EQUAL(2, memory.waiting_count());  // the third waits for its turn
  STRCMP_EQUAL("", memory.content.c_str());
  memory.release();
  while (backend.poll(8) > 0) {
  }
  LONGS_EQUAL(3, order.size());
  for (size_t i = 0; i < 3; ++i) POINTERS_EQUAL(all[i].get(), order[i]);
  STRCMP_EQUAL("cba", memory.content.c_str());
  LONGS_EQUAL(0, memory.waiting_count());
}

TEST(MemoryFiles, APowerCutLeavesWhatWasSynced) {
  memory.content = "old";
  open();
  memory.cut_power();
  STRCMP_EQUAL("old", memory.content.c_str());
  write("new", 0);
  memory.cut_power();
  STRCMP_EQUAL("old", memory.content.c_str());
  write("new", 0);
  LONGS_EQUAL(0, ask(FileAction::kSyncData, nullptr, 0, 0));
  write("lost", 0);
  write("kept", 4, true);
  memory.cut_power();
  CHECK(memory.content == std::string("new\0kept", 8));
}

TEST(MemoryFiles, TheCloseEndsAllOperations) {
  open(true, 1);
  memory.hold();
  char byte = 'x';
  AskedFile first(FileAction::kWrite, &byte, 1, 0), second(FileAction::kWrite, &byte, 1, 1);
  file->begin(first.operation);
  file->begin(second.operation);
  CHECK(files.close(kNsPerSecond));
  LONGS_EQUAL(1, first.result);
  LONGS_EQUAL(-ECANCELED, second.result);
}
