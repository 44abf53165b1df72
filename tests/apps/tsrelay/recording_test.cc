// Recordings: where each packet is written, when the next file is begun, and what becomes of
// packets and writes that fail. The disk is a stand-in that answers when it is told to.
#include "apps/tsrelay/recording_datapath.h"

#include <vector>

#include <sys/mman.h>
#include <sys/stat.h>

#include "platform/file.h"
#include "tests/apps/tsrelay/relay_rig.h"
#include "tests/support/death_test.h"

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
  std::vector<uint32_t> places = std::vector<uint32_t>(8);
  PacketTable table;
  PacketRing ring;
  FakeSocket socket{16};
  SlowDisk disk;
  KeyTable keys;
  FileCounters file_counters;
  Files files;
  Fd fds[2];
  RecordingCounters counters;
  std::unique_ptr<Recording> recording = std::make_unique<Recording>();
  uint32_t pushed_count = 0;

  void setup() override {
    table.create(packets, nullptr);
    ring.create(table, places, 1);
    FileOptions options[2];
    for (int i = 0; i < 2; ++i) {
      fds[i] = Fd(memfd_create("recording", MFD_CLOEXEC));
      CHECK(ftruncate(fds[i].number(), 0) == 0);
      options[i].name = i == 0 ? "a" : "b";
      options[i].fd = fds[i].number();
      options[i].operation_count_max = 16;
      options[i].counters = &file_counters;
    }
    CHECK(files.open(options, disk, keys).ok());
    const std::vector<File*> both = {files.find("a"), files.find("b")};
    CHECK(recording->create(ring, both, {.rotate_bytes = 2 * kBytes, .counters = &counters}).ok());
  }
  void teardown() override { files.close(0); }
  void record(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t index = table.take();
      const uint32_t buffer = pushed_count++ % 16;
      table[index].bytes = socket.memory.data() + buffer * FakeSocket::kBufferBytes;
      table[index].byte_count = table[index].payload_bytes = kBytes;
      table[index].socket = &socket;
      socket.is_kept[buffer] = true;
      ring.push(index, 100);
    }
    ring.pump(100);
    CHECK(recording->is_valid());
  }
  // The oldest write that is under way ends.
  void answer(int64_t result = kBytes) {
    FileOperation& operation = *disk.issued.front();
    disk.issued.erase(disk.issued.begin());
    files.handle(operation, result);
    CHECK(recording->is_valid());
  }
  void check_write(size_t index, const char* file, uint64_t offset) {
    STRCMP_EQUAL(file, disk.issued[index]->file->name().c_str());
    LONGS_EQUAL(offset, disk.issued[index]->offset);
    LONGS_EQUAL(kBytes, disk.issued[index]->bytes);
  }
};

TEST(Recording, GoesOnWithTheNextFileOnceThatIsEmpty) {
  record(3);
  LONGS_EQUAL(3, disk.issued.size());
  check_write(0, "a", 0);
  check_write(1, "a", kBytes);
  check_write(2, "b", 0);
  LONGS_EQUAL(1, counters.file.read());
  for (int i = 0; i < 2; ++i) {
    recording->prepare();  // something is on its way to it
    answer();
  }
  record(2);
  check_write(0, "b", 0);
  check_write(2, "b", 2 * kBytes);  // longer than it should be: the other one is not empty
  CHECK(ftruncate(fds[0].number(), kBytes) == 0);
  recording->prepare();
  struct stat status;
  CHECK(fstat(fds[0].number(), &status) == 0 && status.st_size == 0);
  record(1);
  check_write(3, "a", 0);
  LONGS_EQUAL(3, counters.files.read());
  while (!disk.issued.empty()) answer();
  LONGS_EQUAL(6, counters.packets.read());
  LONGS_EQUAL(0, table.used_count());
  CHECK(recording->is_idle() && ring.is_drained());
}

TEST(Recording, AWriteThatFailsIsCountedAndItsPacketLetGo) {
  record(2);
  answer(-ENOSPC);
  answer();
  LONGS_EQUAL(1, counters.errors.read());
  LONGS_EQUAL(1, counters.packets.read());
  LONGS_EQUAL(0, table.used_count());
}

TEST(Recording, AWriteThatEndsTwiceIsAProgrammingError) {
  record(2);
  const FileOperation& first = *disk.issued.front();
  answer();
  BP_CHECK_DIES("assertion failed", first.completed(first.context, kBytes));
  answer();
  BP_CHECK_DIES("writing_count_ > 0", first.completed(first.context, kBytes));
}
