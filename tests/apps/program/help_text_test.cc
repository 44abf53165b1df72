#include "apps/program/help_text.h"

#include <string>

#include "apps/c_interface/bedplate_version.h"
#include "platform/build_id.h"
#include "platform/product.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

const Command& command_of(const std::string& name) {
  for (const Command& command : commands()) {
    if (command.name == name) return command;
  }
  FAIL("there is no such command");
  return commands()[0];
}

}  // namespace

TEST_GROUP(HelpText) {
  const bedplate::Product before = product();

  void teardown() override { set_product(before); }
};

TEST(HelpText, OfTheProgramHasALineForEachCommand) {
  const std::string text = program_help();
  STRCMP_CONTAINS(
      "usage: bedplate COMMAND [OPTIONS]\n\n  run      CONFIG         boot the appliance",
      text.c_str());
  for (const Command& command : commands()) {
    STRCMP_CONTAINS(("\n  " + std::string(command.name) + " ").c_str(), text.c_str());
  }
}

TEST(HelpText, OfACommandHasItsUsageAndItsOptions) {
  const std::string text = command_help(command_of("keys"));
  STRCMP_CONTAINS("usage: bedplate keys [TABLE] [OPTION...]\n\nkeys: print the keys of a",
                  text.c_str());
  STRCMP_CONTAINS("\n  --json               print JSON\n", text.c_str());
  STRCMP_CONTAINS("usage: bedplate run CONFIG\n\n", command_help(command_of("run")).c_str());
}

TEST(HelpText, OfAProductSpeaksOfIt) {
  set_product({.name = "logd"});
  std::string text = program_help();
  for (const Command& command : commands()) text += command_help(command);
  CHECK(text.find("bedplate") == std::string::npos);
  CHECK(text.find("PROGRAM") == std::string::npos);
  STRCMP_CONTAINS("`logd COMMAND --help` says more", text.c_str());
  STRCMP_CONTAINS("(default /run/logd)\n", text.c_str());
  STRCMP_CONTAINS("/etc/sysctl.d/90-logd.conf", text.c_str());
}

TEST(HelpText, OfTheVersionHasThatOfTheProductAndOfBedplate) {
  const std::string build =
      std::string("build ") + build_id().text + ", interface " BP_TEXT_OF(BP_INTERFACE) ")\n";
  const std::string runtime = std::string("Bedplate ") + kBedplateVersion + ", " + build;
  set_product({.version = "0.1.0"});
  STRCMP_EQUAL(("bedplate 0.1.0 (" + build).c_str(), version_text().c_str());
  set_product({.name = "logd", .version = "2.1"});
  STRCMP_EQUAL(("logd 2.1 (" + runtime).c_str(), version_text().c_str());
  set_product({.name = "logd"});
  STRCMP_EQUAL(("logd (" + runtime).c_str(), version_text().c_str());
}
