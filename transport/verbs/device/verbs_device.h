// An RDMA device as a device of the pool: one context, one protection domain, one region for each
// piece of a segment.
//
// The registration of the pool is local-only: its keys let this process's queue pairs read and
// write, and are refused to any peer. Memory for peers is registered once more (add_export):
// exactly its bytes, with exactly the rights it was given. All of it before the seal.
// A Key has the lkey in its lower half and the region's number in its upper half.
//
// Invariants, around each change: 1. It has a context, a domain of that, and a port that can be
// used. 2. Each export has memory, and rights that the device can give, and is registered by
// itself: exactly its bytes, with the key that it names. 3. Each region is there, of the domain,
// and no larger than the device takes. 4. Only a device with windows is said to ignore their
// bounds. (is_valid)
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
  std::string device = {};  // "" and 0: the first port that can be used
  uint8_t port = 0;
  // How many regions it may have beside the pool's. A provider's plan is checked against the
  // device's limits.
  uint32_t export_count_max = 64;
  // Quirks to take as absent. For tests, which show so that the device has them: no program sets
  // it.
  DeviceQuirks denied = {};
};

struct VerbsExport {
  std::span<std::byte> memory;
  RemoteRights rights = kRead;
  uint32_t remote_key = 0;
};

// A number of objects that a caller plans to make, to check against the device's limit.
struct VerbsDemand {
  const char* what = "";  // "receive requests in one shared queue"
  const char* cure = "";  // "make max_peers or the window smaller"
  uint64_t needed = 0;
  uint64_t limit = 0;
};

// The object that the device's events about a queue pair are for.
class QueuePairOwner {
 public:
  // Threads: any.
  virtual void take_event(ibv_event_type type) noexcept = 0;

 protected:
  ~QueuePairOwner() = default;
};

// Threads: one at a time until the seal; from then on all that is const may be called by any.
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
  // Errors: the device's; most often the limit of locked memory.
  Result<void> register_regions(std::span<Region> regions) override;
  void deregister_regions(std::span<const Region> regions) noexcept override;

  // Lets peers reach `memory` of `pool` with `rights`; it stays so as long as the device lives.
  // Requires: before the seal. Ownership: the export that is returned is the device's.
  // Errors (kSystem): the device's, too many exports, atomics that it has not.
  Result<const VerbsExport*> add_export(const PinnedPool& pool, std::span<std::byte> memory,
                                        RemoteRights rights);
  // The export that holds all of it and allows `rights`, or nullptr.
  // Cost: a comparison for each export.
  const VerbsExport* find_export(const void* memory, uint64_t bytes,
                                 RemoteRights rights) const noexcept;

  // Errors: the first demand that is over its limit, with both numbers.
  Result<void> check_demands(std::span<const VerbsDemand> demands) const;

  // Cost: a look at each region and export. Threads: one that may call all.
  bool is_valid() const noexcept;

  // Takes the device's events: one about a queue pair goes to its owner, one about the device
  // itself (a port that went down, a queue in error) is logged. Returns how many events there were.
  // Does not block; event_fd() is readable when there are some. Threads: any.
  uint32_t take_events() noexcept;
  // How many events there were so far. Threads: any.
  uint64_t event_count() const noexcept { return event_count_.load(std::memory_order_relaxed); }
  int event_fd() const noexcept { return context_->async_fd; }  // the device's
  // How often it may have lost requests of any queue pair. Threads: any.
  uint32_t fault_count() const noexcept { return fault_count_.load(std::memory_order_acquire); }
  // Whether it tells when a failed queue pair has no receive under way any more: known once it has
  // done so. Threads: any.
  bool tells_last_receive() const noexcept {
    return tells_last_receive_.load(std::memory_order_relaxed);
  }

  // The lkey of a key that a KeyTable of this device gave. Requires: it is not kNoKey.
  static uint32_t local_key(Key key) noexcept { return static_cast<uint32_t>(key); }
  // Its region. Requires: the same. Ownership: the device's.
  ibv_mr* region(Key key) const noexcept {
    BP_DCHECK(key >> 32 < regions_.size());
    BP_DCHECK(regions_[key >> 32]->lkey == local_key(key));
    return regions_[key >> 32];
  }

  // Whether there are windows of type 2 that can be bound to parts of the pool, and whether the
  // device holds peers to their bounds (probed once).
  bool has_windows() const noexcept { return has_windows_; }
  bool has_atomics() const noexcept { return limits_.atomic_cap != IBV_ATOMIC_NONE; }
  bool enforces_windows() const noexcept { return has_windows_ && !quirks_.ignores_window_bounds; }

  // Its defects against the specification.
  const DeviceQuirks& quirks() const noexcept { return quirks_; }

  // For a caller's own queue pairs, which are gone before the device is. Ownership: the device's.
  ibv_context* context() const noexcept { return context_; }
  // Its file: "/dev/infiniband/uverbs0".
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
  std::vector<VerbsExport> exports_;  // of fixed capacity: they are pointed to
  OncePerSecond event_lines_;
  std::atomic<uint64_t> event_count_{0};
  std::atomic<uint32_t> fault_count_{0};
  std::atomic<bool> tells_last_receive_{false};
};

}  // namespace bedplate
