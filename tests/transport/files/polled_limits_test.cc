// The limits of drives, read from folders that stand for a machine, and the requests that they
// allow.
#include "transport/files/polled_limits.h"

#include <filesystem>

#include <fcntl.h>
#include <sys/sysmacros.h>

#include "platform/file.h"
#include "platform/units.h"
#include "tests/support/fake_root.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::FakeRoot;

namespace {

// A drive 259:0 that is polled, with a partition 259:1 on it.
class PolledMachine : public FakeRoot {
 public:
  PolledMachine() {
    queue("io_poll", 1);
    queue("max_sectors_kb", 512);
    queue("max_segments", 127);
    queue("logical_block_size", 512);
    queue("physical_block_size", 512);
    queue("chunk_sectors", 0);
    queue("virt_boundary_mask", 4095);
    queue("max_segment_size", 4'294'967'295);
    write(kDrive + "/nvme0n1p1/partition", "1\n");
    write(kDrive + "/nvme0n1p1/start", "2048\n");
    link(kDrive, "/sys/dev/block/259:0");
    link(kDrive + "/nvme0n1p1", "/sys/dev/block/259:1");
  }
  void queue(const char* name, uint64_t number) {
    write(kDrive + "/queue/" + name, std::to_string(number) + "\n");
  }
  void forget(const char* name) { std::filesystem::remove(path() + kDrive + "/queue/" + name); }
  void add_slave() { write(kDrive + "/slaves/sda/dev", "8:0\n"); }

 private:
  const std::string kDrive = "/sys/devices/nvme0/nvme0n1";

  void link(const std::string& target, const std::string& link_path) {
    const std::filesystem::path at(path() + link_path);
    std::filesystem::create_directories(at.parent_path());
    std::filesystem::create_directory_symlink(path() + target, at);
  }
};

}  // namespace

TEST_GROUP(PolledLimits) {
  PolledMachine machine;
  char text[1024];

  PolledLimits limits(unsigned minor_number = 0, bool has_file_system = false) {
    auto read = polled_limits_of(makedev(259, minor_number), has_file_system, machine.path());
    CHECK(read.ok());
    return read.value();
  }
  std::string refusal(unsigned minor_number = 0, bool has_file_system = false) {
    auto read = polled_limits_of(makedev(259, minor_number), has_file_system, machine.path());
    return read.ok() ? "" : format_error(read.error(), text, sizeof text);
  }
  static bool takes(const PolledLimits& limits, uint64_t memory, uint64_t bytes, uint64_t offset) {
    return limits.takes(reinterpret_cast<const void*>(memory), bytes, offset);
  }
};

TEST(PolledLimits, BytesAndPagesAreThoseOfTheDrive) {
  const PolledLimits read = limits();
  UNSIGNED_LONGS_EQUAL(512 * kKiB, read.bytes_max);
  LONGS_EQUAL(127, read.page_count_max);
  CHECK(takes(read, 0x10000, 512, 0));
  CHECK(takes(read, 0x10000, 508 * kKiB, 0));
  CHECK(!takes(read, 0x10000, 508 * kKiB + 512, 0));  // within the bytes, but in 128 pages
  CHECK(!takes(read, 0x10200, 508 * kKiB, 0));        // 128 pages too: it begins within a page
  CHECK(takes(read, 0x10200, 508 * kKiB - 512, 0));
  CHECK(!takes(read, 0x10000, 0, 0));
  machine.queue("max_segments", 1024);
  const PolledLimits more = limits();
  CHECK(takes(more, 0x10000, 512 * kKiB, 0));
  CHECK(!takes(more, 0x10000, 512 * kKiB + 512, 0));
}

TEST(PolledLimits, OfAPartitionTheyAreItsDrives) {
  const PolledLimits read = limits(1, true);
  UNSIGNED_LONGS_EQUAL(512 * kKiB, read.bytes_max);
  LONGS_EQUAL(127, read.page_count_max);
}

TEST(PolledLimits, NothingCrossesABoundaryOfTheDrive) {
  machine.queue("chunk_sectors", 256);  // 128 KiB
  const PolledLimits drive = limits();
  CHECK(takes(drive, 0, 128 * kKiB, 128 * kKiB));
  CHECK(!takes(drive, 0, 8 * kKiB, 124 * kKiB));
  CHECK(takes(drive, 0, 4 * kKiB, 124 * kKiB));
  // Offsets in a partition differ from the drive's.
  machine.queue("chunk_sectors", 24);
  const PolledLimits partition = limits(1);  // begins 8 sectors into a chunk
  CHECK(takes(partition, 0, 8 * kKiB, 0));
  CHECK(!takes(partition, 0, 8 * kKiB + 512, 0));
  CHECK(takes(partition, 0, 12 * kKiB, 8 * kKiB));
  STRCMP_EQUAL(
      "checking whether it can be polled: no request may cross a boundary on its drive "
      "(queue/chunk_sectors), and the position of the file is not known; name the drive or a "
      "partition as \"device\", or leave \"polled\" out",
      refusal(1, true).c_str());
}

// The kernel splits requests at physical blocks. A request that begins within a block has less.
TEST(PolledLimits, PhysicalBlocksLeaveLess) {
  machine.queue("physical_block_size", 4096);
  machine.queue("max_sectors_kb", 64);
  const PolledLimits read = limits();
  CHECK(takes(read, 0, 64 * kKiB - 3584, 512));
  CHECK(!takes(read, 0, 64 * kKiB - 3072, 512));
  machine.queue("chunk_sectors", 256);
  CHECK(takes(limits(), 0, 4096 - 3584, 124 * kKiB));
  CHECK(!takes(limits(), 0, 4096 - 3072, 124 * kKiB));
}

TEST(PolledLimits, SegmentsThatMayNotMeetAtPagesLeaveOne) {
  machine.queue("virt_boundary_mask", 65535);
  CHECK(takes(limits(), 0x10000, 4096, 0));
  CHECK(!takes(limits(), 0x10200, 4096, 0));
}

TEST(PolledLimits, WhatIsNotKnownLimitsMost) {
  for (const char* name : {"max_sectors_kb", "max_segments"}) machine.forget(name);
  CHECK(takes(limits(), 0x10000, 4096, 0));
  CHECK(!takes(limits(), 0x10000, 4608, 0));
  CHECK(!takes(limits(), 0x10200, 4096, 0));
}

TEST(PolledLimits, WhatCannotBePolledIsToldWithTheCure) {
  STRCMP_EQUAL("checking whether it can be polled: it is not on a block device of its own; name a "
               "drive or a partition, or a file in ext4 or xfs on one; or leave \"polled\" out",
               refusal(7).c_str());
  machine.queue("max_segment_size", 512);
  STRCMP_CONTAINS("its drive does not accept a request of one page; leave \"polled\" out",
                  refusal().c_str());
  machine.queue("io_poll", 0);
  for (const unsigned each : {0U, 1U}) {
    STRCMP_EQUAL(
        "checking whether it can be polled: its drive cannot be polled: the driver has no poll "
        "queues; for NVMe: set nvme.poll_queues=N on the kernel's command line, or options nvme "
        "poll_queues=N in /etc/modprobe.d, with N the number of shards; or leave "
        "\"polled\" out",
        refusal(each).c_str());
  }
  machine.forget("io_poll");
  STRCMP_CONTAINS("its drive cannot be polled", refusal().c_str());
  machine.add_slave();
  STRCMP_CONTAINS("its device combines others (dm, md) and splits requests itself; name "
                  "one of those devices",
                  refusal().c_str());
}

TEST(PolledLimits, FilesLieOnOneDrive) {
  const Fd file(open("/proc/version", O_RDONLY | O_CLOEXEC));
  auto read = polled_limits_of_file(file.number());
  CHECK(!read.ok());
  STRCMP_EQUAL("checking whether it can be polled: only files of ext4 and xfs on one drive can be "
               "polled; this one is on another file system; put it on one of these, or name a "
               "drive as \"device\"; or leave \"polled\" out",
               format_error(read.error(), text, sizeof text));
}
