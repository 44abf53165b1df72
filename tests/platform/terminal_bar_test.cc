// The progress bar on a pseudoterminal: its width, and the log's lines above it.
#include "platform/terminal_bar.h"

#include <string>

#include "platform/log.h"
#include "tests/support/stderr_capture.h"
#include "tests/support/stderr_terminal.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using test::StderrTerminal;

namespace {

const std::string kWipe = kWipeLine;

// The bar as the terminal shows it: the text after the wipe sequence.
std::string shown(StderrTerminal& terminal) {
  const std::string text = terminal.take();
  return text.starts_with(kWipe) ? text.substr(kWipe.size()) : "no wipe: " + text;
}

}  // namespace

TEST_GROUP(TerminalBar){};

TEST(TerminalBar, OnlyATerminalThatCanWipeALineHasOne) {
  {
    const StderrTerminal terminal(80);
    CHECK(may_have_bar());
    CHECK_EQUAL(0, unsetenv("TERM"));
    CHECK_FALSE(may_have_bar());
  }
  {
    const StderrTerminal terminal(80, "dumb");
    CHECK_FALSE(may_have_bar());
  }
  const StderrTerminal terminal(80, "");
  CHECK_FALSE(may_have_bar());
  const test::StderrCapture file;
  CHECK_EQUAL(0, setenv("TERM", "xterm", 1));
  CHECK_FALSE(may_have_bar());
}

TEST(TerminalBar, CellsTakeTheRoomThatTheTextLeaves) {
  StderrTerminal terminal(80);
  announce_bar();
  STRCMP_EQUAL("", terminal.take().c_str());
  draw_bar("12 left", 6, 24);
  STRCMP_EQUAL("######..................  12 left", shown(terminal).c_str());
  draw_bar("12 left", 24, 24);
  STRCMP_EQUAL("########################  12 left", shown(terminal).c_str());
  draw_bar("for 3 s", 0, 0);
  STRCMP_EQUAL("for 3 s", shown(terminal).c_str());
  withdraw_bar(true);
  STRCMP_EQUAL("", shown(terminal).c_str());
}

// A bar that wrapped around would leave a line behind at each drawing.
TEST(TerminalBar, NoTerminalIsTooNarrow) {
  StderrTerminal terminal(80);
  announce_bar();
  terminal.resize(28);
  draw_bar("12345 left", 1, 2);
  STRCMP_EQUAL("#######........  12345 left", shown(terminal).c_str());
  terminal.resize(20);
  draw_bar("12345 left", 1, 2);
  STRCMP_EQUAL("12345 left", shown(terminal).c_str());
  terminal.resize(6);
  draw_bar("12345 left", 1, 2);
  STRCMP_EQUAL("12345", shown(terminal).c_str());
  terminal.resize(1);
  draw_bar("12345 left", 1, 2);
  STRCMP_EQUAL("", shown(terminal).c_str());
  terminal.resize(0);  // the terminal reports no width
  draw_bar(std::string(200, 'x').c_str(), 1, 2);
  LONGS_EQUAL(79, shown(terminal).size());
  terminal.resize(60000);
  draw_bar(std::string(400, 'x').c_str(), 1, 2);
  LONGS_EQUAL(249, shown(terminal).size());
  withdraw_bar(true);
}

TEST(TerminalBar, ALineOfTheLogTakesItsPlaceAndItIsDrawnAnewBelow) {
  StderrTerminal terminal(80);
  BP_LOG_INFO("before");
  STRCMP_EQUAL("bedplate: before\n", terminal.take().c_str());
  announce_bar();
  draw_bar("half", 1, 2);
  BP_LOG_INFO("meanwhile");
  draw_bar("whole", 2, 2);
  STRCMP_EQUAL((kWipe + "############............  half" + kWipe + "bedplate: meanwhile\n" + kWipe +
                "########################  whole")
                   .c_str(),
               terminal.take().c_str());
  const std::string longer(1500, 'x');
  write_last_line((longer + "\n").c_str(), longer.size() + 1);
  STRCMP_EQUAL((kWipe + longer + "\n").c_str(), terminal.take().c_str());
  withdraw_bar(true);
  BP_LOG_INFO("after");
  STRCMP_EQUAL((kWipe + "bedplate: after\n").c_str(), terminal.take().c_str());
}
