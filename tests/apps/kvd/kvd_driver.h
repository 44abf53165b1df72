// A session of kvd without a socket, for tests and the fuzzer: feeds it a text in parts, and
// collects the answers.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/kvd/session_datapath.h"
#include "tests/alloc/keyed_cache_rig.h"

namespace bedplate::kvd {

// A cache with the environment of its sessions.
struct CacheRig {
  explicit CacheRig(uint64_t bytes, uint64_t value_bytes_max = 64 * 1024)
      : own(bytes, kValueWord.size(), counters.cache) {
    facts.value_bytes_max = value_bytes_max;
    facts.memory_bytes = cache.memory_bytes();
    environment = {nullptr, &cache, &counters, &facts, &stats};
  }

  // Allocated on their own, because CppUTest's operator new ignores alignment.
  std::unique_ptr<Counters> own_counters = std::make_unique<Counters>();
  Counters& counters = *own_counters;
  test::KeyedCacheRig own;
  KeyedCache& cache = own.cache;
  Facts facts{.pid = 4711, .connections_max = 256};
  Stats stats{facts, counters};
  Environment environment;
};

class Client {
 public:
  explicit Client(CacheRig& rig) : Client(rig.environment) {}
  explicit Client(const Environment& environment)
      : cache_(*environment.cache), session_(environment) {}
  ~Client() { session_.reset(); }

  Session& session() { return session_; }
  void sent() { session_.sent(cache_.now_ns()); }

  // Moves up to `piece_max` bytes of *text into the session. Returns whether the session took any.
  bool give(std::string_view* text, size_t piece_max) {
    const StreamSession::Input input = session_.input();
    size_t moved = 0;
    for (uint32_t i = 0; i < input.piece_count; ++i) {
      const size_t bytes = std::min({input.pieces[i].iov_len, text->size(), piece_max - moved});
      std::memcpy(input.pieces[i].iov_base, text->data(), bytes);
      text->remove_prefix(bytes);
      moved += bytes;
    }
    if (moved > 0) session_.received(moved, cache_.now_ns());
    return moved > 0;
  }

  // Receives all replies that the session can send now.
  std::string take() {
    std::string all;
    for (auto pieces = session_.replies(); !pieces.empty(); pieces = session_.replies()) {
      for (const iovec& piece : pieces) {
        all.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
      }
      sent();
    }
    return all;
  }

  // Sends `text` in parts of `piece_max` bytes. Returns all replies.
  std::string say(std::string_view text, size_t piece_max = ~size_t{0}) {
    std::string all;
    while (!text.empty()) {
      const bool has_moved = give(&text, piece_max);
      const std::string answer = take();
      all += answer;
      if (!has_moved && answer.empty()) break;
    }
    return all;
  }

 private:
  KeyedCache& cache_;
  Session session_;
};

}  // namespace bedplate::kvd
