// The random seed of a test: a new one in each run, printed when the test fails.
//
// BEDPLATE_TEST_SEED=N repeats a run.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "platform/clock.h"

namespace bedplate::test {

class Seed {
 public:
  Seed() noexcept {
    const char* given = std::getenv("BEDPLATE_TEST_SEED");
    value_ = given != nullptr ? std::strtoull(given, nullptr, 10) : monotonic_ns();
    std::snprintf(text_, sizeof text_, "repeat it with BEDPLATE_TEST_SEED=%" PRIu64, value_);
  }
  uint64_t value() const noexcept { return value_; }
  // For the text of a check.
  const char* text() const noexcept { return text_; }

 private:
  uint64_t value_;
  char text_[64];
};

}  // namespace bedplate::test
