// The buffers of a port: all of them lie in their carve, and any byte of a buffer finds its mbuf.
#include "transport/dpdk/port/mbuf_pool.h"

#include <algorithm>
#include <set>
#include <vector>

#include <rte_mbuf.h>

#include "tests/support/death_test.h"
#include "tests/transport/dpdk/started_eal.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr MbufShape kShape = {200, 2048};

// One pool for all tests of this file: a pool is never destroyed.
MbufPool& made_pool() {
  static MbufPool pool;
  if (pool.pool() == nullptr) {
    const auto memory = test::take_buffers(kShape.bytes());
    const auto created = pool.create("mbuf-pool-test", memory, kShape);
    CHECK_TEXT(created.ok(), created.ok() ? "" : created.error().answer);
  }
  return pool;
}

}  // namespace

TEST_GROUP(MbufPool){};

TEST(MbufPool, AllItsBuffersLieInItsMemory) {
  MbufPool& pool = made_pool();
  std::vector<rte_mbuf*> all;
  while (rte_mbuf* one = rte_pktmbuf_alloc(pool.pool())) all.push_back(one);
  LONGS_EQUAL(kShape.count, all.size());
  LONGS_EQUAL(0, pool.free_count());
  const std::set<rte_mbuf*> different(all.begin(), all.end());
  LONGS_EQUAL(all.size(), different.size());
  const auto& memory = test::started_eal().buffers;
  for (rte_mbuf* one : all) {
    const auto* head = reinterpret_cast<std::byte*>(one);
    const auto* end = static_cast<std::byte*>(one->buf_addr) + one->buf_len;
    CHECK(head >= memory.data() && end <= memory.data() + memory.size());
    LONGS_EQUAL(RTE_PKTMBUF_HEADROOM + kShape.frame_bytes, one->buf_len);
    LONGS_EQUAL(reinterpret_cast<uintptr_t>(one->buf_addr), rte_mbuf_iova_get(one));
    rte_pktmbuf_free(one);
  }
  LONGS_EQUAL(kShape.count, pool.free_count());
}

TEST(MbufPool, AnyByteOfABufferFindsItsMbuf) {
  MbufPool& pool = made_pool();
  std::vector<rte_mbuf*> all;
  while (rte_mbuf* one = rte_pktmbuf_alloc(pool.pool())) all.push_back(one);
  for (rte_mbuf* one : all) {
    const auto* data = static_cast<std::byte*>(one->buf_addr);
    for (const size_t offset :
         {size_t{0}, size_t{1}, size_t{one->buf_len} / 2, size_t{one->buf_len} - 1}) {
      POINTERS_EQUAL(one, pool.find(data + offset));
      POINTERS_EQUAL(one, find_mbuf(data + offset));
    }
  }
  const auto [first, last] = std::minmax_element(all.begin(), all.end());
  POINTERS_EQUAL(nullptr, pool.find(reinterpret_cast<std::byte*>(*first) - 1));
  POINTERS_EQUAL(nullptr, pool.find(reinterpret_cast<std::byte*>(*last) + kShape.stride_bytes()));
  std::byte elsewhere{};
  POINTERS_EQUAL(nullptr, find_mbuf(&elsewhere));
  for (rte_mbuf* one : all) rte_pktmbuf_free(one);
}

TEST(MbufPool, ASecondOneOfANameIsRefused) {
  made_pool();
  MbufPool second;
  const auto created = second.create("mbuf-pool-test", test::take_buffers(kShape.bytes()), kShape);
  CHECK_FALSE(created.ok());
  STRCMP_EQUAL("making the buffers of mbuf-pool-test", created.error().doing);
}

TEST(MbufPool, IsNotValidWithABufferThatItsBytesDoNotFind) {
  MbufPool& pool = made_pool();
  CHECK(pool.is_valid());
  rte_mbuf* one = rte_pktmbuf_alloc(pool.pool());
  CHECK(one != nullptr);
  void* const buffer = one->buf_addr;
  one->buf_addr = static_cast<std::byte*>(buffer) + pool.pool()->elt_size;
  CHECK(!pool.is_valid());
  one->buf_addr = buffer;
  CHECK(pool.is_valid());
  rte_pktmbuf_free(one);
}

TEST(MbufPool, AShapeThatCannotBeIsAProgrammingError) {
  MbufPool pool;
  const std::span<std::byte> memory = test::started_eal().buffers;
  BP_CHECK_DIES("shape.count >= kMbufCountMin", (void)pool.create("none", memory, {63, 2048}));
  BP_CHECK_DIES("<= UINT16_MAX", (void)pool.create("none", memory, {64, 65536}));
  BP_CHECK_DIES("name.size() <= kNameBytesMax",
                (void)pool.create("a-name-of-twenty-six-bytes", memory, {64, 2048}));
}
