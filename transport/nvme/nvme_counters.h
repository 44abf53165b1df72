// The counters of a drive, beside those of its queue pairs.
#pragma once

#include "platform/cache_line.h"
#include "platform/counter.h"

namespace bedplate {

// Written by the shard of the control.
struct alignas(kCacheLineBytes) NvmeCounters {
  Counter state;        // NvmeController::State
  Counter problem;      // NvmeProblem: the latest one
  Counter queue_pairs;  // granted by the controller
  Counter aborts;       // carried out by the controller
  Counter resets;
  Counter bad_completions;  // of admin commands
  // From the drive's health log (NvmeHealth); 0 until the log was read once.
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
  Counter new_media_errors;  // of them, since the log was first read
};

}  // namespace bedplate
