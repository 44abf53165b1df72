#include "platform/product.h"

#include "platform/log.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Product) {
  const bedplate::Product before = product();

  void teardown() override { set_product(before); }
};

TEST(Product, IsBedplateUnlessAProgramSetsAnother) {
  STRCMP_EQUAL("bedplate", product().name);
  set_product({.name = "logd", .version = "2.1"});
  STRCMP_EQUAL("logd", product().name);
  STRCMP_EQUAL("2.1", product().version);
}

TEST(Product, IsAWordThatFilesAndUnitsMayHave) {
  for (const char* good : {"a", "logd", "log-store-2"}) CHECK(is_product_name(good));
  for (const char* bad : {"", "2log", "-log", "Logd", "log_d", "log d", "log/d", "log%d",
                          "a2345678901234567890123456789012"}) {
    CHECK(!is_product_name(bad));
  }
  CHECK(is_product_name("a234567890123456789012345678901"));
}

TEST(Product, StandsForTheWordProgramInTexts) {
  set_product({.name = "logd"});
  STRCMP_EQUAL("`logd top` and /run/logd",
               with_product_name("`PROGRAM top` and /run/PROGRAM").c_str());
  STRCMP_EQUAL("nothing", with_product_name("nothing").c_str());
  STRCMP_EQUAL("", with_product_name("").c_str());
}

TEST(Product, BeginsTheLinesOfTheLog) {
  test::StderrCapture log;
  set_product({.name = "logd"});
  BP_LOG_INFO("%d pages", 3);
  BP_LOG_WARNING("few pages");
  BP_LOG_ERROR("no pages");
  log_error(error_while("taking pages").set_answer("there are none"));
  STRCMP_EQUAL("logd: 3 pages\nlogd: warning: few pages\nlogd: error: no pages\n"
               "logd: taking pages: there are none\n",
               log.text().c_str());
}
