#include "alloc/child_heap.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "alloc/fork_mark.h"
#include "pinned_pool/fork_rule.h"
#include "pinned_pool/layout.h"
#include "platform/clock.h"
#include "platform/free_list.h"
#include "platform/known_child.h"
#include "platform/log.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// The header before each block.
struct Header {
  uint64_t total_bytes;   // from the base of the freed memory
  uint64_t offset_bytes;  // from the base to the block
};
static_assert(sizeof(Header) == 16, "blocks keep the alignment of max_align_t");

constexpr unsigned kSmallestLog2 = 5;
constexpr unsigned kLargestLog2 = 18;  // larger blocks are mapped one by one
constexpr uint64_t kChunkBytes = kMiB;

struct FreePiece {
  FreePiece* next;
};

// Indexed by the binary logarithm of their bytes.
constinit FreeList<&FreePiece::next> free_pieces[kLargestLog2 + 1] = {};
constinit std::byte* chunk = nullptr;
constinit uint64_t chunk_bytes_left = 0;
constinit std::atomic_flag locked = ATOMIC_FLAG_INIT;

class Lock {
 public:
  Lock() noexcept {
    while (locked.test_and_set(std::memory_order_acquire)) cpu_relax();
  }
  ~Lock() { locked.clear(std::memory_order_release); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

std::byte* map(uint64_t bytes) noexcept {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// Takes 2^log2 bytes; nullptr: the system has no more.
std::byte* take_piece(unsigned log2) noexcept {
  const uint64_t bytes = uint64_t{1} << log2;
  const Lock lock;
  if (!free_pieces[log2].is_empty()) return reinterpret_cast<std::byte*>(&free_pieces[log2].pop());
  if (chunk_bytes_left < bytes) {  // drops the rest of the old chunk, less than `bytes`
    chunk = map(kChunkBytes);
    chunk_bytes_left = chunk == nullptr ? 0 : kChunkBytes;
    if (chunk == nullptr) return nullptr;
  }
  std::byte* piece = chunk;
  chunk += bytes;
  chunk_bytes_left -= bytes;
  return piece;
}

Header* header_of(void* block) noexcept { return static_cast<Header*>(block) - 1; }

constinit std::atomic<bool> has_allocated{false};  // this child

// Warns: a child that allocates goes on as a program and does not call exec.
void tell_that_it_goes_on() noexcept {
  if (is_known_child || !claim_child_notice()) return;
  log_error(error_while("continuing in a forked child (process %d)", static_cast<int>(getpid()))
                .set_answer("the heap is shared with its parent, not copied: what one of them "
                            "changes there changes for both, at any time")
                .set_cure("call exec or _exit, start it by posix_spawn(), or %s; BEDPLATE_FORK="
                          "refuse makes fork() fail",
                          cure_for_uncopied_heap()));
}

}  // namespace

void* child_allocate_in_fork(size_t bytes, size_t alignment) noexcept {
  const uint64_t slack = alignment > alignof(Header) ? alignment : 0;
  uint64_t needed = 0;
  if (__builtin_add_overflow(bytes, sizeof(Header) + slack, &needed) || needed > PTRDIFF_MAX) {
    errno = ENOMEM;
    return nullptr;
  }
  const unsigned log2 =
      std::max<unsigned>(kSmallestLog2, static_cast<unsigned>(std::bit_width(needed - 1)));
  const bool is_mapped = log2 > kLargestLog2;
  const uint64_t total = is_mapped ? align_up(needed, 4 * kKiB) : uint64_t{1} << log2;
  std::byte* base = is_mapped ? map(total) : take_piece(log2);
  if (base == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  const uint64_t first = reinterpret_cast<uintptr_t>(base) + sizeof(Header);
  const uint64_t offset =
      align_up(first, std::max(alignment, alignof(Header))) - reinterpret_cast<uintptr_t>(base);
  std::byte* block = base + offset;
  *header_of(block) = {total, offset};
  return block;
}

void* child_allocate(size_t bytes, size_t alignment) noexcept {
  if (!has_allocated.load(std::memory_order_relaxed)) {
    has_allocated.store(true, std::memory_order_relaxed);
    tell_that_it_goes_on();
  }
  return child_allocate_in_fork(bytes, alignment);
}

void child_free(void* block) noexcept {
  if (block == nullptr || in_pool_range(block)) return;
  const Header header = *header_of(block);
  std::byte* base = static_cast<std::byte*>(block) - header.offset_bytes;
  const auto log2 = static_cast<unsigned>(std::bit_width(header.total_bytes - 1));
  if (log2 > kLargestLog2) {
    const int errno_before = errno;  // free must not change errno, even if munmap fails
    munmap(base, header.total_bytes);
    errno = errno_before;
    return;
  }
  auto* piece = reinterpret_cast<FreePiece*>(base);
  const Lock lock;
  free_pieces[log2].push(*piece);
}

void* child_reallocate(void* block, size_t old_bytes, size_t bytes) noexcept {
  void* moved = child_allocate(bytes, alignof(Header));
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(old_bytes, bytes));
  child_free(block);
  return moved;
}

size_t child_usable_bytes(const void* block) noexcept {
  const Header* header = static_cast<const Header*>(block) - 1;
  return header->total_bytes - header->offset_bytes;
}

}  // namespace bedplate
