// Recordings: the position of each packet in the files, the change to the next file, and the errors
// of packets and writes. The simulated disk completes writes when the test says so.
#include "apps/tsrelay/recording_datapath.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/tsrelay/ts_packet_datapath.h"
#include "platform/file.h"
#include "tests/apps/tsrelay/relay_rig.h"
#include "tests/support/death_test.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

constexpr uint32_t kBytes = 188;

struct SlowDisk final : FileBackend {
  Result<void> open(Files&, const KeyTable&, uint32_t) override { return {}; }
  void issue(FileOperation& operation) noexcept override { issued.push_back(&operation); }
  bool wait(uint64_t) noexcept override { return false; }
  void close(bool) noexcept override {}
  std::vector<FileOperation*> issued;
};

}  // namespace

TEST_GROUP(Recording) {
  std::vector<Packet> packets{16};
  std::vector<uint32_t> indices = std::vector<uint32_t>(8);
  PacketTable table;
  std::unique_ptr<PacketRing> ring;
  FakeSocket socket{16};
  SlowDisk disk;
  KeyTable keys;
  FileCounters file_counters;
  std::unique_ptr<Files> files;
  std::vector<Fd> fds;
  Doorbell preparer, shard;
  RecordingCounters counters;
  char directory[64] = "/tmp/bedplate-recording-XXXXXX";
  std::string path;
  std::unique_ptr<RecordingFiles> names;
  std::unique_ptr<Recording> recording;
  uint32_t pushed_count = 0;

  void setup() override {
    CHECK(mkdtemp(directory) != nullptr);
    path = std::string(directory) + "/news.ts";
    table.create(packets, nullptr);
  }
  void teardown() override {
    if (files != nullptr) files->close(0);
    std::filesystem::remove_all(directory);
  }
  // Opens the files and makes the recording, as a start does.
  void begin(uint32_t count, const RecordingOptions& given) {
    if (files != nullptr) files->close(0);
    files = std::make_unique<Files>();
    fds.clear();
    names = std::make_unique<RecordingFiles>(path, count);
    std::vector<FileOptions> options(count);
    for (uint32_t i = 0; i < count; ++i) {
      auto its = names->keeper(i).path();
      CHECK(its.ok());
      fds.emplace_back(::open(its.value().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
      options[i] = {.name = std::string(1, static_cast<char>('a' + i)),
                    .fd = fds[i].number(),
                    .operation_count_max = 64,
                    .counters = &file_counters};
    }
    CHECK(files->open(options, disk, keys).ok());
    std::vector<File*> all;
    for (const FileOptions& one : options) all.push_back(files->find(one.name));
    RecordingOptions own = given;
    own.names = names.get();
    own.counters = &counters;
    own.preparer = &preparer;
    own.shard = &shard;
    ring = std::make_unique<PacketRing>();
    ring->create(table, indices, 1);
    recording = std::make_unique<Recording>();
    CHECK(recording->create(*ring, all, own).ok());
  }

  void push(uint32_t bytes = kBytes, std::byte sync = std::byte{kTsSync}) {
    const uint32_t index = table.take();
    const uint32_t buffer = pushed_count++ % 16;
    std::byte* const content = socket.memory.data() + buffer * FakeSocket::kBufferBytes;
    content[0] = sync;
    table[index].bytes = content;
    table[index].byte_count = table[index].payload_bytes = static_cast<uint16_t>(bytes);
    table[index].socket = &socket;
    socket.is_kept[buffer] = true;
    ring->push(index, 100);
  }
  void pump(uint64_t now_ns = 100) {
    ring->pump(now_ns);
    CHECK(recording->is_valid());
  }
  void record(uint32_t count, uint64_t now_ns = 100) {
    for (uint32_t i = 0; i < count; ++i) push();
    pump(now_ns);
  }
  // Completes the oldest write under way. A positive `result`: the packet is in its file.
  void answer(int64_t result = kBytes) {
    FileOperation& operation = *disk.issued.front();
    disk.issued.erase(disk.issued.begin());
    if (result > 0) {
      const std::vector<char> packet(kBytes, kTsSync);
      const auto offset = static_cast<off_t>(operation.offset);
      LONGS_EQUAL(kBytes, pwrite(operation.file->fd(), packet.data(), kBytes, offset));
    }
    files->handle(operation, result);
    CHECK(recording->is_valid());
  }
  void answer_all() {
    while (!disk.issued.empty()) answer();
  }
  void check_write(size_t index, const char* file, uint64_t offset) {
    STRCMP_EQUAL(file, disk.issued[index]->file->name().c_str());
    LONGS_EQUAL(offset, disk.issued[index]->offset);
    LONGS_EQUAL(kBytes, disk.issued[index]->bytes);
  }
  // Returns the names of all files, with their sizes: "000001:376 000002:0".
  std::string listed() {
    std::vector<std::string> all;
    for (const auto& each : std::filesystem::directory_iterator(directory)) {
      const std::string name = each.path().string();
      const std::string number = name.size() > path.size() ? name.substr(path.size() + 1) : "one";
      all.push_back(number + ":" + std::to_string(each.file_size()));
    }
    std::sort(all.begin(), all.end());
    std::string text;
    for (const std::string& one : all) text += (text.empty() ? "" : " ") + one;
    return text;
  }
};

TEST(Recording, GoesOnWithTheNextFileAndNoneIsLongerThanItMayBe) {
  begin(2, {.rotate_bytes = 2 * kBytes});
  record(3);
  LONGS_EQUAL(3, disk.issued.size());
  check_write(0, "a", 0);
  check_write(1, "a", kBytes);
  check_write(2, "b", 0);
  LONGS_EQUAL(1, counters.file.read());
  recording->prepare();  // leaves the file alone: writes to it are under way
  answer();
  answer();
  STRCMP_EQUAL("000000:376 000001:0", listed().c_str());
  record(2);  // the second packet waits: no file has space
  LONGS_EQUAL(2, disk.issued.size());
  check_write(1, "b", kBytes);
  LONGS_EQUAL(0, counters.dropped.read());
  recording->prepare();
  STRCMP_EQUAL("000001:0 000002:0", listed().c_str());
  pump();
  LONGS_EQUAL(3, disk.issued.size());
  check_write(2, "a", 0);
  LONGS_EQUAL(2, counters.file.read());
  LONGS_EQUAL(3, counters.files.read());
  answer_all();
  STRCMP_EQUAL("000001:376 000002:188", listed().c_str());
  LONGS_EQUAL(5, counters.packets.read());
  LONGS_EQUAL(0, table.used_count());
  CHECK(recording->is_idle() && ring->is_drained());
}

TEST(Recording, WhereTheNextFileCannotBeHadPacketsAreDropped) {
  begin(2, {.rotate_bytes = 2 * kBytes});
  record(4);
  answer_all();
  std::filesystem::rename(path + ".000000", path + ".kept");
  record(1);
  LONGS_EQUAL(0, disk.issued.size());
  test::StderrCapture capture;
  recording->prepare();
  const std::string said = capture.finish();
  STRCMP_CONTAINS("news.ts.000000, the next file of a recording: it was moved away", said.c_str());
  STRCMP_CONTAINS("all others were moved away or removed", said.c_str());
  pump();
  record(3);
  LONGS_EQUAL(0, disk.issued.size());
  LONGS_EQUAL(4, counters.dropped.read());
  recording->tell();
  LONGS_EQUAL(1, counters.is_stuck.read());
  STRCMP_EQUAL("000001:376 kept:376", listed().c_str());
  CHECK(ring->is_drained());
}

// The same as if the directory could not be written to for a while.
TEST(Recording, GoesOnOnceTheNextFileCanBeHadAfterAll) {
  begin(2, {.rotate_bytes = 2 * kBytes});
  record(4);
  answer_all();
  std::filesystem::create_directory(path + ".away");
  for (uint64_t number = 2; number < 80; ++number) {  // every name that it would try
    char name[16];
    std::snprintf(name, sizeof name, ".%06u", static_cast<unsigned>(number));
    std::filesystem::create_directory(path + name);
  }
  test::StderrCapture capture;
  recording->prepare();
  pump();
  record(1);
  LONGS_EQUAL(1, counters.dropped.read());
  for (uint64_t number = 2; number < 80; ++number) {
    char name[16];
    std::snprintf(name, sizeof name, ".%06u", static_cast<unsigned>(number));
    std::filesystem::remove(path + name);
  }
  recording->prepare();
  STRCMP_CONTAINS("renaming ", capture.finish().c_str());
  record(1);
  LONGS_EQUAL(1, disk.issued.size());
  check_write(0, "a", 0);
  LONGS_EQUAL(2, counters.file.read());
  answer_all();
}

TEST(Recording, AFileThatWasMovedAwayIsPassedOver) {
  begin(3, {.rotate_bytes = kBytes});
  record(3);
  answer_all();  // all three are full
  std::filesystem::rename(path + ".000000", path + ".kept");
  test::StderrCapture capture;
  recording->prepare();
  STRCMP_CONTAINS("it was moved away or removed, and is left alone", capture.finish().c_str());
  record(1);
  check_write(0, "b", 0);
  answer_all();
  STRCMP_EQUAL("000002:188 000003:188 kept:188", listed().c_str());
}

TEST(Recording, AStartGoesOnBehindTheLastWholePacketOfTheYoungestFile) {
  begin(3, {.rotate_bytes = 4 * kBytes});
  record(6);
  answer_all();
  CHECK(truncate((path + ".000001").c_str(), kBytes + 10) == 0);  // torn by a crash
  // By its time, the first file is the youngest.
  CHECK(utimensat(AT_FDCWD, (path + ".000000").c_str(), nullptr, 0) == 0);
  begin(3, {.rotate_bytes = 4 * kBytes});
  LONGS_EQUAL(1, counters.file.read());
  record(4);
  check_write(0, "b", kBytes);
  check_write(2, "b", 3 * kBytes);
  check_write(3, "c", 0);
  answer_all();
  STRCMP_EQUAL("000000:752 000001:752 000002:188", listed().c_str());
}

TEST(Recording, StartsInALoopTakeNothingAway) {
  for (int i = 0; i < 4; ++i) {
    begin(2, {.rotate_bytes = 10 * kBytes});
    recording->prepare();
    record(1);
    answer_all();
  }
  STRCMP_EQUAL("000000:752 000001:0", listed().c_str());
}

TEST(Recording, OneFileIsGoneOnWith) {
  begin(1, {});
  record(2);
  answer_all();
  begin(1, {});
  record(1);
  check_write(0, "a", 2 * kBytes);
  answer_all();
  STRCMP_EQUAL("one:564", listed().c_str());
}

TEST(Recording, TimeEndsAFile) {
  begin(2, {.rotate_ns = 50});
  record(1, 100);
  record(1, 149);
  check_write(1, "a", kBytes);
  record(1, 150);
  check_write(2, "b", 0);
  answer_all();
}

TEST(Recording, WhatIsNoTransportStreamIsCountedAndNotRecorded) {
  begin(1, {});
  push(kBytes, std::byte{0x80});
  push(kBytes - 1);
  push();
  pump();
  LONGS_EQUAL(1, disk.issued.size());
  LONGS_EQUAL(2, counters.foreign.read());
  answer_all();
  LONGS_EQUAL(0, table.used_count());
}

TEST(Recording, AWriteThatFailsIsCountedAndItsPacketLetGo) {
  begin(1, {});
  record(2);
  answer(-ENOSPC);
  answer();
  LONGS_EQUAL(1, counters.errors.read());
  LONGS_EQUAL(1, counters.packets.read());
  LONGS_EQUAL(0, table.used_count());
}

TEST(Recording, AWriteThatEndsTwiceIsAProgrammingError) {
  begin(1, {});
  record(2);
  const FileOperation& first = *disk.issued.front();
  answer();
  BP_CHECK_DIES("assertion failed", first.completed(first.context, kBytes));
  answer();
  BP_CHECK_DIES("writing_count_ > 0", first.completed(first.context, kBytes));
}
