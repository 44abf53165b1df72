// No way back: a table of all ways back, with the stoppers of each.
//
// A way back is a route by which memory could go back to the kernel from under a registration: it
// takes pages out of the pool's mappings or memfds, or moves the content of a page to another
// physical page. The kernel stops most ways back once the pool is sealed. The runtime refuses the
// other calls if the program makes them through libc (alloc/memory_calls.cc); a seccomp filter
// refuses them as raw system calls, too (pinned_pool/seccomp_filter.h). Boot, `stats` and `doctor`
// name each way back that is left open. docs/pool.md has the same table in words; tests try each
// through libc and as a raw call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate {

// The stoppers, as bits.
enum Stopper : uint32_t {
  kKernelStops = 1,       // every kernel that the runtime starts on refuses it, or nothing is lost
  kSizeSealStops = 2,     // F_SEAL_SHRINK and F_SEAL_GROW on each memfd
  kWriteSealStops = 4,    // F_SEAL_FUTURE_WRITE on each memfd (Linux 5.1)
  kMappingSealStops = 8,  // mseal of each mapping (Linux 6.10)
  kPinStops = 16,         // a device holds the pages, by registration
  kLibcCallStops = 32,    // libbedplate-malloc.a refuses the call; a raw system call gets past it
  kSeccompStops = 64,     // [pool] enforce = "seccomp"
};

struct WayBack {
  const char* name;
  uint32_t stoppers;  // each of them alone stops the way back
};

// All ways back, each once.
std::span<const WayBack> all_ways_back() noexcept;

enum class WayBackState {
  kStopped,
  kStoppedInLibc,  // refused through libc, not as a raw system call
  kOpen,
};
// `stoppers`: those in force; kKernelStops always is.
WayBackState state_of(const WayBack& way_back, uint32_t stoppers) noexcept;

// Writes the names of all ways back in `state`, separated by commas, into `text`: always
// terminated, truncated if too long. Returns their number, truncated or not. `stoppers`: those in
// force. Requires: text_bytes > 0.
uint32_t list_ways_back(uint32_t stoppers, WayBackState state, char* text,
                        size_t text_bytes) noexcept;

// Seals the memfd `fd` against every further writable mapping and against holes. From then on all
// processes, this one included, can only map it read-only. Present mappings stay writable. Returns
// 0 or an errno value.
int seal_against_writers(int fd) noexcept;

// Seals the memfd `fd` against further seals: otherwise a process that may write it could set a
// seal that keeps the next joining process from mapping it. Returns 0 or an errno value.
int seal_against_seals(int fd) noexcept;

// Seals [address, address + bytes) against being unmapped, moved, re-protected or mapped over.
// Returns 0 or an errno value; ENOSYS on kernels before 6.10.
int seal_mapping(void* address, uint64_t bytes) noexcept;

// The stoppers that this kernel and this program provide for any pool, without a device that holds
// its pages and without seccomp. Creates a scratch memfd for a moment. For `doctor`.
uint32_t available_stoppers() noexcept;

// Whether munmap of the process pool is refused; false if the pool is not sealed. Tries it on
// segment 0, unless the table says that nothing would stop it.
bool munmap_is_refused() noexcept;

// Whether the program's calls of munmap and the like go through the runtime.
bool memory_calls_are_intercepted() noexcept;

}  // namespace bedplate
