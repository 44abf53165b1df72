#include "apps/init/drill.h"

#include "platform/clock.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constexpr uint64_t kDelayNs = kNsPerSecond;

struct NamedDrill {
  Drill drill;
  const char* name;
};
constexpr NamedDrill kDrills[] = {{Drill::kAssertion, "assertion"},
                                  {Drill::kBoot, "boot"},
                                  {Drill::kFault, "fault"},
                                  {Drill::kOverflow, "overflow"},
                                  {Drill::kHang, "hang"}};

constinit Drill the_drill = Drill::kNone;
constinit Timer the_timer = {};

// Without an end, but the compiler need not know.
[[gnu::noinline]] int fill_stack(int depth) noexcept {
  volatile char frame[4096];
  frame[0] = '\0';
  return depth < 0 ? 0 : fill_stack(depth & 1) + frame[0];
}

void drill_now(void*) noexcept {
  switch (the_drill) {
    case Drill::kNone: break;
    case Drill::kAssertion:
    case Drill::kBoot: assertion_failed(__FILE__, __LINE__, "this is a drill"); break;
    case Drill::kFault: *reinterpret_cast<volatile int*>(uintptr_t{0x1000}) = 1; break;
    case Drill::kOverflow: fill_stack(0); break;
    case Drill::kHang:
      for (;;) cpu_relax();
  }
}

void announce(Drill drill) noexcept {
  BP_LOG_WARNING("a drill is about to begin, as the kernel's command line says");
  the_drill = drill;
}

}  // namespace

Result<Drill> parse_drill(const std::optional<std::string>& text) noexcept {
  if (!text) return Drill::kNone;
  for (const NamedDrill& each : kDrills) {
    if (*text == each.name) return each.drill;
  }
  Error error;
  error.set_doing("reading bedplate.drill on the kernel's command line");
  error.set_answer("there is no drill \"%.32s\"", text->c_str());
  return error.set_cure("write assertion, boot, fault, overflow or hang, or leave it out");
}

void drill_boot(Drill drill) noexcept {
  if (drill != Drill::kBoot) return;
  announce(drill);
  drill_now(nullptr);
}

void begin_drill(Drill drill, EventLoop& loop) noexcept {
  if (drill == Drill::kNone) return;
  announce(drill);
  the_timer.expired = &drill_now;
  loop.timers().arm(the_timer, monotonic_ns() + kDelayNs);
}

}  // namespace bedplate
