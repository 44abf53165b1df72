// DMA by a real device, and its reach. The device is QEMU's `edu`, which copies between memory and
// a buffer of its own (QEMU's document specs/edu describes its registers). The machine of
// tests/guest/vfio_test.py has one.
#include <algorithm>
#include <cstring>

#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/units.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/skip.h"
#include "transport/vfio/pci_device.h"
#include "transport/vfio/vfio_pool.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr size_t kRegistersBytes = kMiB;
constexpr size_t kSource = 0x80, kTarget = 0x88, kCount = 0x90, kCommand = 0x98;
constexpr uint64_t kStart = 1, kToMemory = 2;
constexpr uint64_t kOwnBuffer = 0x40000;
constexpr size_t kBytes = 2048;  // of the device's buffer, whose last byte it cannot copy

// The address of an edu device that vfio-pci has; empty: there is none.
std::string find_edu() {
  for (const std::string& address : list_pci_devices()) {
    char text[32] = "";
    const std::string file = "/sys/bus/pci/devices/" + address + "/device";
    const PciDevice device = look_up_pci_device(address).take();
    if (device.driver == kVfioDriver && !device.is_without_iommu &&
        read_text_file(file.c_str(), text, sizeof text).ok() &&
        std::string_view(text).starts_with("0x11e8")) {
      return address;
    }
  }
  return "";
}

class Edu {
 public:
  explicit Edu(Fd device) : device_(std::move(device)) {
    vfio_region_info registers = {};
    registers.argsz = sizeof registers;
    registers.index = VFIO_PCI_BAR0_REGION_INDEX;
    CHECK_EQUAL(0, ioctl(device_.number(), VFIO_DEVICE_GET_REGION_INFO, &registers));
    void* mapped = mmap(nullptr, kRegistersBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        device_.number(), static_cast<off_t>(registers.offset));
    CHECK(mapped != MAP_FAILED);
    registers_ = static_cast<volatile uint8_t*>(mapped);
    vfio_region_info config = {};
    config.argsz = sizeof config;
    config.index = VFIO_PCI_CONFIG_REGION_INDEX;
    CHECK_EQUAL(0, ioctl(device_.number(), VFIO_DEVICE_GET_REGION_INFO, &config));
    const uint16_t command = PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
    CHECK_EQUAL(2, pwrite(device_.number(), &command, sizeof command,
                          static_cast<off_t>(config.offset) + PCI_COMMAND));
  }
  ~Edu() { munmap(const_cast<uint8_t*>(registers_), kRegistersBytes); }

  void take_from(const void* memory, uint64_t bytes) {
    copy(reinterpret_cast<uintptr_t>(memory), kOwnBuffer, bytes, 0);
  }
  void give_to(void* memory, uint64_t bytes) {
    copy(kOwnBuffer, reinterpret_cast<uintptr_t>(memory), bytes, kToMemory);
  }

 private:
  volatile uint64_t& at(size_t offset) {
    return *reinterpret_cast<volatile uint64_t*>(registers_ + offset);
  }
  void copy(uint64_t source, uint64_t target, uint64_t bytes, uint64_t direction) {
    at(kSource) = source;
    at(kTarget) = target;
    at(kCount) = bytes;
    at(kCommand) = kStart | direction;
    while ((at(kCommand) & kStart) != 0) usleep(1000);
  }

  Fd device_;
  volatile uint8_t* registers_ = nullptr;
};

}  // namespace

TEST_GROUP(VfioDma) { std::string address = find_edu(); };

// Copies from the second region of one segment to another segment, each at its own address. Memory
// outside the pool does not change.
TEST(VfioDma, ADeviceReachesThePoolAndNothingElse) {
  if (address.empty()) BP_SKIP("vfio-pci has no edu device");
  test::TestPool pool(test::kTestPoolBaseInRange);
  std::byte* first =
      pool->create_segment("first", kGiB + 2 * kMiB, PageSize::k4KiB, 1).take()->address;
  std::byte* from = first + kGiB + 12345 * 8;
  std::byte* to = pool.memory(2 * kMiB).data() + 4096;
  for (size_t i = 0; i < kBytes; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  VfioPool vfio(*pool);
  Edu edu(vfio.open_device(address).take());
  CHECK_EQUAL(0, vfio.keys().key(from, kBytes).key);
  edu.take_from(from, kBytes);
  edu.give_to(to, kBytes);
  CHECK(std::equal(from, from + kBytes, to));

  alignas(4096) static std::byte outside[4096];
  std::memset(outside, 0x5a, sizeof outside);
  const KeyedRange none = vfio.keys().key(outside, kBytes);
  CHECK(none.key == kNoKey);
  edu.give_to(outside, kBytes);
  for (const std::byte one : outside) CHECK(one == std::byte{0x5a});
}
