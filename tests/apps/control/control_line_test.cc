// The serial line of [control] is opened again after it breaks.
#include "apps/control/control_line.h"

#include <cerrno>
#include <memory>
#include <string>

#include <pty.h>
#include <unistd.h>

#include "tests/support/fake_root.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(ControlLine) {
  std::unique_ptr<test::FakeRoot> root;
  std::string path;  // of a symbolic link to the line, as udev makes them
  Fd master;
  Counter losses;

  void setup() override {
    root = std::make_unique<test::FakeRoot>();
    path = root->path() + "/line";
    plug();
  }
  void teardown() override {
    master.close();
    root.reset();
  }
  void plug() {
    int near = -1, far = -1;
    char name[64];
    LONGS_EQUAL(0, openpty(&near, &far, name, nullptr, nullptr));
    master = Fd(near);
    ::close(far);
    LONGS_EQUAL(0, symlink(name, path.c_str()));
  }
  void unplug() {
    master.close();
    LONGS_EQUAL(0, unlink(path.c_str()));
  }
};

TEST(ControlLine, IsOpenedAgain) {
  const test::StderrCapture log;
  ControlLine line;
  line.count_in(&losses);
  CHECK(line.begin(path, kSerialBaud).ok());
  Fd fd = line.open();
  CHECK(fd.is_open());
  for (int round = 0; round < 3; ++round) {
    unplug();
    line.lost(round == 0 ? EIO : 0);
    line.close(&fd);
    CHECK_FALSE(line.open().is_open());
    CHECK_FALSE(line.open().is_open());
    plug();
    fd = line.open();
    CHECK(fd.is_open());
    LONGS_EQUAL(2, write(master.number(), "a\n", 2));
  }
  LONGS_EQUAL(3, losses.read());
  line.close(&fd);
}

TEST(ControlLine, TellsTheLogOnce) {
  test::StderrCapture log;
  ControlLine line;
  line.count_in(&losses);
  CHECK(line.begin(path, kSerialBaud).ok());
  Fd fd = line.open();
  unplug();
  line.lost(EIO);
  line.close(&fd);
  for (int i = 0; i < 10; ++i) CHECK_FALSE(line.open().is_open());
  plug();
  fd = line.open();
  line.close(&fd);
  const std::string wanted = "bedplate: control: using the serial line " + path +
                             ": Input/output error; it is reopened once a second, until that "
                             "succeeds\n"
                             "bedplate: opening the serial line " +
                             path +
                             ": No such file or directory; name one that exists: ls /dev/ttyS* "
                             "/dev/ttyUSB* /dev/ttyACM*\n"
                             "bedplate: control: the serial line " +
                             path + " is available again\n";
  STRCMP_EQUAL(wanted.c_str(), log.text().c_str());
}

TEST(ControlLine, OneThatComesAndGoesDoesNotFillTheLog) {
  test::StderrCapture log;
  ControlLine line;
  line.count_in(&losses);
  CHECK(line.begin(path, kSerialBaud).ok());
  for (int i = 0; i < 100; ++i) {
    Fd fd = line.open();
    line.lost(0);
    line.close(&fd);
  }
  LONGS_EQUAL(100, losses.read());
  const std::string text = log.text();
  CHECK(text.size() > 100 && text.size() < 4 * 256);
  // The last message is the current state.
  CHECK(text.ends_with("is available again\n"));
}

TEST(ControlLine, DoesNotBeginWithoutIt) {
  ControlLine line;
  const auto begun = line.begin(root->path() + "/none", kSerialBaud);
  CHECK_FALSE(begun.ok());
  STRCMP_EQUAL("No such file or directory", begun.error().answer);
}
