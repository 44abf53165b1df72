// EAL, the part of DPDK that all ports need: started once, from the configuration, in memory of the
// pool.
//
// It takes no hugepages, has no second process, and writes no file except for its telemetry, if
// that is on. Its heap is in one carve (eal_memory.h). start_eal() registers with it the segments
// of the pool that are for devices, so that drivers find the address of any buffer. EAL maps its
// own carve for devices; the VFIO devices of the runtime map the rest of the pool.
//
// EAL ends with the process: it cannot be started twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "platform/result.h"

namespace bedplate {

class PinnedPool;

struct EalOptions {
  // A segment of the pool that holds nothing else: eal_memory_bytes(), at kEalMemoryAlignment.
  std::span<std::byte> memory;
  const PinnedPool* pool = nullptr;  // start_eal() registers its segments for devices
  std::string name = "bedplate";     // name of its folder, if telemetry is on
  // The cores that EAL's threads stay off, unless the process has no others.
  std::span<const int> shard_cpus;
  bool has_telemetry = false;  // a socket and two threads; one more thread for each client
};

// The alignment of EAL's carve.
inline constexpr size_t kEalMemoryAlignment = size_t{16} << 20;

// The bytes of a carve for a heap of `heap_bytes` and EAL's tables: a multiple of 2 MiB.
uint64_t eal_memory_bytes(uint64_t heap_bytes) noexcept;

// The reason why EAL cannot run on this machine (static text); nullptr: it can run. May be called
// before start_eal().
const char* eal_is_impossible() noexcept;

// Starts EAL. The calling thread becomes EAL's main thread, and has its cores again on return.
// Threads: the main thread, once, even if it fails; before the seal: it allocates, and starts
// threads. Errors (kSystem): EAL's own words, or the system's.
Result<void> start_eal(const EalOptions& options);
bool eal_is_started() noexcept;

// The names of EAL's threads, and the cores that they may run on: "eal-intr-thread, ... on cores
// 0,1". Static; "" until start_eal() returns.
const char* eal_threads() noexcept;

// Registers the calling thread with EAL, so that mempools keep a cache for it. Threads: a shard's,
// once.
// Errors (kSystem): too many threads.
Result<void> enter_eal() noexcept;

// Bytes of EAL's heap in use now; 0 before start_eal().
uint64_t eal_heap_used_bytes() noexcept;

}  // namespace bedplate
