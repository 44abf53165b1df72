// A service that drives a PCI device itself, through VFIO: `edu run CONFIG`; [edu] names the
// device. It is QEMU's `edu`, which copies between memory and its own 4 KiB (QEMU's documents
// describe its registers: specs/edu). A malloc block is copied into the device, and from there into
// a carve: the device accepts any pointer of the pool. Then the service serves; your own driver can
// begin like this.
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "apps/boot/service_context.h"
#include "apps/program/program.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "transport/vfio/vfio_pool.h"

using namespace bedplate;
namespace {

// The device's registers: size, offsets and commands.
constexpr size_t kRegistersBytes = size_t{1} << 20;
constexpr size_t kSource = 0x80, kTarget = 0x88, kCount = 0x90, kCommand = 0x98;
constexpr uint64_t kStart = 1, kToMemory = 2;
constexpr uint64_t kOwnBuffer = 0x40000;
constexpr uint64_t kBytes = 2048;

class Edu final : public Service {
  const char* name() const noexcept override { return "edu"; }

  void describe(ConfigurationTable& table) override {
    table.text("device", &address_, 1, 32)
        .required()
        .help("The PCI address of an edu device: `\"0000:00:05.0\"`.");
  }

  Result<void> plan(ServicePlan& plan) override {
    plan.vfio_device(address_);
    plan.segment("edu", {{OwnerName("target", "edu"), kBytes}}, plan.placement(0));
    plan.timers(0, 1);
    return {};
  }

  Result<void> create(ServiceContext& context) override {
    BP_TRY_ASSIGN(target_, context.carve(OwnerName("target", "edu")));
    source_ = static_cast<std::byte*>(std::malloc(kBytes));
    for (size_t i = 0; i < kBytes; ++i) source_[i] = static_cast<std::byte>(i * 7);
    BP_TRY_ASSIGN(device_, context.vfio().open_device(address_));
    BP_TRY(map_registers());
    loop_ = &context.loop(0);
    timer_.context = this;
    timer_.expired = [](void* self) noexcept { static_cast<Edu*>(self)->look(); };
    return {};
  }

  Result<void> map_registers() {
    vfio_region_info registers = {};
    registers.argsz = sizeof registers;
    registers.index = VFIO_PCI_BAR0_REGION_INDEX;
    vfio_region_info config = {};
    config.argsz = sizeof config;
    config.index = VFIO_PCI_CONFIG_REGION_INDEX;
    const uint16_t command = PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER;
    void* mapped = MAP_FAILED;
    if (ioctl(device_.number(), VFIO_DEVICE_GET_REGION_INFO, &config) == 0 &&
        pwrite(device_.number(), &command, sizeof command,
               static_cast<off_t>(config.offset) + PCI_COMMAND) == sizeof command &&
        ioctl(device_.number(), VFIO_DEVICE_GET_REGION_INFO, &registers) == 0) {
      mapped = mmap(nullptr, kRegistersBytes, PROT_READ | PROT_WRITE, MAP_SHARED, device_.number(),
                    static_cast<off_t>(registers.offset));
    }
    if (mapped == MAP_FAILED) {
      return error_from_errno("mapping the registers of %s", address_.c_str())
          .set_cure("name an edu device in [edu]");
    }
    registers_ = static_cast<volatile uint8_t*>(mapped);
    return {};
  }

  void start(uint32_t shard) noexcept override {
    if (shard == 0) copy(reinterpret_cast<uintptr_t>(source_), kOwnBuffer, 0);
  }

  volatile uint64_t& at(size_t offset) noexcept {
    return *reinterpret_cast<volatile uint64_t*>(registers_ + offset);
  }

  void copy(uint64_t source, uint64_t target, uint64_t direction) noexcept {
    at(kSource) = source;
    at(kTarget) = target;
    at(kCount) = kBytes;
    at(kCommand) = kStart | direction;
    loop_->timers().arm(timer_, monotonic_ns() + 10 * kNsPerMs);
  }

  void look() noexcept {
    if ((at(kCommand) & kStart) != 0) {
      loop_->timers().arm(timer_, monotonic_ns() + 10 * kNsPerMs);
      return;
    }
    if (!has_it_) {
      has_it_ = true;
      return copy(kOwnBuffer, reinterpret_cast<uintptr_t>(target_.data()), kToMemory);
    }
    const bool is_same = std::memcmp(source_, target_.data(), kBytes) == 0;
    BP_LOG_INFO("edu: %d bytes of malloc went through the device into a carve: %s",
                static_cast<int>(kBytes), is_same ? "unchanged" : "changed");
  }

  std::string address_;
  std::span<std::byte> target_;
  std::byte* source_ = nullptr;
  Fd device_;
  volatile uint8_t* registers_ = nullptr;
  EventLoop* loop_ = nullptr;
  Timer timer_;
  bool has_it_ = false;
};

}  // namespace
int main(int count, char** words) {
  static Edu edu;
  return run_program(count, words, {&edu});
}
