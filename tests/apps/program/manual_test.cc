#include "apps/program/manual.h"

#include "apps/program/commands.h"
#include "platform/product.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Manual) {
  const Product before = product();

  void setup() override {
    set_product({.name = "log-d", .version = "2.1", .summary = "it's a store of logs"});
  }
  void teardown() override { set_product(before); }
};

TEST(Manual, OfTheProgramSpeaksOfTheProductAndOfEachCommand) {
  const std::string page = program_manual();
  STRCMP_CONTAINS(".TH LOG-D 1 \"\" \"log-d 2.1\" \"User Commands\"\n"
                  ".SH NAME\nlog\\-d \\- it\\(aqs a store of logs\n",
                  page.c_str());
  for (const Command& command : commands()) {
    STRCMP_CONTAINS((std::string(".nf\nlog\\-d ") + command.name).c_str(), page.c_str());
  }
  STRCMP_CONTAINS(".SH KEYS\n.nf\nlog\\-d keys [TABLE] [OPTION...]\n.fi\n.PP\n.nf\nkeys: ",
                  page.c_str());
  STRCMP_CONTAINS(".I /run/log\\-d/NAME.stats\n", page.c_str());
  STRCMP_CONTAINS(".I /etc/log\\-d/NAME.toml\nThe configuration that the unit "
                  "\\fBlog\\-d@NAME.service\\fR runs.\n",
                  page.c_str());
  STRCMP_CONTAINS(".BR log\\-d.toml (5)\n", page.c_str());
}

TEST(Manual, OfTheKeysHasEachTableWithItsKeys) {
  const std::string page = keys_manual({
      {"log.path", "path", "required", "begins with /",
       "Where `the log` lies ([Logs](logs.md#a))."},
      {"log.copies", "integer", "1", "1..4", "It's how many. [[log]] has one."},
      {"log.tenant.name", "name", "required", "", ".conf is no name; \\ is one."},
  });
  STRCMP_EQUAL(
      ".TH LOG-D.TOML 5 \"\" \"log-d 2.1\" \"File Formats\"\n"
      ".SH NAME\nlog\\-d.toml \\- the configuration of an appliance\n"
      ".SH DESCRIPTION\nOne file in TOML 1.0 configures an appliance. It is read strictly: "
      "an unknown key, a wrong type or a value out of range stops the boot.\n"
      "\\fBlog\\-d check\\fR \\fIFILE\\fR prints all its errors.\n"
      ".SH [log]\n"
      ".TP\n\\fBpath\\fR (path; required)\nWhere \\fBthe log\\fR lies (Logs).\n"
      "Range: begins with /.\n"
      ".TP\n\\fBcopies\\fR (integer; 1)\nIt\\(aqs how many. [[log]] has one.\n"
      "Range: 1..4.\n"
      ".SH [log.tenant]\n"
      ".TP\n\\fBname\\fR (name; required)\n\\&.conf is no name; \\e is one.\n"
      ".SH SEE ALSO\n.BR log\\-d (1)\n",
      page.c_str());
}
