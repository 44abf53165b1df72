// A simulated queue of a port: it has a pool of mbufs without EAL, records the sent frames as
// bytes, and refuses frames when a test says so.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "transport/dpdk/net/frame_queue.h"

namespace bedplate::made_up {

using Bytes = std::vector<uint8_t>;

inline void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "made_up_port: %s\n", what);
  std::abort();
}

// Mbufs of one size. Uses DPDK's own inline functions; only the list of free mbufs is the test's.
class Pool {
 public:
  static constexpr uint16_t kRoomBytes = RTE_PKTMBUF_HEADROOM + 2048;

  explicit Pool(uint32_t count, uint16_t room_bytes = kRoomBytes)
      : count_(count),
        stride_((sizeof(rte_mbuf) + room_bytes + 63U) & ~63U),
        memory_(static_cast<uint8_t*>(std::aligned_alloc(64, uint64_t{count} * stride_))),
        head_(static_cast<Head*>(std::aligned_alloc(64, (sizeof(Head) + 63) & ~size_t{63}))) {
    std::memset(static_cast<void*>(memory_), 0, uint64_t{count} * stride_);
    std::memset(static_cast<void*>(head_), 0, sizeof(Head));
    head_->pool.ops_index = operations();
    head_->pool.pool_data = this;
    head_->pool.size = count;
    head_->own.mbuf_data_room_size = room_bytes;
    free_.reserve(count);
    for (uint32_t i = 0; i < count; ++i) {
      auto* mbuf = reinterpret_cast<rte_mbuf*>(memory_ + uint64_t{i} * stride_);
      mbuf->pool = &head_->pool;
      mbuf->buf_addr = mbuf + 1;
      mbuf->buf_len = room_bytes;
      mbuf->data_off = RTE_PKTMBUF_HEADROOM;
      mbuf->nb_segs = 1;
      rte_mbuf_refcnt_set(mbuf, 1);
      free_.push_back(mbuf);
    }
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() {
    must(is_whole(), "an mbuf is missing");
    std::free(memory_);
    std::free(head_);
  }

  rte_mbuf* allocate() { return rte_pktmbuf_alloc(&head_->pool); }
  rte_mbuf* find(const void* bytes) const {
    const auto* at = static_cast<const uint8_t*>(bytes);
    if (at < memory_ || at >= memory_ + uint64_t{count_} * stride_) return nullptr;
    return reinterpret_cast<rte_mbuf*>(memory_ + (at - memory_) / stride_ * stride_);
  }
  uint32_t free_count() const { return static_cast<uint32_t>(free_.size()); }
  bool is_whole() const { return free_.size() == count_; }

 private:
  struct Head {
    rte_mempool pool;
    rte_pktmbuf_pool_private own;  // where rte_mempool_get_priv() expects it
  };

  static int32_t operations() {
    static const int32_t index = [] {
      rte_mempool_ops made = {};
      std::strcpy(made.name, "made-up");
      made.enqueue = [](rte_mempool* pool, void* const* objects, unsigned count) {
        auto& free = static_cast<Pool*>(pool->pool_data)->free_;
        for (unsigned i = 0; i < count; ++i) {
          must(std::find(free.begin(), free.end(), objects[i]) == free.end(), "freed twice");
          free.push_back(static_cast<rte_mbuf*>(objects[i]));
        }
        return 0;
      };
      made.dequeue = [](rte_mempool* pool, void** objects, unsigned count) {
        auto& free = static_cast<Pool*>(pool->pool_data)->free_;
        if (free.size() < count) return -ENOBUFS;
        for (unsigned i = 0; i < count; ++i) {
          objects[i] = free.back();
          free.pop_back();
        }
        return 0;
      };
      made.get_count = [](const rte_mempool* pool) {
        return static_cast<unsigned>(static_cast<Pool*>(pool->pool_data)->free_.size());
      };
      made.alloc = [](rte_mempool*) { return 0; };
      return rte_mempool_register_ops(&made);
    }();
    return index;
  }

  uint32_t count_;
  uint32_t stride_;
  uint8_t* memory_;
  Head* head_;
  std::vector<rte_mbuf*> free_;
};

// The bytes of a frame, of all its segments.
inline Bytes bytes_of(const rte_mbuf* frame) {
  Bytes bytes;
  for (; frame != nullptr; frame = frame->next) {
    const auto* data = rte_pktmbuf_mtod(frame, const uint8_t*);
    bytes.insert(bytes.end(), data, data + rte_pktmbuf_data_len(frame));
  }
  return bytes;
}

class Port : public FrameQueue {
 public:
  explicit Port(uint32_t mbuf_count = 256) : pool(mbuf_count) { sent.reserve(64); }
  ~Port() { release_held(); }

