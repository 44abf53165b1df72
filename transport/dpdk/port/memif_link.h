// Reconnects a memif client whose server is not there yet, or has gone: the driver leaves that to
// its user.
#pragma once

#include <cstdint>

#include "platform/units.h"

namespace bedplate {

// One client. Threads: one at a time: the main thread, then the control thread.
class MemifClient {
 public:
  // Starts port `number` of DPDK, which may have been started before. Returns whether somebody
  // listens at its path. The link's state tells later if a connection came of it.
  bool connect(uint16_t number) noexcept;
  // Whether it is time to connect(), if there is no link. Each try doubles the wait for the next.
  bool is_due() const noexcept;
  void note_link() noexcept { wait_ns_ = kFirstWaitNs; }

 private:
  static constexpr uint64_t kFirstWaitNs = kNsPerSecond;
  static constexpr uint64_t kLastWaitNs = 8 * kNsPerSecond;

  uint64_t tried_ns_ = 0;
  uint64_t wait_ns_ = kFirstWaitNs;
};

}  // namespace bedplate
