// The counters of a drive, beside those of its queue pairs.
#pragma once

#include "platform/cache_line.h"
#include "platform/counter.h"

namespace bedplate {

// Written by the control's shard.
struct alignas(kCacheLineBytes) NvmeCounters {
  Counter state;        // NvmeController::State
  Counter problem;      // NvmeProblem: the last one
  Counter queue_pairs;  // that it has granted
  Counter aborts;       // that the controller has carried out
  Counter resets;
  Counter bad_completions;  // of admin commands
  // From its health log (NvmeHealth); 0 before it was read first.
  Counter warnings;
  Counter temperature_kelvin;
  Counter spare_percent;
  Counter used_percent;
  Counter read_units;
  Counter written_units;
  Counter power_cycles;
  Counter power_on_hours;
  Counter unsafe_shutdowns;
  Counter media_errors;
  Counter new_media_errors;  // of them, since it was read first
};

}  // namespace bedplate
