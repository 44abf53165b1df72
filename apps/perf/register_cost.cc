#include "apps/perf/register_cost.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>

#include <sys/mman.h>

#include "alloc/confined_heap.h"
#include "pinned_pool/boot_segment.h"
#include "platform/assert.h"
#include "platform/clock.h"
#include "transport/registration.h"
#include "transport/verbs/device/verbs_device.h"

namespace bedplate {
namespace {

constexpr uint32_t kRepeats = 1000;  // of calls shorter than one reading of the clock
constexpr uint64_t kPage = page_bytes(PageSize::k4KiB);

// A cache of registrations, by start address, without a limit, as in MPI libraries and UCX.
class RegistrationCache {
 public:
  explicit RegistrationCache(ibv_pd* domain) noexcept : domain_(domain) {}
  ~RegistrationCache() {
    for (const auto& [begin, region] : regions_) ibv_dereg_mr(region);
  }

  // Returns nullptr on failure, with the device's answer in errno.
  ibv_mr* find_or_register(std::byte* memory, uint64_t bytes) {
    const auto after = regions_.upper_bound(memory);
    if (after != regions_.begin()) {
      ibv_mr* region = std::prev(after)->second;
      if (memory + bytes <= static_cast<std::byte*>(region->addr) + region->length) return region;
    }
    ibv_mr* made = ibv_reg_mr(domain_, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
    if (made != nullptr) regions_.emplace(memory, made);
    return made;
  }

  // Drops the entry: the memory is about to be unmapped.
  void forget(std::byte* memory) {
    const auto found = regions_.find(memory);
    if (found == regions_.end()) return;
    ibv_dereg_mr(found->second);
    regions_.erase(found);
  }

 private:
  ibv_pd* domain_;
  std::map<std::byte*, ibv_mr*> regions_;
};

// Memory as malloc gets it from the system; remap() maps it anew at the same address.
class OrdinaryMemory {
 public:
  explicit OrdinaryMemory(uint64_t bytes) noexcept
      : bytes_(align_up(bytes, kPage)), address_(map(nullptr, 0)) {}
  OrdinaryMemory(const OrdinaryMemory&) = delete;
  OrdinaryMemory& operator=(const OrdinaryMemory&) = delete;
  ~OrdinaryMemory() {
    if (is_there()) munmap(address_, bytes_);
  }

  bool is_there() const noexcept { return address_ != MAP_FAILED; }
  std::byte* address() const noexcept { return static_cast<std::byte*>(address_); }
  void remap() noexcept {
    munmap(address_, bytes_);
    address_ = map(address_, MAP_FIXED_NOREPLACE);
  }

 private:
  void* map(void* at, int flags) noexcept {
    return mmap(at, bytes_, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | flags, -1, 0);
  }

  uint64_t bytes_;
  void* address_;
};

// The median of `count` times of run(), in nanoseconds.
template <typename Run>
double median_ns(uint64_t count, Run run) {
  BP_ASSERT(count > 0);
  std::vector<uint64_t> times(count);
  for (uint64_t& time : times) time = run();
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(count / 2), times.end());
  return static_cast<double>(times[count / 2]);
}

template <typename Work>
uint64_t time_of(Work work) {
  const uint64_t before_ns = monotonic_ns();
  work();
  return monotonic_ns() - before_ns;
}

// Keeps the compiler from optimizing `value` away.
template <typename T>
void use(const T& value) noexcept {
  asm volatile("" : : "g"(&value) : "memory");
}

class RegisterMeasurement {
 public:
  ~RegisterMeasurement() { keys_.destroy(); }

