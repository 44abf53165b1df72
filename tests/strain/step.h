// A sender that is stopped at each instruction of each way to send: nobody else may notice, and
// nothing that was said to be sent may be lost or come twice.
#pragma once

#include <cstdint>

#include "tests/strain/step_control.h"

namespace bedplate::strain {

// The sender's fate once it was stopped and others have sent.
enum class Fate : uint32_t {
  kGoesOn,
  kKilled,
  kHungUp,  // dead by name, while it still runs; then it goes on
};
inline constexpr Fate kFates[] = {Fate::kGoesOn, Fate::kKilled, Fate::kHungUp};
inline const char* to_text(Fate fate) noexcept {
  constexpr const char* kTexts[] = {"goes on", "killed", "hung up"};
  return kTexts[static_cast<uint32_t>(fate)];
}

// One way with one fate.
struct StepCase {
  StepQueue queue = StepQueue::kFifo;
  Deed deed = Deed::kShort;
  Fate fate = Fate::kGoesOn;
  bool is_sleepy = false;  // the receiver sleeps whenever it can
};

struct StepOptions {
  uint64_t nanoseconds = 0;
  uint64_t hang_ns = 0;  // a wait that takes longer counts as a hang
  uint64_t seed = 0;
  const char* filter = "";  // only cases whose text contains it
};

// Returns the number of cases that failed; *count: the number of all.
uint32_t step_senders(const StepOptions& options, uint32_t* count);

}  // namespace bedplate::strain
