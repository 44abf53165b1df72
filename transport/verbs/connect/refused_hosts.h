// The hosts whose handshakes were refused, whichever end dialed. Each host is logged once; all
// refusals are counted.
//
// So a host that keeps dialing does not fill the log. Once the table is full, further hosts are not
// logged. Threads: the connector's, and count() for any.
//
// Invariants: 1. It knows no more hosts than its table holds. 2. Each of them was refused at least
// once. (is_valid)
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/version.h"

namespace bedplate {

class RefusedHosts {
 public:
  // Counts a refusal, and logs it if `host` is new. Compares only the first 63 bytes of `host`.
  void tell_once(const char* host, const char* why) noexcept;
  // How many handshakes were refused. Threads: any.
  uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  bool is_valid() const noexcept { return host_count_ <= kHostCountMax && count() >= host_count_; }

 private:
  static constexpr uint32_t kHostCountMax = 32;

  char hosts_[kHostCountMax][64] = {};
  uint32_t host_count_ = 0;
  std::atomic<uint64_t> count_{0};
};

}  // namespace bedplate
