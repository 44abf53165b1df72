#include "apps/program/unit_file.h"

#include "platform/product.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(UnitFile) {
  const Product before = product();

  void teardown() override { set_product(before); }
};

TEST(UnitFile, RunsTheProgramAndSpeaksOfTheProduct) {
  set_product({.name = "logd"});
  const std::string unit = unit_file("/opt/log/bin/logd");
  STRCMP_CONTAINS("# logd@NAME runs the appliance of /etc/logd/NAME.toml.\n", unit.c_str());
  STRCMP_CONTAINS("\nDocumentation=man:logd(1) man:logd.toml(5)\n", unit.c_str());
  STRCMP_CONTAINS("\nConditionPathExists=/etc/logd/%i.toml\n", unit.c_str());
  STRCMP_CONTAINS("\nExecStart=/opt/log/bin/logd run /etc/logd/%i.toml\n", unit.c_str());
  CHECK(unit.find("edplate") == std::string::npos);
  CHECK(unit.find("PROGRAM") == std::string::npos);
}
