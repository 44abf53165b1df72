// A session of kvd without a socket, for tests and the fuzzer.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "apps/kvd/session_datapath.h"
#include "apps/testing/session_peer.h"
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
  const Counters* counted[1] = {&counters};
  Stats stats{facts, counted};
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

  // As those of SessionPeer, at the time of the cache.
  bool give(std::string_view* text, size_t piece_max) { return peer().give(text, piece_max) > 0; }
  std::string say(std::string_view text, size_t piece_max = SIZE_MAX) {
    return peer().say(text, piece_max);
  }
  std::string take() { return peer().take(); }

 private:
  testing::SessionPeer& peer() {
    peer_.now_ns = cache_.now_ns();
    return peer_;
  }

  KeyedCache& cache_;
  Session session_;
  testing::SessionPeer peer_{session_};
};

}  // namespace bedplate::kvd
