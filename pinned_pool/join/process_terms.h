// What the owner of a pool tells one process that joins it, beside what it tells all of its group:
// the bytes that join_protocol.h hands over as the process's terms, without looking into them.
//
// They are told once, with the join, and stay as they are: a process that is to have more joins
// again. They promise nothing that the kernel does not hold: a process without a device in its
// terms may open one that its user may open, but gets no part of the owner's from here.
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
    kNoDevice = 1,    // it has, and the owner itself found no device, or requires none
    kDevice = 2,      // it may open the owner's, and register what it may write
  };
  // The rest has a meaning with kDevice only.
  Verbs verbs = Verbs::kNotPlanned;
  uint8_t port = 0;  // of the device, from 1
  uint8_t reserved[3] = {};
  char device[64] = {};  // its name, as ibv_get_device_name() has it: 1 to 63 printable bytes, a 0

  ProcessTerms() noexcept = default;  // nothing is granted
  // It may use `its_port` of `its_device`. Requires: a name as `device` holds it, a port from 1.
  ProcessTerms(const char* its_device, uint8_t its_port) noexcept;
};
// Between processes.
static_assert(std::is_trivially_copyable_v<ProcessTerms>);
static_assert(offsetof(ProcessTerms, port) == 4 && offsetof(ProcessTerms, device) == 8);
static_assert(sizeof(ProcessTerms) == 72 && sizeof(ProcessTerms) <= join::kTermsBytesMax);

// The terms in `bytes`, which came from the owner (JoinedPool::terms), for the process `name`; an
// owner that says nothing grants nothing. `bytes` may lie at any address, and are not kept.
// Errors (kSystem): another length; a kind, a device or a port that makes no sense. The cure is
// programs of one release.
Result<ProcessTerms> read_process_terms(std::span<const std::byte> bytes,
                                        const char* name) noexcept;

}  // namespace bedplate
