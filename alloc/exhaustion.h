// Exhaustion: the heap cannot serve a request. The caller gets NULL and ENOMEM (new throws), the
// refusal is counted, and at most once a second a message says how much was asked for, names the
// biggest owners, or the one that is at its limit (heap_owner.h), and says what gives the heap
// more, which differs for an appliance. If not even an empty heap could serve the request, the
// message says that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "alloc/confined_heap.h"

namespace bedplate {

// Counts a refusal and reports it. Allocates nothing. Threads: any.
void handle_exhaustion(const HeapRefusal& refusal);

// From now on the pool is an appliance's, whose configuration says how much there is.
void expect_appliance() noexcept;
bool is_appliance_expected() noexcept;

// How many allocations were refused.
uint64_t exhaustion_count() noexcept;

// How many bytes of `memory`, a segment or a carve, the heap uses; 0 when it is not the heap's. In
// units of kHeapGranularityBytes.
uint64_t heap_used_bytes(std::span<const std::byte> memory) noexcept;

}  // namespace bedplate
