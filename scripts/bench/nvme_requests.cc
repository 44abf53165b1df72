// Measures a driver's cost of a read of an NVMe drive: instructions, counted by QEMU.
//
//     nvme_requests vfio ADDRESS|uring DEVICE DEPTH BATCHES
//
// `vfio`: our driver; `uring`: the kernel's, through io_uring with polled completion, registered
// buffers and a registered file. Begins DEPTH random reads of 4 KiB at once, sleeps until the drive
// has answered, and takes the completions. Prints the instructions per request in the median batch:
// those until all requests are with the drive, and those of each poll that found a completion.
// Under -icount the time stamp counter counts instructions (QEMU's cpu_get_ticks()).
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>
#include <x86intrin.h>

#include "platform/clock.h"
#include "transport/nvme/nvme_device.h"
#include "transport/nvme/nvme_drive.h"
#include "transport/vfio/pci_device.h"
#include "transport/vfio/vfio_container.h"

using namespace bedplate;

namespace {

constexpr uint64_t kReadBytes = 4096;
constexpr uint64_t kDriveBytes = 16 * kMiB;
constexpr useconds_t kAnswerUs = 2000;
constexpr uint32_t kDepthMax = 64;

[[noreturn]] void fail(const char* doing, const char* answer) {
  std::fprintf(stderr, "nvme_requests: %s: %s\n", doing, answer);
  std::exit(1);
}
void check(const Result<void>& result) {
  if (!result.ok()) fail(result.error().doing, result.error().answer);
}

std::byte* memory(uint64_t bytes) {
  void* taken = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (taken == MAP_FAILED) fail("allocating memory", std::strerror(errno));
  return static_cast<std::byte*>(taken);
}

class Side {
 public:
  virtual ~Side() = default;
  virtual void read(uint32_t index, uint64_t offset) = 0;
  // Makes the drive begin the prepared requests.
  virtual void submit() = 0;
  // Returns the number of completed requests.
  virtual uint32_t reap() = 0;

 protected:
  std::byte* const data_ = memory(kDepthMax * kReadBytes);
};

class Ours final : public Side {
 public:
  explicit Ours(const char* address) {
    const std::string group = look_up_pci_device(address).take().group;
    NvmeOptions options;
    const uint64_t bytes = NvmeController::bytes_for();
    const uint64_t queue_bytes = NvmeQueuePair::bytes_for(options.queue_entries);
    std::byte* queues = memory(bytes + queue_bytes);
    const NvmeQueueMemory queue = {{queues + bytes, queue_bytes}, &queue_counters_};
    check(container_.open());
    check(container_.open_group(group));
    check(container_.map(queues, bytes + queue_bytes));
    check(container_.map(data_, kDepthMax * kReadBytes));
    auto device = container_.open_device(group, address);
    if (!device.ok()) fail(device.error().doing, device.error().answer);
    check(device_.open(device.take(), address, 1));
    controller_.create(device_, {queues, bytes}, {&queue, 1}, options, counters_, monotonic_ns());
    check(wait_until_ready(controller_, address));
    pair_ = &controller_.queue_pair(0);
    for (uint32_t i = 0; i < kDepthMax; ++i) {
      operations_[i].space = &controller_.space(0);
      operations_[i].memory = data_ + i * kReadBytes;
      operations_[i].block_count = kReadBytes >> operations_[i].space->block_log2;
      operations_[i].context = this;
      operations_[i].done = [](void* self, int error) noexcept {
        if (error != 0) fail("reading", std::strerror(error));
        ++static_cast<Ours*>(self)->ended_;
      };
    }
  }
  void read(uint32_t index, uint64_t offset) override {
    NvmeOperation& operation = operations_[index];
    operation.first_block = offset >> operation.space->block_log2;
    pair_->io().begin(operation, now_ns_);
  }
  void submit() override { pair_->poll(0, now_ns_); }
  uint32_t reap() override {
    ended_ = 0;
    now_ns_ = monotonic_ns();  // the loop's time for this round
    pair_->poll(kDepthMax, now_ns_);
    return ended_;
  }

 private:
  VfioContainer container_;
  NvmeDevice device_;
  NvmeCounters counters_;
  NvmeQueueCounters queue_counters_;
  NvmeController controller_;
  NvmeQueuePair* pair_ = nullptr;
  NvmeOperation operations_[kDepthMax];
  uint64_t now_ns_ = monotonic_ns();
  uint32_t ended_ = 0;
};

class Kernels final : public Side {
 public:
  explicit Kernels(const char* device) {
    const int fd = open(device, O_RDONLY | O_DIRECT);
    if (fd < 0) fail("opening the device", std::strerror(errno));
    const iovec buffers = {data_, kDepthMax * kReadBytes};
    int error = io_uring_queue_init(kDepthMax, &ring_, IORING_SETUP_IOPOLL);
    if (error == 0) error = io_uring_register_buffers(&ring_, &buffers, 1);
    if (error == 0) error = io_uring_register_files(&ring_, &fd, 1);
    if (error != 0) fail("making a ring", std::strerror(-error));
  }
  void read(uint32_t index, uint64_t offset) override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    io_uring_prep_read_fixed(entry, 0, data_ + index * kReadBytes, kReadBytes, offset, 0);
    entry->flags |= IOSQE_FIXED_FILE;
  }
  void submit() override { io_uring_submit(&ring_); }
  uint32_t reap() override {
    io_uring_cqe* ended[kDepthMax];
    io_uring_get_events(&ring_);
    const uint32_t count = io_uring_peek_batch_cqe(&ring_, ended, kDepthMax);
    for (uint32_t i = 0; i < count; ++i)
      if (ended[i]->res != kReadBytes) fail("reading", std::strerror(-ended[i]->res));
    io_uring_cq_advance(&ring_, count);
    return count;
  }

 private:
  io_uring ring_ = {};
};

uint64_t instructions_of(Side& side, uint32_t depth, const std::vector<uint64_t>& offsets) {
  uint64_t begin = __rdtsc();
  for (uint32_t i = 0; i < depth; ++i) side.read(i, offsets[i]);
  side.submit();
  uint64_t total = __rdtsc() - begin;
  for (uint32_t left = depth; left > 0;) {
    usleep(kAnswerUs);
    begin = __rdtsc();
    const uint32_t count = side.reap();
    if (count > 0) total += __rdtsc() - begin;
    left -= count;
  }
  return total;
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) fail("reading the command line", "expected SIDE DEVICE DEPTH BATCHES");
  const bool is_ours = std::strcmp(words[1], "vfio") == 0;
  const auto depth = std::min(static_cast<uint32_t>(std::atoi(words[3])), kDepthMax);
  const int batches = std::atoi(words[4]);
  std::unique_ptr<Side> side;
  if (is_ours) side = std::make_unique<Ours>(words[2]);
  else side = std::make_unique<Kernels>(words[2]);
  std::mt19937 dice(1);
  std::vector<uint64_t> offsets(depth);
  std::vector<uint64_t> instructions;
  for (int i = 0; i < batches; ++i) {
    for (uint64_t& offset : offsets) offset = dice() % (kDriveBytes / kReadBytes) * kReadBytes;
    instructions.push_back(instructions_of(*side, depth, offsets));
  }
  std::sort(instructions.begin(), instructions.end());
  // The median contains no timer interrupt.
  std::printf("%.1f\n", static_cast<double>(instructions[instructions.size() / 2]) / depth);
  return 0;
}
