// Copies a drive's health log into its counters.
#pragma once

#include <cstddef>

#include "transport/nvme/nvme_counters.h"

namespace bedplate {

class NvmeHealth {
 public:
  // Takes a log of nvme::kHealthBytes. The errors in the first log do not count as new.
  void take_log(const std::byte* log, NvmeCounters& counters) noexcept;

 private:
  bool is_known_ = false;
};

}  // namespace bedplate
