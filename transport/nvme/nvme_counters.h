// The counters of a drive, beside those of its queue pairs.
#pragma once

#include "platform/cache_line.h"
#include "platform/counter.h"

namespace bedplate {

// Written by the shard of the control.
struct alignas(kCacheLineBytes) NvmeCounters {
  Counter state;        // NvmeController::State
  Counter problem;      // NvmeProblem: the latest one
  Counter queue_pairs;  // those in use: at most as many as the controller grants
  Counter aborts;       // carried out by the controller
  Counter resets;
  Counter bad_completions;  // of admin commands
  // From the drive's health log (NvmeHealth); 0 until the log was read once.
  Counter warnings;  // bits: the log's Critical Warning
  Counter temperature_kelvin;
  Counter spare_percent;
  Counter used_percent;   // may exceed 100
  Counter read_units;     // of 512,000 bytes
  Counter written_units;  // of 512,000 bytes
  Counter power_cycles;
  Counter power_on_hours;
  Counter unsafe_shutdowns;
  Counter media_errors;
  Counter new_media_errors;  // media errors since the log was first read
};

}  // namespace bedplate
