// Exhaustion: the heap cannot serve a request. The caller gets NULL and ENOMEM (new throws), and
// the refusal is counted. A message gives the size of the request and the setting that enlarges the
// heap, which differs for an appliance. The message names the biggest owners, or the owner that is
// at its limit (heap_owner.h), or says that not even an empty heap could serve the request. Each of
// these three messages comes at most once a second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "alloc/confined_heap.h"

namespace bedplate {

// Counts a refusal and reports it. It is the heap's first ExhaustionHandler (confined_heap.h).
// Allocates nothing. Threads: any.
void handle_exhaustion(const HeapRefusal& refusal);

// From now on the pool counts as an appliance's: the configuration sets its size. Threads: any,
// here and below.
void expect_appliance() noexcept;
bool is_appliance_expected() noexcept;

// The number of refused allocations so far.
uint64_t exhaustion_count() noexcept;

// The bytes of `memory`, a segment or a carve, that the heap uses, in units of
// kHeapGranularityBytes; 0 if it does not belong to the heap.
uint64_t heap_used_bytes(std::span<const std::byte> memory) noexcept;

}  // namespace bedplate
