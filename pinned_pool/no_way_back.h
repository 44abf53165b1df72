// No way back: every way in which memory could be taken from under a registration, and what stops
// each of them.
//
// A way takes pages out of the pool's mappings, out of its memfds, or moves what a page holds to
// another physical page. Most are stopped by the kernel once the pool is sealed. What a kernel does
// not stop, the runtime refuses where the program asks through libc (alloc/memory_calls.cc), and a
// seccomp filter (pinned_pool/seccomp_filter.h) however it asks. A way that is left open is not
// kept silent: boot, `stats` and `doctor` name it. docs/pool.md has the same table in words; tests
// try each way through libc and as a raw call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate {

// What can stop a way; a set of them is their bits.
enum Stopper : uint32_t {
  kKernelStops = 1,       // every kernel that the runtime starts on refuses it, or nothing is lost
  kSizeSealStops = 2,     // F_SEAL_SHRINK and F_SEAL_GROW on each memfd
  kWriteSealStops = 4,    // F_SEAL_FUTURE_WRITE on each memfd (Linux 5.1)
  kMappingSealStops = 8,  // mseal of each mapping (Linux 6.10)
  kPinStops = 16,         // a device that holds the pages, as registration does
  kLibcCallStops = 32,    // libbedplate-malloc.a refuses the call; a raw system call gets past it
  kSeccompStops = 64,     // [pool] enforce = "seccomp"
};

struct Way {
  const char* name;
  uint32_t stoppers;  // each of these alone is enough
};

// All ways, each once.
std::span<const Way> all_ways() noexcept;

enum class WayState {
  kStopped,
  kStoppedInLibc,  // refused where the program calls libc, not as a raw system call
  kOpen,
};
WayState state_of(const Way& way, uint32_t stoppers) noexcept;

// Writes the names of all ways in `state`, separated by commas, into `text`, always terminated;
// what does not fit is cut off. Returns how many there are.
uint32_t list_ways(uint32_t stoppers, WayState state, char* text, size_t text_bytes) noexcept;

// Seals the memfd `fd` against every further writable mapping and against holes. From then on
// any process that has it, this one too, can map it to read only. Returns 0 or an errno value.
int seal_against_writers(int fd) noexcept;

// Seals the memfd `fd` against further seals. One that a writer of it set would keep the next
// process that joins from mapping it. Returns 0 or an errno value.
int seal_against_seals(int fd) noexcept;

// Seals [address, address + bytes) against being unmapped, moved, re-protected or mapped over.
// Returns 0 or an errno value; ENOSYS on kernels before 6.10.
int seal_mapping(void* address, uint64_t bytes) noexcept;

// What this kernel and this program put in force for any pool; a device that holds its pages and
// seccomp come on top. Takes a scratch memfd for a moment. For `doctor`.
uint32_t available_stoppers() noexcept;

// Whether munmap of the sealed process pool is refused: tried on segment 0, unless the table says
// that nothing would stop it.
bool munmap_is_refused() noexcept;

// Whether the program's calls of munmap and its like come to the runtime.
bool memory_calls_are_intercepted() noexcept;

}  // namespace bedplate
