// Mistakes that the author of a service makes. Each file of this folder has one. run.py compiles
// all into one program, and compares the text that each prints with its table.
//
//     PROGRAM MISTAKE run CONFIG
#pragma once

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include <unistd.h>

#include "apps/boot/service_context.h"
#include "apps/program/program.h"
#include "apps/services/service_plan.h"

namespace bedplate {

// A service called "cache". It is registered before main, by the name of its file.
class Mistake : public Service {
 public:
  explicit Mistake(const char* mistake) noexcept : mistake_(mistake), next_(first_) {
    first_ = this;
  }
  const char* name() const noexcept override { return "cache"; }

  // nullptr: no file has this mistake.
  static Mistake* find(const char* mistake) noexcept {
    Mistake* each = first_;
    while (each != nullptr && std::strcmp(each->mistake_, mistake) != 0) each = each->next_;
    return each;
  }

  // Ends the appliance, if the mistake does not.
  static void end() noexcept { kill(getpid(), SIGTERM); }

  // Calls `function` on another thread, as soon as `loop` runs. That thread runs to the end of the
  // process.
  template <typename Function>
  static void elsewhere(const EventLoop& loop, Function function) {
    std::thread([&loop, function] {
      while (loop.is_own_thread()) std::this_thread::yield();
      function();
    }).detach();
  }

 private:
  const char* const mistake_;
  Mistake* const next_;
  static inline Mistake* first_ = nullptr;
};

}  // namespace bedplate
