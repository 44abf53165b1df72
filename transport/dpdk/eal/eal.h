// EAL, the part of DPDK that all of its ports stand on: started once, from the configuration, in
// memory of the pool.
//
// It takes no hugepages, writes no file (but for its telemetry, when that is on) and has no second
// process. Its heap lies in one carve (eal_memory.h); all memory of the pool is made known to it,
// so that drivers find the addresses of any buffer. What is mapped for devices is not its business
// but for that carve: it maps that itself.
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
  std::span<std::byte> memory;       // the pool's: of eal_memory_bytes(), at kEalMemoryAlignment
  const PinnedPool* pool = nullptr;  // all whose segments are made known
  std::string name = "bedplate";     // of its folder, where telemetry is on
  std::span<const int> shard_cpus;   // cores that its threads keep off
  bool has_telemetry = false;        // a socket, two threads; one more for each that asks
};

// Where a carve must begin.
inline constexpr size_t kEalMemoryAlignment = size_t{16} << 20;

// What a heap of `heap_bytes` takes with EAL's tables, in whole hugepages.
uint64_t eal_memory_bytes(uint64_t heap_bytes) noexcept;

// What this machine lacks, before anything is started; nullptr: nothing.
const char* eal_is_impossible() noexcept;

// Starts it. The calling thread becomes its main one, and has its cores again when this returns.
// Threads: the main thread, once; before the seal: it allocates, and starts threads.
// Errors (kSystem): what EAL said.
Result<void> start_eal(const EalOptions& options);
bool eal_is_started() noexcept;

// The names of the threads that EAL has started, "eal-intr-thread, ...", and the cores that they
// may run on. Static.
const char* eal_threads() noexcept;

// Makes the calling thread one that EAL knows: pools keep a cache for it. Threads: a shard's, once.
// Errors: there are too many.
Result<void> enter_eal() noexcept;

// How much of EAL's heap is taken, now.
uint64_t eal_heap_used_bytes() noexcept;

}  // namespace bedplate
