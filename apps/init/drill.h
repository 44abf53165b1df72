// Drills: deliberate failures that an appliance must survive, or end on as configured. The kernel's
// command line asks for one (bedplate.drill=NAME), to test on the machine at hand that records,
// dumps and the watchdog work.
#pragma once

#include <optional>
#include <string>

#include "platform/result.h"
#include "transport/loop/event_loop.h"

namespace bedplate {

enum class Drill {
  kNone,
  kAssertion,
  kBoot,         // an assertion before memory is taken
  kFault,        // a store to an unmapped address
  kOverflow,     // a stack overflow
  kHang,         // the first shard's loop hangs
  kHangDeaf,     // the same, deaf to signals
  kHangControl,  // the main thread hangs
  kTerminate,    // SIGTERM
  kChildren,     // processes end, and their parent does not wait for them
};

// `text`: assertion, boot, fault, overflow, hang, hang-deaf, hang-control, terminate or children;
// no text: kNone. Errors: another word.
Result<Drill> parse_drill(const std::optional<std::string>& text) noexcept;

// Carries out kBoot, and ignores other drills.
void drill_boot(Drill drill) noexcept;

// Carries out kHangControl, and ignores other drills. The serving main thread calls it each turn.
void drill_control(Drill drill) noexcept;

// Carries out any other drill on the thread of `loop`, one second later. `loop` has a free timer,
// and its thread calls this function, once.
void begin_drill(Drill drill, EventLoop& loop) noexcept;

}  // namespace bedplate
