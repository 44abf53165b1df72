// A VFIO container: the reading of the kernel's answer, and the pool in a container, if a device is
// bound to vfio-pci behind an IOMMU (tests/guest/vfio_test.py).
#include "transport/vfio/vfio_container.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>

#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/skip.h"
#include "transport/vfio/pci_device.h"
#include "transport/vfio/vfio_pool.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

std::string text_of(const Error& error) {
  char text[1024];
  return format_error(error, text, sizeof text);
}

// An answer of the kernel, made by the test.
class Answer {
 public:
  Answer() { append(vfio_iommu_type1_info{}); }

  void add_ranges(std::initializer_list<IovaRange> ranges) {
    begin(VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE);
    append(static_cast<uint32_t>(ranges.size()));
    append(uint32_t{0});
    for (const IovaRange& range : ranges) append(vfio_iova_range{range.first, range.last});
  }
  void add_left(uint32_t count) {
    begin(VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL);
    append(count);
  }
  // Sets the `next` of the last capability.
  void set_next(uint32_t offset) {
    std::memcpy(bytes.data() + last_ + offsetof(vfio_info_cap_header, next), &offset, 4);
  }

  std::vector<std::byte> bytes;

 private:
  void begin(uint16_t id) {
    const auto at = static_cast<uint32_t>(bytes.size());
    if (last_ == 0) {
      vfio_iommu_type1_info info = {};
      info.flags = VFIO_IOMMU_INFO_CAPS;
      info.cap_offset = at;
      std::memcpy(bytes.data(), &info, sizeof info);
    } else {
      set_next(at);
    }
    last_ = at;
    append(vfio_info_cap_header{id, 1, 0});
  }
  template <typename T>
  void append(const T& value) {
    const auto* begin = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), begin, begin + sizeof value);
  }

  uint32_t last_ = 0;
};

