// A service that crashes on demand, in several ways. tests/system/crash_test.py runs it.
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <sys/wait.h>
#include <unistd.h>

#include "apps/boot/service_context.h"
#include "apps/program/program.h"
#include "apps/services/control_methods.h"
#include "platform/assert.h"
#include "platform/known_child.h"

using namespace bedplate;
namespace {

[[gnu::noinline]] void crash_by_fault() noexcept {
  *reinterpret_cast<volatile int*>(uintptr_t{0x1000}) = 1;
}

// The exception is one of the standard library's, since this file is compiled without them.
[[gnu::noinline]] void crash_by_exception() { (void)std::string("till").at(7); }

[[gnu::noinline]] void crash_by_assertion(int change) noexcept { BP_ASSERT(change >= 0); }

// Recurses without end; the compiler must not see that.
[[gnu::noinline]] int crash_by_overflow(int depth) noexcept {
  volatile char frame[4096];
  frame[0] = '\0';
  return depth < 0 ? 0 : crash_by_overflow(depth & 1) + frame[0];
}

using Function = void (*)();
[[gnu::noinline]] void crash_by_null() noexcept {
  Function volatile nothing = nullptr;
  nothing();
  asm volatile("");  // no tail call
}

void crash(std::string_view how) {
  if (how == "assertion") crash_by_assertion(-1);
  if (how == "exception") crash_by_exception();
  if (how == "fault") crash_by_fault();
  if (how == "overflow") crash_by_overflow(0);
  if (how == "null") crash_by_null();
  if (how == "abort") std::abort();
}

class Crasher final : public Service {
  const char* name() const noexcept override { return "crasher"; }

  void describe(ConfigurationTable& table) override {
    table.boolean("at_boot", &at_boot_).help("It crashes when it is created.");
  }
  Result<void> create(ServiceContext& context) override {
    loop_ = &context.loop(0);
    if (at_boot_) crash_by_fault();
    return {};
  }

  void methods(ControlMethods& methods) override {
    methods.add({.name = "crash",
                 .parameters = {{.name = "how", .help = "Its cause."}},
                 .help = "Crashes the shard."},
                &crash_shard, this);
    methods.add({.name = "crash-child",
                 .result = "the number of the signal that has ended it",
                 .help = "Crashes a forked child."},
                &crash_child, this);
  }

  static void crash_shard(void* self, ControlCall& call) noexcept {
    call.go_on(
        *static_cast<Crasher*>(self)->loop_,
        [](void*, ControlCall& there) noexcept {
          crash(there.text("how"));
          there.result().boolean(false);
        },
        self);
  }

  static void crash_child(void*, ControlCall& call) noexcept {
    const pid_t child = fork();
    if (child == 0) {
      is_known_child = true;
      crash_by_fault();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    call.result().number(WIFSIGNALED(status) ? static_cast<uint64_t>(WTERMSIG(status)) : 0);
  }

  bool at_boot_ = false;
  EventLoop* loop_ = nullptr;
};

}  // namespace

int main(int count, char** words) {
  static Crasher crasher;
  return run_program(count, words, {&crasher});
}
