#include "platform/counter.h"

#include <thread>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Counter){};

TEST(Counter, AddsAndSets) {
  Counter counter;
  CHECK(counter.read() == 0);
  counter.add(3);
  counter.add(4);
  CHECK(counter.read() == 7);
  counter.set(2);
  CHECK(counter.read() == 2);
}

TEST(Counter, ZeroedMemoryIsAValidOne) {
  static_assert(sizeof(Counter) == sizeof(uint64_t));
  alignas(Counter) unsigned char memory[sizeof(Counter)] = {};
  CHECK(reinterpret_cast<Counter*>(memory)->read() == 0);
}

TEST(Counter, AnotherThreadReadsItWhileItGrows) {
  constexpr uint64_t kLast = 100'000;
  Counter counter;
  bool went_back = false;
  std::thread reader([&] {
    for (uint64_t last = 0; last < kLast;) {
      const uint64_t now = counter.read();
      went_back |= now < last;
      last = now;
    }
  });
  for (uint64_t i = 0; i < kLast; ++i) counter.add(1);
  reader.join();
  CHECK_FALSE(went_back);
}
