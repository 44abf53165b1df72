// An RDMA device as a device of the pool: one context, one protection domain, one memory region for
// each part of a segment.
//
// The pool is registered local-only: this process's queue pairs may use the keys, and the device
// refuses them to any peer. Memory for peers is registered once more (add_export): exactly its
// bytes, with exactly its rights. All registrations happen before the seal. A Key has the lkey in
// its lower half and the region's number in its upper half.
//
// Invariants, around each change: 1. It has a context, a protection domain of that context, and a
// usable port. 2. Each export has memory, rights that the device supports, and a region of its own:
// exactly its bytes, with the key that it names. 3. Each region exists, belongs to the domain, and
// is no larger than the device's limit. 4. ignores_window_bounds is set only if the device has
// windows. (is_valid)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <span>
#include <vector>

#include <infiniband/verbs.h>

#include "platform/log_limit.h"
#include "transport/registration.h"
#include "transport/verbs/device/device_quirks.h"
#include "transport/verbs/device/verbs_ports.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {

struct VerbsDeviceOptions {
  std::string device = {};  // "" and port 0: the first usable port
  uint8_t port = 0;
  // The most exports. They are taken off the device's limit of regions; the pool gets the rest.
  uint32_t export_count_max = 64;
  // Quirks to treat as absent. Only tests set it, to show that the device has them.
  DeviceQuirks denied = {};
};

struct VerbsExport {
  std::span<std::byte> memory;
  RemoteRights rights = kRead;
  uint32_t remote_key = 0;
};

// A number of objects that a caller plans to make, for the check against the device's limit.
struct VerbsDemand {
  const char* what = "";  // "receives in a shared queue"
  const char* cure = "";  // "make the number of peers or the window smaller"
  uint64_t needed = 0;
  uint64_t limit = 0;
};

// Receives the device's events about one queue pair.
class QueuePairOwner {
 public:
  // Threads: any.
  virtual void take_event(ibv_event_type type) noexcept = 0;

 protected:
  ~QueuePairOwner() = default;
};

// Threads: one at a time until the seal; then any thread may call the const functions.
class VerbsDevice final : public Device {
 public:
  // Opens the device, and probes its windows. Ownership: the caller's.
  // Errors (kSystem): choose_verbs_port's; the device cannot be opened.
  static Result<std::unique_ptr<VerbsDevice>> open(const VerbsDeviceOptions& options);
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;
  // Requires: its queues are gone, and its regions were deregistered.
  ~VerbsDevice() override;

  const DeviceKind& kind() const noexcept override { return kind_; }
  // Errors (kSystem): the device's; most often the limit of locked memory. After an error it has no
  // region of the pool at all.
  Result<void> register_regions(std::span<Region> regions) override;
  // Deregisters all regions of the pool; ignores `regions`. Requires: no window is bound to them.
  void deregister_regions(std::span<const Region> regions) noexcept override;

  // Lets peers reach `memory` of `pool` with `rights`, for the lifetime of the device.
  // Requires: before the seal. Ownership: the returned export is the device's.
  // Errors (kSystem): the device's; too many exports; the device has no atomics.
  Result<const VerbsExport*> add_export(const PinnedPool& pool, std::span<std::byte> memory,
                                        RemoteRights rights);
  // Returns an export that holds all of the memory and allows `rights`, or nullptr.
  // Cost: a comparison for each export.
  const VerbsExport* find_export(const void* memory, uint64_t bytes,
                                 RemoteRights rights) const noexcept;

  // Errors (kSystem): the first demand that is over its limit, with both numbers.
  Result<void> check_demands(std::span<const VerbsDemand> demands) const;

  // Cost: a look at each region and export. Threads: one at a time, as for the non-const functions.
  bool is_valid() const noexcept;

  // Takes the device's events. An error of a queue pair goes to its owner. Other events (port down,
  // queue in error) are logged, at most one a second. Returns the number of events. Does not block:
  // event_fd() is readable while events are pending. Threads: any.
  uint32_t take_events() noexcept;
  // How many events were taken so far. Threads: any.
  uint64_t event_count() const noexcept { return event_count_.load(std::memory_order_relaxed); }
  int event_fd() const noexcept { return context_->async_fd; }  // the device's
  // How many faults there were after which requests of any queue pair may be lost. Threads: any.
  uint32_t fault_count() const noexcept { return fault_count_.load(std::memory_order_acquire); }
  // Whether the device reports when a failed queue pair has no more receives under way. True from
  // its first such report on. Threads: any.
  bool tells_last_receive() const noexcept {
    return tells_last_receive_.load(std::memory_order_relaxed);
  }

  // The lkey of a key that a KeyTable of this device gave. Requires: it is not kNoKey.
  static uint32_t local_key(Key key) noexcept { return static_cast<uint32_t>(key); }
  // The memory region of such a key. Requires: it is not kNoKey. Ownership: the device's.
  ibv_mr* region(Key key) const noexcept {
    BP_DCHECK(key >> 32 < regions_.size());
    BP_DCHECK(regions_[key >> 32]->lkey == local_key(key));
    return regions_[key >> 32];
  }

  // Whether the device has windows of type 2 for parts of the pool.
  bool has_windows() const noexcept { return has_windows_; }
  bool has_atomics() const noexcept { return limits_.atomic_cap != IBV_ATOMIC_NONE; }
  // Whether it has windows, and holds peers to their bounds (probed once).
  bool enforces_windows() const noexcept { return has_windows_ && !quirks_.ignores_window_bounds; }

  // Its defects against the specification.
  const DeviceQuirks& quirks() const noexcept { return quirks_; }

  // The objects below are for a caller's own queue pairs, which must be gone before the device.
  // Ownership: the device's.
  ibv_context* context() const noexcept { return context_; }
  // The device's file: "/dev/infiniband/uverbs0".
  std::string node() const;
  ibv_pd* domain() const noexcept { return domain_; }
  const VerbsPort& port() const noexcept { return port_; }
  const ibv_device_attr& limits() const noexcept { return limits_; }

 private:
  VerbsDevice() noexcept = default;
  void handle_event(const ibv_async_event& event) noexcept;

  VerbsPort port_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_device_attr limits_ = {};
  DeviceQuirks quirks_;
  DeviceKind kind_;
  bool has_windows_ = false;
  std::vector<ibv_mr*> regions_;
  std::vector<ibv_mr*> export_regions_;
  std::vector<VerbsExport> exports_;  // of fixed capacity: callers hold pointers into it
  OncePerSecond event_lines_;
  std::atomic<uint64_t> event_count_{0};
  std::atomic<uint32_t> fault_count_{0};
  std::atomic<bool> tells_last_receive_{false};
};

}  // namespace bedplate