  Result<void> prepare(const RegisterCostOptions& options, RegisterCosts* costs) {
    BP_ASSERT(!options.sizes.empty());
    count_ = options.count;
    auto opened = VerbsDevice::open({.device = options.device, .port = options.port});
    if (!opened.ok()) return opened.error();
    device_ = opened.take();
    heap_create();
    boot_segment();
    const uint64_t bytes_max = *std::max_element(options.sizes.begin(), options.sizes.end());
    const uint64_t half = align_up(bytes_max, page_bytes(PageSize::k2MiB));
    const bool has_huge =
        hugepage_counts(PageSize::k2MiB).available_count * page_bytes(PageSize::k2MiB) >= 2 * half;
    const PageSize page = has_huge ? PageSize::k2MiB : PageSize::k4KiB;
    auto segment = process_pool().create_segment("perf", 2 * half, page, 1);
    if (!segment.ok()) return segment.error();
    block_ = segment.value()->memory().first(half);
    bounce_ = segment.value()->memory().last(half);
    BP_TRY(keys_.create(process_pool(), *device_));
    const VerbsPort& port = device_->port();
    costs->connection = {.provider = "verbs",
                         .device = port.text(),
                         .link = port.is_ethernet ? "Ethernet" : "InfiniBand",
                         .mtu_bytes = 128u << port.mtu,
                         .pool_bytes = 2 * half,
                         .page = page};
    return {};
  }

  Result<RegisterCost> measure(uint64_t bytes) {
    BP_ASSERT(bytes <= block_.size() && bytes <= bounce_.size());
    RegisterCost cost;
    cost.bytes = bytes;
    cost.pool_ns = median_ns(count_,
                             [&] {
                               return time_of([&] {
                                 for (uint32_t i = 0; i < kRepeats; ++i)
                                   use(keys_.key(block_.data() + i, bytes));
                               });
                             }) /
                   kRepeats;
    cost.bounce_ns = median_ns(count_, [&] {
      return time_of([&] {
        std::memcpy(bounce_.data(), block_.data(), bytes);
        use(bounce_);
      });
    });
    OrdinaryMemory memory(bytes);
    if (!memory.is_there()) return failure(bytes);
    bool is_good = true;
    cost.register_ns = median_ns(count_, [&] {
      return time_of([&] {
        ibv_mr* region =
            ibv_reg_mr(device_->domain(), memory.address(), bytes, IBV_ACCESS_LOCAL_WRITE);
        is_good = is_good && region != nullptr;
        if (region != nullptr) ibv_dereg_mr(region);
      });
    });
    RegistrationCache cache(device_->domain());
    is_good = is_good && cache.find_or_register(memory.address(), bytes) != nullptr;
    if (!is_good) return failure(bytes);
    cost.cache_hit_ns = median_ns(count_,
                                  [&] {
                                    return time_of([&] {
                                      for (uint32_t i = 0; i < kRepeats; ++i) {
                                        use(cache.find_or_register(memory.address(), bytes));
                                      }
                                    });
                                  }) /
                        kRepeats;
    cost.cache_remapped_ns = median_ns(count_, [&] {
      const ibv_mr* before = cache.find_or_register(memory.address(), bytes);
      memory.remap();
      is_good = is_good && memory.is_there();
      if (!is_good) return uint64_t{0};
      cost.stale_count += cache.find_or_register(memory.address(), bytes) == before;
      return time_of([&] {
        cache.forget(memory.address());
        is_good = cache.find_or_register(memory.address(), bytes) != nullptr;
      });
    });
    if (!is_good) return failure(bytes);
    return cost;
  }

 private:
  static Error failure(uint64_t bytes) {
    return error_from_errno("registering %s of ordinary memory", format_bytes(bytes).text)
        .set_cure("run as root, or raise the limit of locked memory: ulimit -l unlimited");
  }

  uint64_t count_ = 0;
  std::unique_ptr<VerbsDevice> device_;
  KeyTable keys_;
  std::span<std::byte> block_;
  std::span<std::byte> bounce_;
};

}  // namespace

Result<RegisterCosts> measure_register_cost(const RegisterCostOptions& options) {
  for (const uint64_t bytes : options.sizes) {
    if (bytes <= kRegisterBytesMax) continue;
    return configuration_error_while("choosing what to register")
        .set_answer("%s were requested, but at most %s is possible", format_bytes(bytes).text,
                    format_bytes(kRegisterBytesMax).text)
        .set_cure("make --size smaller");
  }
  RegisterCosts costs;
  costs.count = options.count;
  RegisterMeasurement measurement;
  BP_TRY(measurement.prepare(options, &costs));
  for (const uint64_t bytes : options.sizes) {
    auto cost = measurement.measure(bytes);
    if (!cost.ok()) return cost.error();
    costs.costs.push_back(cost.take());
  }
  return costs;
}

}  // namespace bedplate
