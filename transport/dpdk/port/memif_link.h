// The driver of memif leaves one thing to its user: a client whose server is not there yet, or has
// gone, connects again.
//
// Tested by tests/system/ports_devices_test.py.
#pragma once

#include <cstdint>

#include "platform/units.h"

namespace bedplate {

// A client's. Threads: one at a time: the main thread, then the control thread.
class MemifClient {
 public:
  // Starts port `number` of DPDK, which may have been started before. Returns whether somebody
  // listens at its path; whether that becomes a connection the link says.
  bool connect(uint16_t number) noexcept;
  // Whether it is time for it, when there is no link. Each one lets the next wait twice as long.
  bool is_due() const noexcept;
  void note_link() noexcept { wait_ns_ = kFirstWaitNs; }

 private:
  static constexpr uint64_t kFirstWaitNs = kNsPerSecond;
  static constexpr uint64_t kLastWaitNs = 8 * kNsPerSecond;

  uint64_t tried_ns_ = 0;
  uint64_t wait_ns_ = kFirstWaitNs;
};

}  // namespace bedplate