  // A received frame, in one segment or in two.
  rte_mbuf* frame(const Bytes& bytes) {
    rte_mbuf* made = pool.allocate();
    must(made != nullptr && bytes.size() <= rte_pktmbuf_tailroom(made), "no room for a frame");
    std::copy(bytes.begin(), bytes.end(),
              rte_pktmbuf_append(made, static_cast<uint16_t>(bytes.size())));
    return made;
  }
  rte_mbuf* frame(const Bytes& first, const Bytes& second) {
    rte_mbuf* made = frame(first);
    rte_mbuf* rest = frame(second);
    rte_pktmbuf_chain(made, rest);
    return made;
  }
  void release_held() {
    for (rte_mbuf* one : held) rte_pktmbuf_free(one);
    held.clear();
  }
  // Removes the oldest recorded frame and returns it. Returns no bytes if there is none.
  Bytes take_sent() {
    if (sent.empty()) return {};
    Bytes first = sent.front();
    sent.erase(sent.begin());
    return first;
  }

  uint32_t send(std::span<rte_mbuf*> frames) noexcept override {
    const auto count = std::min<size_t>(frames.size(), room);
    sent_count += count;
    for (size_t i = 0; i < count; ++i) {
      if (!records) {
        rte_pktmbuf_free(frames[i]);
        continue;
      }
      sent.push_back(bytes_of(frames[i]));
      flags.push_back(frames[i]->ol_flags);
      must(frames[i]->pkt_len == sent.back().size(), "a frame's length is wrong");
      if (holds) {
        held.push_back(frames[i]);
      } else {
        rte_pktmbuf_free(frames[i]);
      }
    }
    if (room != kUnlimited) room -= static_cast<uint32_t>(count);
    return static_cast<uint32_t>(count);
  }
  bool has_room() const noexcept override { return room > 0; }
  rte_mbuf* allocate() noexcept override { return has_buffers ? pool.allocate() : nullptr; }
  rte_mbuf* find(const std::byte* bytes) const noexcept override {
    rte_mbuf* found = pool.find(bytes);
    return found == nullptr && other != nullptr ? other->pool.find(bytes) : found;
  }
  rte_ether_addr mac() const noexcept override { return own_mac; }
  uint32_t mtu_bytes() const noexcept override { return mtu; }
  FrameOffloads offloads() const noexcept override { return can; }

  static constexpr uint32_t kUnlimited = ~uint32_t{0};
  Pool pool;
  rte_ether_addr own_mac = {{0x02, 0, 0, 0, 0, 0x01}};
  uint32_t mtu = 1500;
  FrameOffloads can = {.ipv4_checksum = false, .udp_checksum = false, .multi_segment = true};
  Port* other = nullptr;  // find() finds its buffers too
  uint32_t room = kUnlimited;
  bool has_buffers = true;
  bool holds = false;   // sent frames are kept until release_held()
  bool records = true;  // false: sent frames are only counted, and nothing is allocated
  uint64_t sent_count = 0;
  std::vector<rte_mbuf*> held;
  std::vector<Bytes> sent;
  std::vector<uint64_t> flags;  // of the sent frames
};

}  // namespace bedplate::made_up
