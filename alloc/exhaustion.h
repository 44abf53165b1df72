// What happens when the heap cannot serve a request: the caller gets NULL and ENOMEM (new throws),
// the refusal is counted, and at most once a second a message names the biggest owners, or the one
// that is at its limit (heap_owner.h). A program without an appliance is told once.
#pragma once

#include <cstdint>

namespace bedplate {

// From now on refusals are counted and reported. Threads: call it before others allocate.
void report_exhaustion() noexcept;

// What the heap does with a refusal until then: the first is told, as above, and nothing is
// counted. Allocates nothing. Threads: any.
void tell_exhaustion_once();

// How many allocations were refused since then.
uint64_t exhaustion_count() noexcept;

// How many bytes of the segment that begins at `address` the heap uses; 0 when it is not the
// heap's. In units of kHeapGranularityBytes.
uint64_t heap_used_bytes(const void* address) noexcept;

}  // namespace bedplate
