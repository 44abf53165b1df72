#include "transport/verbs/device/verbs_device.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "platform/file.h"
#include "platform/units.h"
#include "transport/verbs/device/window_probe.h"

namespace bedplate {
namespace {

// Wraps ibv_reg_mr: all regions are made here.
Result<ibv_mr*> register_memory(ibv_pd* domain, std::span<std::byte> memory, int access,
                                const char* device) {
  ibv_mr* region = ibv_reg_mr(domain, memory.data(), memory.size(), access);
  if (region != nullptr) return region;
  Error error =
      error_from_errno("registering %s with %s", format_bytes(memory.size()).text, device);
  if (errno == ENOMEM) {
    return error.set_cure("raise the limit of locked memory (ulimit -l unlimited), or give the "
                          "machine more memory");
  }
  return error.set_cure("see the kernel's log for why %s refuses it", device);
}

ibv_context* open_context(const std::string& name) noexcept {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count && context == nullptr; ++i) {
    if (name == ibv_get_device_name(devices[i])) context = ibv_open_device(devices[i]);
  }
  const int open_errno = errno;
  if (devices != nullptr) ibv_free_device_list(devices);
  errno = open_errno;
  return context;
}

int access_flags(RemoteRights rights) noexcept {
  int flags = 0;
  if ((rights & kRead) != 0) flags |= IBV_ACCESS_REMOTE_READ;
  // A remote write or atomic right without the local one is EINVAL.
  if ((rights & kWrite) != 0) flags |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
  if ((rights & kAtomic) != 0) flags |= IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE;
  return flags;
}

}  // namespace

