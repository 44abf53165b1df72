// The test runner: CppUTest with the whole heap in the pool (but in sanitizer builds).
#include <cstring>

#include "alloc/confined_heap.h"

#include "CppUTest/CommandLineTestRunner.h"

int main(int count, char** words) {
  bedplate::heap_create();  // segment 0 exists, whoever has malloc
  return CommandLineTestRunner::RunAllTests(count, words);
}
