// Blocks of the heap for tests: hidden from the optimiser, and linked without a container.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace bedplate::test {

// Makes a block count as used: the compiler removes calls of malloc whose block is unused.
inline void* keep(void* block) noexcept {
  asm volatile("" : "+r"(block) : : "memory");
  return block;
}

inline void* allocate(size_t bytes) noexcept { return keep(std::malloc(bytes)); }

inline bool is_aligned(const void* block, size_t alignment) noexcept {
  return reinterpret_cast<uintptr_t>(block) % alignment == 0;
}

// Blocks from malloc in a list that lies in the blocks themselves, so that it works when the heap
// is exhausted. The destructor frees them.
class BlockList {
 public:
  BlockList() = default;
  BlockList(const BlockList&) = delete;
  BlockList& operator=(const BlockList&) = delete;
  ~BlockList() { free_all(); }

  // Requires: bytes >= sizeof(void*).
  bool add(size_t bytes) noexcept {
    void* block = allocate(bytes);
    if (block == nullptr) return false;
    std::memcpy(block, &first_, sizeof first_);
    first_ = block;
    ++count_;
    return true;
  }
  // Adds blocks until malloc fails. Returns the number of blocks in the list.
  size_t add_all(size_t bytes) noexcept {
    while (add(bytes)) {
    }
    return count_;
  }
  void free_all() noexcept {
    while (first_ != nullptr) {
      void* block = first_;
      std::memcpy(&first_, block, sizeof first_);
      std::free(block);
    }
    count_ = 0;
  }

 private:
  void* first_ = nullptr;
  size_t count_ = 0;
};

}  // namespace bedplate::test
