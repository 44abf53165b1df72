#include "apps/init/drill.h"

#include <cerrno>
#include <csignal>

#include <sys/wait.h>
#include <unistd.h>

#include "platform/assert.h"
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
                                  {Drill::kHang, "hang"},
                                  {Drill::kHangDeaf, "hang-deaf"},
                                  {Drill::kHangControl, "hang-control"},
                                  {Drill::kTerminate, "terminate"},
                                  {Drill::kChildren, "children"}};

constinit Drill the_drill = Drill::kNone;
constinit Timer the_timer = {};

// Recurses without end; the compiler must not see that.
[[gnu::noinline]] int fill_stack(int depth) noexcept {
  volatile char frame[4096];
  frame[0] = '\0';
  return depth < 0 ? 0 : fill_stack(depth & 1) + frame[0];
}

[[noreturn, gnu::noinline]] void hang() noexcept {
  BP_LOG_WARNING("drill: hanging");
  for (;;) cpu_relax();
}

[[noreturn]] void hang_deaf() noexcept {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  hang();
}

// Makes children and orphans; the first process becomes the orphans' parent.
void leave_children() noexcept {
  constexpr int kChildCount = 8;
  for (int i = 0; i < kChildCount; ++i) {
    if (const pid_t child = fork(); child == 0) {
      if (fork() == 0) usleep(100'000);
      _exit(0);
    }
  }
  // If the kernel reaps children, waitpid waits for all of them, and fails with ECHILD.
  const bool is_reaped = waitpid(-1, nullptr, 0) < 0 && errno == ECHILD;
  BP_LOG_INFO("drill: %d children and their children have ended; %s", kChildCount,
              is_reaped ? "none is left" : "one is left");
}

void drill_now(void*) noexcept {
  switch (the_drill) {
    case Drill::kNone:
    case Drill::kHangControl: break;
    case Drill::kAssertion:
    case Drill::kBoot: assertion_failed(__FILE__, __LINE__, "this is a drill"); break;
    case Drill::kFault: *reinterpret_cast<volatile int*>(uintptr_t{0x1000}) = 1; break;
    case Drill::kOverflow: fill_stack(0); break;
    case Drill::kHang: hang(); break;
    case Drill::kHangDeaf: hang_deaf(); break;
    case Drill::kTerminate: kill(getpid(), SIGTERM); break;
    case Drill::kChildren: leave_children(); break;
  }
}

void announce(Drill drill) noexcept {
  BP_ASSERT(the_drill == Drill::kNone);  // there is one for each boot
  BP_LOG_WARNING("a drill begins, as requested on the kernel's command line");
  the_drill = drill;
}

}  // namespace

Result<Drill> parse_drill(const std::optional<std::string>& text) noexcept {
  if (!text) return Drill::kNone;
  for (const NamedDrill& each : kDrills) {
    if (*text == each.name) return each.drill;
  }
  return error_while("reading bedplate.drill on the kernel's command line")
      .set_answer("there is no drill \"%.32s\"", text->c_str())
      .set_cure("write assertion, boot, fault, overflow, hang, hang-deaf, "
                "hang-control, terminate or children, or leave it out");
}

void drill_boot(Drill drill) noexcept {
  if (drill != Drill::kBoot) return;
  announce(drill);
  drill_now(nullptr);
}

void drill_control(Drill drill) noexcept {
  if (drill != Drill::kHangControl) return;
  announce(drill);
  hang();
}

void begin_drill(Drill drill, EventLoop& loop) noexcept {
  if (drill == Drill::kNone || drill == Drill::kHangControl) return;
  announce(drill);
  the_timer.expired = &drill_now;
  loop.timers().arm(the_timer, monotonic_ns() + kDelayNs);
}

}  // namespace bedplate
