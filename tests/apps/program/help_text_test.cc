#include "apps/program/help_text.h"

#include <string>

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

TEST_GROUP(HelpText){};

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
