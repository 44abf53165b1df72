// A sender is stopped at each instruction of each path of a send: no other member may be affected,
// and no message reported as sent may be lost or duplicated.
#pragma once

#include <cstdint>

#include "tests/strain/step_control.h"

namespace bedplate::strain {

// The sender's fate after it was stopped and others have sent.
enum class Fate : uint32_t {
  kGoesOn,
  kKilled,
  kHungUp,  // declared dead while it still runs; then it continues
};
inline constexpr Fate kFates[] = {Fate::kGoesOn, Fate::kKilled, Fate::kHungUp};
inline const char* to_text(Fate fate) noexcept {
  constexpr const char* kTexts[] = {"goes on", "killed", "hung up"};
  return kTexts[static_cast<uint32_t>(fate)];
}

// One path of a send with one fate.
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

// Returns the number of failed cases; *count: the number of all cases.
uint32_t step_senders(const StepOptions& options, uint32_t* count);

}  // namespace bedplate::strain
