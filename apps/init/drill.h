// Drills: what an appliance must survive, or die of as configured, done on purpose. The kernel's
// command line asks for one (bedplate.drill=NAME), to see on the machine at hand that records,
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
  kBoot,         // the same before memory is taken
  kFault,        // a store to nowhere
  kOverflow,     // of a stack
  kHang,         // of the first shard's loop
  kHangDeaf,     // the same, where no signal reaches it
  kHangControl,  // of the control thread
  kTerminate,    // SIGTERM
  kChildren,     // processes that end, and are not waited for by their parent
};

// `text`: assertion, boot, fault, overflow, hang, hang-deaf, hang-control, terminate or children;
// without it, none. Errors: another word.
Result<Drill> parse_drill(const std::optional<std::string>& text) noexcept;

// Does what is to be done during the boot.
void drill_boot(Drill drill) noexcept;

// Does what the control thread is to do, while it serves. Called at each of its turns.
void drill_control(Drill drill) noexcept;

// Does all else on the thread of `loop`, a second after that began. `loop` must have room for a
// timer, and this is called on its thread. Only once.
void begin_drill(Drill drill, EventLoop& loop) noexcept;

}  // namespace bedplate
