// Aborts the late commands of a drive's queue pairs. It sends one Abort at a time: every controller
// supports that.
//
// Invariant: an abort is in progress exactly while the admin queue has its command. (look,
// completed)
#pragma once

#include <cstdint>

#include "transport/nvme/nvme_counters.h"
#include "transport/nvme/nvme_queue_datapath.h"
#include "transport/nvme/nvme_queue_pairs.h"

namespace bedplate {

// Threads: the control's.
class NvmeAborts {
 public:
  // `counters` outlives this.
  void create(NvmeCounters& counters) noexcept;

  // Begins an abort if none is in progress and a pair has a late command. The owner polls `admin`
  // for its end. Requires: if no abort is in progress, `admin` has a free slot.
  void look(const NvmeQueuePairs& pairs, NvmeQueue& admin, uint64_t now_ns) noexcept;
  bool is_in_progress() const noexcept { return is_in_progress_; }

 private:
  struct Call : NvmeCall {
    NvmeAborts* aborts = nullptr;
  };

  static void completed(NvmeCall& call, uint16_t status, uint32_t result) noexcept;

  Call call_;
  NvmeQueuePair* pair_ = nullptr;  // of the command that is being aborted
  NvmeCounters* counters_ = nullptr;
  bool is_in_progress_ = false;
};

}  // namespace bedplate
