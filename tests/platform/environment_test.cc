// Environment variables in a program that has no more rights than its caller. tests/link/run.py
// tests a program with more rights.
#include "platform/environment.h"

#include <cstdlib>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Environment){};

TEST(Environment, AVariableIsTheTextThatWasSet) {
  const char* const name = "BEDPLATE_TEST_VARIABLE";
  POINTERS_EQUAL(nullptr, environment_text(name));
  CHECK_EQUAL(0, setenv(name, "", 1));
  STRCMP_EQUAL("", environment_text(name));
  CHECK_EQUAL(0, setenv(name, "16 MiB", 1));
  STRCMP_EQUAL("16 MiB", environment_text(name));
  CHECK_EQUAL(0, unsetenv(name));
  POINTERS_EQUAL(nullptr, environment_text(name));
}

TEST(Environment, AForgottenVariableIsNoChilds) {
  const char* const name = "BEDPLATE_TEST_VARIABLE";
  CHECK_EQUAL(0, setenv(name, "ours", 1));
  const char* const text = environment_text(name);
  forget_environment_text(name);
  POINTERS_EQUAL(nullptr, environment_text(name));
  STRCMP_EQUAL("ours", text);
  CHECK_EQUAL(0, std::system("test -z \"${BEDPLATE_TEST_VARIABLE+set}\""));
}
