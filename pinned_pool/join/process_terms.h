// The terms of a process: the owner's grants to this process alone, besides the grants to its
// group. join_protocol.h passes their bytes on without reading them.
//
// They are sent once, with the join, and never change: a process that needs more joins again. They
// restrict nothing that the kernel allows: a process without a device in its terms may open any
// device that its user may open, but gets no access to the owner's device here.
//
// Ownership: plain data, 72 bytes, copied out of the message; nothing points into it. Threads: any,
// as any value. Both sides are of one release (join::kVersion): no field is optional.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "pinned_pool/join/join_protocol.h"
#include "platform/result.h"

namespace bedplate {

struct ProcessTerms {
  enum class Verbs : uint32_t {
    kNotPlanned = 0,  // its [[process]] has no verbs = true
    kNoDevice = 1,    // it has verbs = true, but the owner found no device, or requires none
    kDevice = 2,      // it may open the owner's device and register memory that it may write
  };
  // The other fields are valid with kDevice only.
  Verbs verbs = Verbs::kNotPlanned;
  uint8_t port = 0;  // of the device, from 1
  uint8_t reserved[3] = {};
  // Its name by ibv_get_device_name(): 1 to 63 printable ASCII bytes without spaces, then a 0.
  char device[64] = {};

  ProcessTerms() noexcept = default;  // nothing is granted
  // Grants `its_port` of `its_device`. Requires: a name as described at `device`, a port from 1.
  ProcessTerms(const char* its_device, uint8_t its_port) noexcept;
};
// Passed between processes.
static_assert(std::is_trivially_copyable_v<ProcessTerms>);
static_assert(offsetof(ProcessTerms, port) == 4 && offsetof(ProcessTerms, device) == 8);
static_assert(sizeof(ProcessTerms) == 72 && sizeof(ProcessTerms) <= join::kTermsBytesMax);

// Parses the terms in `bytes`, which came from the owner (JoinedPool::terms), for the process
// `name`. Empty `bytes` grant nothing. `bytes` may lie at any address, and are not kept.
// Errors (kSystem): another length; an invalid kind, device or port. The cure is programs of one
// release.
Result<ProcessTerms> read_process_terms(std::span<const std::byte> bytes,
                                        const char* name) noexcept;

}  // namespace bedplate
