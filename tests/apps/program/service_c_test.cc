// The C interface to services (apps/program/service_c.h), as far as it needs no appliance
// (tests/system/service_c_test.py).
#include "apps/boot/bedplate_service.h"

#include <stdlib.h>
#include <unistd.h>

#include <string_view>

#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate::test;

TEST_GROUP(ServiceC) {
  bp_service service = {};
  char program[6] = "store", help[7] = "--help";
  char* words[3] = {program, help, nullptr};

  int run(unsigned version, size_t bytes) {
    service.name = "store";
    return bp_main_of(version, bytes, 2, words, &service, 1);
  }
};

TEST(ServiceC, AHeaderOfAnotherMajorVersionIsRefused) {
  StderrCapture log;
  LONGS_EQUAL(2, run(BP_VERSION + 0x010000, sizeof(bp_service)));
  LONGS_EQUAL(2, run(BP_VERSION, sizeof(bp_service) - sizeof(void*)));
  STRCMP_CONTAINS("it was compiled with version 10100 of bedplate_service.h, the archive has 100; "
                  "compile it with the header that belongs to the archive",
                  log.text().c_str());
}

TEST(ServiceC, AKeyThatWasRenamedIsRefusedWithItsNameOfNow) {
  service.name = "store";
  service.describe = [](void*, bp_table* table) {
    static uint64_t item_count = 8;
    bp_table_integer(table, "items", &item_count, 1, 100, "How many it keeps.");
    bp_table_renamed(table, "items", "entries");
  };
  char check[6] = "check";
  char path[] = "/tmp/bedplate-test-XXXXXX";
  const int fd = mkstemp(path);
  char* check_it[4] = {program, check, path, nullptr};
  constexpr std::string_view kText = "[appliance]\nname = \"c\"\n[pool]\nbytes = \"64 MiB\"\n"
                                     "[[shard]]\nname = \"main\"\ncpu = 0\n[store]\nentries = 5\n";
  LONGS_EQUAL(kText.size(), write(fd, kText.data(), kText.size()));
  close(fd);
  StderrCapture log;
  LONGS_EQUAL(2, bp_main_of(BP_VERSION, sizeof(bp_service), 3, check_it, &service, 1));
  unlink(path);
  STRCMP_CONTAINS(":9:1: \"entries\" is called \"items\" now; expected \"items\", integer: 1..100",
                  log.text().c_str());
}

TEST(ServiceC, WhatFailsIsKeptInThreeParts) {
  LONGS_EQUAL(-1, bp_fail("opening the store", "it is full", "make room"));
  STRCMP_EQUAL("opening the store: it is full; make room", bp_error_text());
}
