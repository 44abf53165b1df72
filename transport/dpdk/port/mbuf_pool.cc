#include "transport/dpdk/port/mbuf_pool.h"

#include <algorithm>

#include <rte_errno.h>
#include <rte_mbuf.h>

#include "platform/assert.h"
#include "platform/units.h"
#include "transport/dpdk/eal/eal_log.h"

namespace bedplate {
namespace {

// The size of a thread's cache of free mbufs; in a small pool, one kCacheShare-th of the pool.
constexpr uint32_t kCacheCount = 256;
constexpr uint32_t kCacheShare = 8;
constexpr uint32_t kPoolCountMax = 64;
constexpr size_t kNameBytesMax = RTE_MEMPOOL_NAMESIZE - 1;
static_assert(kNameBytesMax == 25);  // as the header says

// All pools. Written only before the seal.
const MbufPool* pools[kPoolCountMax];
uint32_t pool_count = 0;

uint32_t element_bytes(const MbufShape& shape) noexcept {
  return static_cast<uint32_t>(sizeof(rte_mbuf)) + RTE_PKTMBUF_HEADROOM + shape.frame_bytes;
}

Error dpdk_error(const std::string& name, int number) {
  const char* said = take_eal_error();
  if (said[0] == '\0') said = rte_strerror(number);
  return error_while("making the buffers of %s", name.c_str()).set_answer("%s", said);
}

}  // namespace

uint64_t MbufShape::stride_bytes() const noexcept {
  rte_mempool_objsz sizes = {};
  return rte_mempool_calc_obj_size(element_bytes(*this), 0, &sizes);
}

uint64_t MbufShape::bytes() const noexcept {
  return align_up(stride_bytes() * count + RTE_MEMPOOL_ALIGN, RTE_MEMPOOL_ALIGN);
}

// The head with the caches of as many threads as DPDK allows, and the ring.
uint64_t MbufShape::heap_bytes() const noexcept {
  return sizeof(rte_mempool) + RTE_MAX_LCORE * sizeof(rte_mempool_cache) +
         uint64_t{16} * align_up(count, 64) + 64 * kKiB;
}

Result<void> MbufPool::create(const std::string& name, std::span<std::byte> memory,
                              const MbufShape& shape) {
  BP_ASSERT(pool_ == nullptr && memory.size() >= shape.bytes());
  BP_ASSERT(shape.count >= kMbufCountMin && shape.count <= kMbufCountMax);
  BP_ASSERT(RTE_PKTMBUF_HEADROOM + shape.frame_bytes <= UINT16_MAX);  // mbufs store it in 16 bits
  BP_ASSERT(name.size() <= kNameBytesMax);
  if (pool_count == kPoolCountMax) return dpdk_error(name, ENOSPC);
  // Device addresses are the pool's own addresses, so buffers may cross pages.
  rte_mempool* pool = rte_mempool_create_empty(name.c_str(), shape.count, element_bytes(shape),
                                               std::min(kCacheCount, shape.count / kCacheShare),
                                               sizeof(rte_pktmbuf_pool_private), SOCKET_ID_ANY,
                                               RTE_MEMPOOL_F_NO_IOVA_CONTIG);
  if (pool == nullptr) return dpdk_error(name, rte_errno);
  rte_mempool_set_ops_byname(pool, "ring_mp_mc", nullptr);
  rte_pktmbuf_pool_private layout = {};
  layout.mbuf_data_room_size = static_cast<uint16_t>(RTE_PKTMBUF_HEADROOM + shape.frame_bytes);
  rte_pktmbuf_pool_init(pool, &layout);
  const int added = rte_mempool_populate_iova(pool, reinterpret_cast<char*>(memory.data()),
                                              reinterpret_cast<uintptr_t>(memory.data()),
                                              memory.size(), nullptr, nullptr);
  if (added != static_cast<int>(shape.count)) {
    rte_mempool_free(pool);
    return dpdk_error(name, added < 0 ? -added : ENOMEM);
  }
  rte_mempool_obj_iter(pool, rte_pktmbuf_init, nullptr);
  pool_ = pool;
  stride_bytes_ = shape.stride_bytes();
  first_ = reinterpret_cast<std::byte*>(STAILQ_FIRST(&pool->elt_list) + 1);
  span_bytes_ = stride_bytes_ * shape.count - pool->header_size;
  pools[pool_count++] = this;
  BP_DCHECK_SLOW(is_valid());
  return {};
}

bool MbufPool::is_valid() const noexcept {
  if (pool_ == nullptr) return span_bytes_ == 0;
  uint32_t count = 0;
  rte_mempool_objhdr* head = nullptr;
  STAILQ_FOREACH(head, &pool_->elt_list, next) {
    const auto* its = reinterpret_cast<const std::byte*>(head + 1);
    if (its != first_ + count++ * stride_bytes_) return false;
    const auto* mbuf = reinterpret_cast<const rte_mbuf*>(its);
    const auto* buffer = static_cast<const std::byte*>(mbuf->buf_addr);
    if (find(buffer) != mbuf || find(buffer + mbuf->buf_len - 1) != mbuf) return false;
  }
  return count == pool_->size && find(first_ + count * stride_bytes_) == nullptr;
}

uint32_t MbufPool::free_count() const noexcept {
  return pool_ == nullptr ? 0 : rte_mempool_avail_count(pool_);
}

rte_mbuf* find_mbuf(const std::byte* byte) noexcept {
  for (uint32_t i = 0; i < pool_count; ++i) {
    if (rte_mbuf* found = pools[i]->find(byte)) return found;
  }
  return nullptr;
}

}  // namespace bedplate
