// Connects a memif client whose server does not exist yet, or has gone. The driver does not
// reconnect by itself.
#pragma once

#include <cstdint>

#include "platform/units.h"

namespace bedplate {

// One client. Threads: the main thread.
class MemifClient {
 public:
  // Starts port `number` of DPDK; stops it first if it was started. The gates are closed meanwhile
  // (memif_gate.h). Returns whether a server listens at its path. The link's state tells later
  // whether the connection came up.
  bool connect(uint16_t number) noexcept;
  // Whether it is time to connect(), if the link is down. Each try doubles the wait for the next,
  // up to kLastWaitNs.
  bool is_due() const noexcept;
  // The link is up: the wait is kFirstWaitNs again.
  void note_link() noexcept { wait_ns_ = kFirstWaitNs; }

 private:
  static constexpr uint64_t kFirstWaitNs = kNsPerSecond;
  static constexpr uint64_t kLastWaitNs = 8 * kNsPerSecond;

  uint64_t tried_ns_ = 0;
  uint64_t wait_ns_ = kFirstWaitNs;
};

}  // namespace bedplate