constexpr IovaRange kBelow = {0, 0xfedf'ffff};
constexpr IovaRange kAbove39 = {0xfef0'0000, 0x7f'ffff'ffff};
constexpr IovaRange kAbove48 = {0xfef0'0000, 0xffff'ffff'ffff};

}  // namespace

TEST_GROUP(VfioInfo){};

TEST(VfioInfo, RangesAndMappingsLeftAreRead) {
  Answer answer;
  answer.add_ranges({kBelow, kAbove48});
  answer.add_left(65535);
  const VfioInfo info = parse_vfio_info(answer.bytes);
  LONGS_EQUAL(2, info.ranges.size());
  CHECK(info.ranges[1].first == kAbove48.first && info.ranges[1].last == kAbove48.last);
  LONGS_EQUAL(65535, *info.mappings_left);
}

TEST(VfioInfo, AnOldKernelSaysNothing) {
  const VfioInfo info = parse_vfio_info(Answer().bytes);
  CHECK(info.ranges.empty() && !info.mappings_left);
  CHECK(parse_vfio_info({}).ranges.empty());
}

TEST(VfioInfo, WhatLiesOutsideOfTheAnswerIsLeftOut) {
  Answer answer;
  answer.add_ranges({kBelow, kAbove48});
  answer.add_left(7);
  for (size_t bytes = 0; bytes < answer.bytes.size(); ++bytes) {
    const std::vector<std::byte> cut(answer.bytes.data(), answer.bytes.data() + bytes);
    CHECK_FALSE(parse_vfio_info(cut).mappings_left.has_value());
  }
}

TEST(VfioInfo, AChainThatGoesBackEnds) {
  Answer answer;
  answer.add_ranges({kBelow});
  answer.add_left(7);
  answer.set_next(sizeof(vfio_iommu_type1_info));
  LONGS_EQUAL(1, parse_vfio_info(answer.bytes).ranges.size());
}

TEST(VfioInfo, AnIommuThatDoesNotReachThePoolIsRefused) {
  const IovaRange narrow[] = {kBelow, kAbove39};
  const IovaRange wide[] = {kBelow, kAbove48};
  CHECK(check_reach(wide, kPoolBase, kPoolBase + kGiB - 1).ok());
  CHECK(check_reach({}, kPoolBase, kPoolBase + kGiB - 1).ok());
  STRCMP_EQUAL("comparing the pool's addresses, 0x108000000000 to 0x10803fffffff, with those that "
               "the IOMMU accepts: it accepts 39 address bits, 45 are needed; give the virtual "
               "machine an IOMMU of 48 bits (QEMU: -device intel-iommu,aw-bits=48); if a machine's "
               "own IOMMU has fewer, leave the device to the kernel's driver",
               text_of(check_reach(narrow, 0x1080'0000'0000, 0x1080'3fff'ffff).error()).c_str());
  STRCMP_CONTAINS("the machine reserves a part of them",
                  text_of(check_reach(wide, 0xfed0'0000, 0xff00'0000).error()).c_str());
}

// The number of the group of a device that vfio-pci has; empty: there is none.
static std::string vfio_group() {
  for (const std::string& address : list_pci_devices()) {
    const PciDevice device = look_up_pci_device(address).take();
    if (device.driver == kVfioDriver && !device.is_without_iommu) return device.group;
  }
  return "";
}

static uint64_t locked_bytes() {
  return read_number_field("/proc/self/status", "VmLck").value_or(0) * kKiB;
}

#define BP_SKIP_WITHOUT_VFIO() \
  if (group.empty()) BP_SKIP("vfio-pci has no device behind an IOMMU")

TEST_GROUP(VfioPool) { std::string group = vfio_group(); };

TEST(VfioPool, WithoutVfioTheModuleIsNamed) {
  if (access("/dev/vfio/vfio", F_OK) == 0) BP_SKIP("this machine has VFIO");
  test::TestPool pool(test::kTestPoolBaseInRange);
  VfioPool vfio(*pool);
  LONGS_EQUAL(0, vfio.mappings_left());
  STRCMP_EQUAL("opening /dev/vfio/vfio, which gives programs access to devices: No such file or "
               "directory; load the kernel's modules: modprobe -a vfio_iommu_type1 vfio-pci",
               text_of(vfio.open_group("1").error()).c_str());
}

TEST(VfioPool, ADeviceWithoutAnIommuGroupIsRefused) {
  const std::vector<std::string> devices = list_pci_devices();
  const auto found = std::find_if(devices.begin(), devices.end(), [](const std::string& address) {
    return look_up_pci_device(address).take().group.empty();
  });
  if (found == devices.end()) BP_SKIP("there is no PCI device without an IOMMU group");
  test::TestPool pool(test::kTestPoolBaseInRange);
  VfioPool vfio(*pool);
  STRCMP_CONTAINS("it has no IOMMU group", text_of(vfio.open_device(*found).error()).c_str());
  LONGS_EQUAL(0, vfio.group_count());
}

// Two segments, the first longer than a region: three mappings, and no more.
TEST(VfioPool, IsMappedByRegionsAndGivenBack) {
  BP_SKIP_WITHOUT_VFIO();
  VfioContainer other;
  CHECK(other.open().ok() && other.open_group(group).ok());
  const uint32_t before = other.mappings_left();
  CHECK(before > 0);
  other.close();

  test::TestPool pool(test::kTestPoolBaseInRange);
  std::byte* first =
      pool->create_segment("first", kGiB + 8 * kMiB, PageSize::k4KiB, 1).take()->address;
  std::byte* second = pool.memory(4 * kMiB).data();
  VfioPool vfio(*pool);
  auto opened = vfio.open_group(group);
  CHECK_TEXT(opened.ok(), opened.ok() ? "" : text_of(opened.error()).c_str());
  LONGS_EQUAL(before - 3, vfio.mappings_left());
  LONGS_EQUAL(0, vfio.keys().key(first, 1).key);
  LONGS_EQUAL(0, vfio.keys().key(first + kGiB, 1).key);
  LONGS_EQUAL(0, vfio.keys().key(second, 4 * kMiB).key);
  LONGS_EQUAL(4 * kMiB, vfio.keys().key(second, kGiB).bytes);
  CHECK(vfio.open_group(group).ok());  // the group is there already
  LONGS_EQUAL(1, vfio.group_count());
  LONGS_EQUAL(before - 3, vfio.mappings_left());
  vfio.close();
  LONGS_EQUAL(0, vfio.mappings_left());
  CHECK(other.open().ok() && other.open_group(group).ok());
  LONGS_EQUAL(before, other.mappings_left());
}

// DPDK does the same: it opens the group itself, and may close it with its port.
TEST(VfioPool, HoldsAGroupThatSomebodyElseOpened) {
  BP_SKIP_WITHOUT_VFIO();
  test::TestPool pool(test::kTestPoolBaseInRange);
  pool.memory(4 * kMiB);
  VfioPool vfio(*pool);
  const int opened = open(("/dev/vfio/" + group).c_str(), O_RDWR | O_CLOEXEC);
  CHECK(opened >= 0);
  CHECK(vfio.add_group(opened, group).ok());
  const uint32_t left = vfio.mappings_left();
  CHECK(left > 0);
  close(opened);
  LONGS_EQUAL(left, vfio.mappings_left());
}

TEST(VfioPool, AGroupThatIsTakenIsRefusedWithTheCure) {
  BP_SKIP_WITHOUT_VFIO();
  VfioContainer other;
  CHECK(other.open().ok() && other.open_group(group).ok());
  test::TestPool pool(test::kTestPoolBaseInRange);
  pool.memory(4 * kMiB);
  VfioPool vfio(*pool);
  STRCMP_EQUAL(("opening /dev/vfio/" + group +
                ", the IOMMU group: Device or resource busy; end the other program that uses a "
                "device of the group")
                   .c_str(),
               text_of(vfio.open_group(group).error()).c_str());
}

// A container knows its mappings: a second mapping of the same memory is refused.
TEST(VfioPool, WhatIsMappedTwiceIsRefused) {
  BP_SKIP_WITHOUT_VFIO();
  test::TestPool pool(test::kTestPoolBaseInRange);
  const std::span<std::byte> memory = pool.memory(4 * kMiB);
  VfioContainer container;
  CHECK(container.open().ok() && container.open_group(group).ok());
  CHECK(container.map(memory.data(), memory.size()).ok());
  STRCMP_CONTAINS("File exists", text_of(container.map(memory.data(), 4096).error()).c_str());
  container.unmap(memory.data(), memory.size());
}

TEST(VfioPool, TheLimitOfLockedMemoryIsNamedAndNothingStaysMapped) {
  BP_SKIP_WITHOUT_VFIO();
  const int outcome = test::exit_code_of([&] {
    test::TestPool pool(test::kTestPoolBaseInRange);
    pool.memory(1 * kMiB);
    pool->create_segment("second", 4 * kMiB, PageSize::k4KiB, 1).take();
    // The kernel counts locked memory and mapped memory together, page by page.
    const uint64_t bytes = locked_bytes() + 2 * kMiB;
    const rlimit limit = {bytes, bytes};
    VfioPool vfio(*pool);
    // Root may lock any amount, so the test becomes another user.
    if (chmod(("/dev/vfio/" + group).c_str(), 0666) != 0 ||
        setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setresuid(65534, 65534, 65534) != 0) {
      return 99;
    }
    const auto opened = vfio.open_group(group);
    if (opened.ok()) return 1;
    const std::string text = text_of(opened.error());
    const bool is_said =
        text.find("mapping 4 MiB at ") == 0 &&
        text.find("; raise the limit of locked memory: ulimit -l unlimited") != std::string::npos;
    return is_said && vfio.mappings_left() == kVfioMappingCountMax ? 0 : 2;
  });
  LONGS_EQUAL(0, outcome);
}
