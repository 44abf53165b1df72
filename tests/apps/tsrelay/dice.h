// Random choices for the relay's tests. A failed test prints the seed, which can be set for another
// run (tests/support/seed.h).
#pragma once

#include <cstdint>
#include <cstdio>
#include <random>

#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::relay {

class Dice {
 public:
  ~Dice() {
    if (UtestShell::getCurrent()->hasFailed()) std::puts(seed_.text());
  }
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(engine_() % limit); }

 private:
  test::Seed seed_;
  std::mt19937_64 engine_{seed_.value()};
};

}  // namespace bedplate::relay
