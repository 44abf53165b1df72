// A KeyedCache with its memory, for tests and fuzzers.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "alloc/keyed_cache_datapath.h"

namespace bedplate::test {

struct KeyedCacheRig {
  KeyedCacheRig(uint64_t bytes, uint16_t key_offset_bytes, KeyedCacheCounters& counters)
      : memory(bytes / sizeof(Line)), index(KeyedCache::index_bytes(bytes) / sizeof(Line) + 1) {
    cache.create({.memory = std::as_writable_bytes(std::span(memory)),
                  .index = std::as_writable_bytes(std::span(index)),
                  .seed = 7,
                  .key_offset_bytes = key_offset_bytes,
                  .counters = &counters});
    cache.set_time(1'000'000'000);
  }

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory;
  std::vector<Line> index;
  KeyedCache cache;
};

}  // namespace bedplate::test
