// Unity's fixture on CppUTest. Tests of the C interface are written in C with Unity's macros, so
// that the same file also compiles with Unity itself, whose header has this name.
//
// It defines only the macros that those tests use. A group must define both TEST_SETUP and
// TEST_TEAR_DOWN, as Unity requires. CppUTest finds its tests by itself; for Unity a
// TEST_GROUP_RUNNER in a separate file names each test.
#pragma once

#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

// CppUTest's setup functions lie in the group, Unity's follow it. TEST is the same for both.
#undef TEST_GROUP
#undef TEST_SETUP
#define TEST_GROUP(group)                                   \
  static void unity_setup_##group(void);                    \
  static void unity_tear_down_##group(void);                \
  TEST_GROUP_BASE(group, Utest) {                           \
    void setup() override { unity_setup_##group(); }        \
    void teardown() override { unity_tear_down_##group(); } \
  }
#define TEST_SETUP(group) static void unity_setup_##group(void)
#define TEST_TEAR_DOWN(group) static void unity_tear_down_##group(void)

#define TEST_IGNORE_MESSAGE(reason) BP_SKIP(reason)

#define TEST_ASSERT_TRUE(condition) CHECK_TRUE(condition)
#define TEST_ASSERT_NULL(pointer) POINTERS_EQUAL(nullptr, pointer)
#define TEST_ASSERT_NOT_NULL(pointer) CHECK_TRUE((pointer) != nullptr)
#define TEST_ASSERT_EQUAL_INT(expected, actual) LONGS_EQUAL(expected, actual)
#define TEST_ASSERT_EQUAL_UINT(expected, actual) UNSIGNED_LONGS_EQUAL(expected, actual)
#define TEST_ASSERT_EQUAL_size_t(expected, actual) UNSIGNED_LONGS_EQUAL(expected, actual)
#define TEST_ASSERT_EQUAL_PTR(expected, actual) POINTERS_EQUAL(expected, actual)
#define TEST_ASSERT_EQUAL_STRING(expected, actual) STRCMP_EQUAL(expected, actual)
