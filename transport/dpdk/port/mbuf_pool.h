// The buffers of one port: mbufs, heads and data, in one carve of the pool.
//
// They are contiguous and equally long, so arithmetic finds the mbuf of any byte (is_valid() checks
// this for each mbuf). DPDK's own records (a ring of the free mbufs, a cache for each thread) are
// in EAL's heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <rte_mempool.h>

#include "platform/result.h"

struct rte_mbuf;

namespace bedplate {

struct MbufShape {
  uint32_t count = 4096;  // kMbufCountMin to kMbufCountMax
  // The capacity of each, behind RTE_PKTMBUF_HEADROOM. Both together are at most 65535.
  uint32_t frame_bytes = 2048;
  uint64_t bytes() const noexcept;       // of the carve
  uint64_t heap_bytes() const noexcept;  // of EAL's heap, at most
  // The distance from one mbuf to the next.
  uint64_t stride_bytes() const noexcept;
};
inline constexpr uint32_t kMbufCountMin = 64;
inline constexpr uint32_t kMbufCountMax = 1U << 22;

// Threads: any, but for create(): the main thread. The pool and its memory stay until the process
// ends, as mbufs may be anywhere.
class MbufPool {
 public:
  MbufPool() noexcept = default;
  MbufPool(const MbufPool&) = delete;
  MbufPool& operator=(const MbufPool&) = delete;

  // Requires: called once; EAL is started; `memory` is the pool's and has shape.bytes(); the shape
  // is within its limits. `name`: 25 bytes at most, unique among pools. Before the seal: it
  // allocates. Errors (kSystem): DPDK's, or there are 64 pools already.
  Result<void> create(const std::string& name, std::span<std::byte> memory, const MbufShape& shape);

  rte_mempool* pool() const noexcept { return pool_; }
  // How many mbufs are free, including those in threads' caches. Cost: a look at each cache.
  uint32_t free_count() const noexcept;

  // Requires: no mbuf is attached to another's buffer. Cost: a look at each mbuf.
  bool is_valid() const noexcept;

  // The mbuf whose head or buffer holds `byte`; nullptr: the byte is elsewhere. Cost: a subtraction
  // and a division.
  rte_mbuf* find(const std::byte* byte) const noexcept {
    const auto offset = static_cast<uint64_t>(byte - first_);  // before the pool: wraps, huge
    if (offset >= span_bytes_) return nullptr;
    return reinterpret_cast<rte_mbuf*>(first_ + offset / stride_bytes_ * stride_bytes_);
  }

 private:
  rte_mempool* pool_ = nullptr;
  std::byte* first_ = nullptr;  // the first mbuf
  uint64_t span_bytes_ = 0;     // from the first mbuf to the end of the last one
  uint64_t stride_bytes_ = 1;
};

// The same, among the mbufs of all ports of this process. Cost: a comparison for each port.
rte_mbuf* find_mbuf(const std::byte* byte) noexcept;

}  // namespace bedplate
