// The spin of an idle loop: how long it is, and how often there is one.
#include "transport/loop/idle_spin.h"

#include <string>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(IdleSpin) {
  static constexpr uint64_t kSpinNs = 100;
  IdleSpin spin{kSpinNs};
  uint64_t now_ns = 1000;

  // An idle period without work. Returns whether it had a spin.
  bool idle() {
    const bool spins = spin.goes_on(now_ns);
    now_ns += kSpinNs;
    if (spins) CHECK_FALSE(spin.goes_on(now_ns));
    CHECK(spin.is_valid());
    return spins;
  }
};

TEST(IdleSpin, LastsAsLongAsItMay) {
  CHECK(spin.goes_on(now_ns));
  CHECK(spin.goes_on(now_ns + kSpinNs - 1));
  CHECK_FALSE(spin.goes_on(now_ns + kSpinNs));
}

TEST(IdleSpin, WithoutATimeThereIsNone) {
  IdleSpin none(0);
  for (uint32_t i = 0; i < 10; ++i) CHECK_FALSE(none.goes_on(now_ns));
}

TEST(IdleSpin, EachInVainHalvesHowOftenThereIsOne) {
  std::string periods;
  for (uint32_t i = 1; i <= 1024; ++i) {
    if (idle()) periods += std::to_string(i) + " ";
  }
  STRCMP_EQUAL("1 2 4 8 16 32 64 128 256 512 768 1024 ", periods.c_str());
}

TEST(IdleSpin, OneThatFindsWorkPays) {
  for (uint32_t i = 1; i <= 7; ++i) idle();
  CHECK(spin.goes_on(now_ns));
  spin.find_work();
  CHECK(idle());
  CHECK(idle());
  CHECK_FALSE(idle());
}

TEST(IdleSpin, WorkWithoutASpinChangesNothing) {
  for (uint32_t i = 1; i <= 4; ++i) idle();
  spin.find_work();
  for (uint32_t i = 5; i <= 7; ++i) CHECK_FALSE(idle());
  CHECK(idle());
}