Result<std::unique_ptr<VerbsDevice>> VerbsDevice::open(const VerbsDeviceOptions& options) {
  auto port = choose_verbs_port(options.device, options.port);
  if (!port.ok()) return port.error();
  std::unique_ptr<VerbsDevice> device(new VerbsDevice());
  device->port_ = port.take();
  const char* name = device->port_.device.c_str();
  device->context_ = open_context(device->port_.device);
  if (device->context_ == nullptr) {
    return error_from_errno("opening the RDMA device %s", name)
        .set_cure("make /dev/infiniband/uverbs* readable and writable for this user");
  }
  set_blocking(device->context_->async_fd, false);
  if (const int outcome = ibv_query_device(device->context_, &device->limits_); outcome != 0) {
    errno = outcome;
    return error_from_errno("asking the RDMA device %s for its limits", name)
        .set_cure("see the kernel's log for what is wrong with it");
  }
  device->domain_ = ibv_alloc_pd(device->context_);
  if (device->domain_ == nullptr) {
    return error_from_errno("making a protection domain of %s", name)
        .set_cure("see the kernel's log; another program may hold all of them");
  }
  const ibv_device_attr& limits = device->limits_;
  device->has_windows_ = (limits.device_cap_flags &
                          (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
  device->quirks_ = quirks_of(limits);
  device->quirks_.ignores_window_bounds = device->has_windows_ && !probe_windows(*device);
  device->quirks_ = device->quirks_.without(options.denied);
  const auto max_regions = static_cast<uint64_t>(limits.max_mr);
  device->kind_ = {
      .name = name,
      .instead = "do without verbs",
      .holds_pages = true,
      .region_bytes_max = limits.max_mr_size == 0 ? UINT64_MAX : limits.max_mr_size,
      .region_count_max = max_regions - std::min<uint64_t>(max_regions, options.export_count_max)};
  device->exports_.reserve(options.export_count_max);
  BP_DCHECK_SLOW(device->is_valid());
  return device;
}

bool VerbsDevice::is_valid() const noexcept {
  if (context_ == nullptr || domain_ == nullptr || domain_->context != context_) return false;
  if (!port_.is_usable() || port_.port == 0 || port_.port > limits_.phys_port_cnt) return false;
  if (quirks_.ignores_window_bounds && !has_windows_) return false;
  if (exports_.size() != export_regions_.size()) return false;
  for (size_t i = 0; i < exports_.size(); ++i) {
    const VerbsExport& one = exports_[i];
    const ibv_mr* region = export_regions_[i];
    if (one.memory.empty() || one.rights == 0 || (one.rights & ~kAllRights) != 0) return false;
    if ((one.rights & kAtomic) != 0 && !has_atomics()) return false;
    if (region == nullptr || region->rkey != one.remote_key) return false;
    if (region->addr != one.memory.data() || region->length != one.memory.size()) return false;
  }
  return std::none_of(regions_.begin(), regions_.end(), [this](const ibv_mr* region) {
    return region == nullptr || region->pd != domain_ || region->length > kind_.region_bytes_max;
  });
}

std::string VerbsDevice::node() const {
  return std::string("/dev/infiniband/") + context_->device->dev_name;
}

VerbsDevice::~VerbsDevice() {
  BP_ASSERT(regions_.empty());
  BP_DCHECK(exports_.size() == export_regions_.size());
  for (ibv_mr* region : export_regions_) ibv_dereg_mr(region);
  if (domain_ != nullptr) {
    const int outcome = ibv_dealloc_pd(domain_);
    BP_ASSERT(outcome != EBUSY);  // EBUSY: an object of the domain still exists
  }
  if (context_ != nullptr) ibv_close_device(context_);
}

Result<void> VerbsDevice::register_regions(std::span<Region> regions) {
  BP_KEEPS_VALID(*this);
  const int access = IBV_ACCESS_LOCAL_WRITE | (has_windows_ ? IBV_ACCESS_MW_BIND : 0);
  for (Region& region : regions) {
    BP_DCHECK(region.address != nullptr && region.bytes > 0);
    BP_DCHECK(region.bytes <= kind_.region_bytes_max);
    auto made = register_memory(domain_, {region.address, region.bytes}, access, kind_.name);
    if (!made.ok()) {
      deregister_regions({});
      return made.error();
    }
    region.key = uint64_t{regions_.size()} << 32 | made.value()->lkey;
    regions_.push_back(made.value());
  }
  return {};
}

void VerbsDevice::deregister_regions(std::span<const Region>) noexcept {
  BP_KEEPS_VALID(*this);
  for (ibv_mr* region : regions_) {
    const int outcome = ibv_dereg_mr(region);
    BP_ASSERT(outcome != EBUSY);  // EBUSY: a window is bound to the region
  }
  regions_.clear();
}

Result<const VerbsExport*> VerbsDevice::add_export(const PinnedPool& pool,
                                                   std::span<std::byte> memory,
                                                   RemoteRights rights) {
  BP_ASSERT(!memory.empty() && !pool.is_sealed());
  BP_DCHECK(rights != 0 && (rights & ~kAllRights) == 0);
  BP_KEEPS_VALID(*this);
  if ((rights & kAtomic) != 0 && !has_atomics()) {
    return error_while("exporting %s through %s", format_bytes(memory.size()).text, kind_.name)
        .set_answer("the device has no atomics")
        .set_cure("export it without them, or use another device");
  }
  if (exports_.size() == exports_.capacity()) {
    return error_while("exporting %s through %s", format_bytes(memory.size()).text, kind_.name)
        .set_answer("there are %zu exports already, as many as were planned", exports_.size())
        .set_cure("export larger pieces, or raise export_count_max");
  }
  count_registrations(pool, 1);
  auto made = register_memory(domain_, memory, access_flags(rights), kind_.name);
  if (!made.ok()) return made.error();
  export_regions_.push_back(made.value());
  exports_.push_back({memory, rights, made.value()->rkey});
  return &exports_.back();
}

const VerbsExport* VerbsDevice::find_export(const void* memory, uint64_t bytes,
                                            RemoteRights rights) const noexcept {
  BP_DCHECK(rights != 0);  // else any export would match
  const auto address = reinterpret_cast<uintptr_t>(memory);
  for (const VerbsExport& one : exports_) {
    const uint64_t offset = address - reinterpret_cast<uintptr_t>(one.memory.data());
    if (offset < one.memory.size() && bytes <= one.memory.size() - offset &&
        (one.rights & rights) == rights) {
      return &one;
    }
  }
  return nullptr;
}

Result<void> VerbsDevice::check_demands(std::span<const VerbsDemand> demands) const {
  for (const VerbsDemand& demand : demands) {
    if (demand.needed <= demand.limit) continue;
    return error_while("fitting the plan into the limits of %s", kind_.name)
        .set_answer("%" PRIu64 " %s are needed, it has %" PRIu64, demand.needed, demand.what,
                    demand.limit)
        .set_cure("%s", demand.cure);
  }
  return {};
}

}  // namespace bedplate
