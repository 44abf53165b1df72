// The RDMA device of an appliance, opened a second time by a process that joined its pool.
// Registers each segment that is for devices, if this process may write the segment.
//
//     JoinedVerbs verbs;
//     options.before_ready = [&verbs](JoinedProcess& process) { return verbs.open(process); };
//     auto process = JoinedProcess::join(options);
//
// The owner names the device and port (process_terms.h) only to processes with verbs = true in the
// owner's configuration: the owner's plan counts these processes. The process makes its own queue
// pairs, or a VerbsProvider, which must be made in before_ready, too.
//
// Memory that is mapped read-only has no key: a local key lets the device write (device_quirks.h).
// docs/verbs.md has the cure.
//
// Invariant: if it has keys, its device is open, and both are valid. (is_valid, after open)
#pragma once

#include <memory>

#include "transport/messages/joined_process.h"
#include "transport/registration.h"
#include "transport/verbs/device/verbs_device.h"

namespace bedplate {

// Threads: one at a time; keys().key() any. Lifetime: it must outlive the process's queue pairs;
// keep it as long as the process.
class JoinedVerbs {
 public:
  JoinedVerbs() noexcept = default;
  JoinedVerbs(const JoinedVerbs&) = delete;
  JoinedVerbs& operator=(const JoinedVerbs&) = delete;
  // Requires: the queue pairs made on the device are gone.
  ~JoinedVerbs() = default;

  // Opens the owner's device, and registers the pool. `export_count_max`: the most exports of this
  // process (VerbsDevice::add_export), with those of a VerbsProvider (kExportCount). No plan counts
  // them. Requires: called once, within before_ready, so before the seal.
  // Errors (kSystem): the configuration does not give the process verbs; the owner has no device;
  // the device's. After an error the object is of no use.
  Result<void> open(const JoinedProcess& process, uint32_t export_count_max = 0);
  // The same for `pool`, and for the process `name` with these `terms`.
  Result<void> open(const ProcessTerms& terms, const char* name, PinnedPool& pool,
                    uint32_t export_count_max);

  // Requires: open(). Ownership: this object's.
  VerbsDevice& device() noexcept {
    BP_DCHECK(device_ != nullptr);
    return *device_;
  }
  // The keys of the pool: VerbsDevice::local_key() makes a local key of each. Requires: open().
  const KeyTable& keys() const noexcept { return keys_; }
  // Requires: open().
  bool is_valid() const noexcept {
    return device_ != nullptr && device_->is_valid() && keys_.is_valid();
  }

 private:
  std::unique_ptr<VerbsDevice> device_;  // outlives the keys
  KeyTable keys_;
};

}  // namespace bedplate
