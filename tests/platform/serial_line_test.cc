// Serial lines, simulated by pseudoterminals: how they are opened, and which files are refused.
#include "platform/serial_line.h"

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "tests/support/death_test.h"
#include "tests/support/fake_root.h"
#include "tests/support/patience.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(SerialLine) {
  Fd master;
  std::string path;

  void setup() override {
    int near = -1, far = -1;
    char name[64];
    LONGS_EQUAL(0, openpty(&near, &far, name, nullptr, nullptr));
    master = Fd(near);
    ::close(far);
    path = name;
  }

  std::string refusal(const std::string& of) {
    const auto opened = open_serial_line(of.c_str(), kSerialBaud);
    if (opened.ok()) return "opened";
    char text[1024];
    return format_error(opened.error(), text, sizeof text);
  }
  std::string read_from(const Fd& fd, size_t bytes) {
    std::string text(bytes, ' ');
    for (size_t got = 0; got < bytes;) {
      if (!test::has_input(fd.number())) return "nothing";
      const ssize_t more = read(fd.number(), text.data() + got, bytes - got);
      if (more > 0) got += static_cast<size_t>(more);
      if (more <= 0 && errno != EAGAIN) return "an error";
    }
    return text;
  }
};

TEST(SerialLine, BytesGoThroughAsTheyAre) {
  auto opened = open_serial_line(path.c_str(), 9600);
  CHECK(opened.ok());
  const Fd& line = opened.value();
  // Bytes that a terminal driver interprets by default: interrupt, end of file, flow control, erase
  // and line ends. By default it also echoes all bytes.
  const std::string all("\x03\x04\x11\x13\x1a\x7f\r\n\x00\xff|", 11);
  LONGS_EQUAL(all.size(), write(master.number(), all.data(), all.size()));
  CHECK(all == read_from(line, all.size()));
  LONGS_EQUAL(all.size(), write(line.number(), all.data(), all.size()));
  CHECK(all == read_from(master, all.size()));
  char byte = 0;
  LONGS_EQUAL(-1, read(line.number(), &byte, 1));
  LONGS_EQUAL(EAGAIN, errno);
  termios modes = {};
  LONGS_EQUAL(0, tcgetattr(line.number(), &modes));
  LONGS_EQUAL(B9600, cfgetospeed(&modes));
  CHECK((modes.c_cflag & CLOCAL) != 0);
  CHECK((fcntl(line.number(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST(SerialLine, IsNotTheControllingTerminal) {
  LONGS_EQUAL(0, test::exit_code_of([this] {
                if (setsid() < 0) return 2;  // the child leads a session without a terminal
                auto opened = open_serial_line(path.c_str(), kSerialBaud);
                if (!opened.ok()) return 3;
                return open("/dev/tty", O_RDWR | O_NOCTTY) < 0 ? 0 : 4;
              }));
}

TEST(SerialLine, IsForOneProcess) {
  auto opened = open_serial_line(path.c_str(), kSerialBaud);
  CHECK(opened.ok());
  const std::string wanted = "opening the serial line " + path +
                             ": another process uses it; end that process: fuser -v " + path;
  STRCMP_EQUAL(wanted.c_str(), refusal(path).c_str());
  CHECK_FALSE(check_serial_line(path.c_str()).ok());
  Fd line = opened.take();
  close_serial_line(&line);
  CHECK(check_serial_line(path.c_str()).ok());
  STRCMP_EQUAL("opened", refusal(path).c_str());
  // The closed line is no longer exclusive: a user without root's rights can open it again.
  const Fd later(::open(path.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  int excludes = 1;
  LONGS_EQUAL(0, ioctl(later.number(), TIOCGEXCL, &excludes));
  LONGS_EQUAL(0, excludes);
}

TEST(SerialLine, SaysWhatItIsNot) {
  test::FakeRoot root;
  root.write("/file", "text");
  const std::string none = root.path() + "/none";
  STRCMP_EQUAL(
      ("opening the serial line " + none +
       ": No such file or directory; name one that exists: ls /dev/ttyS* /dev/ttyUSB* /dev/ttyACM*")
          .c_str(),
      refusal(none).c_str());
  for (const std::string& other : {root.path() + "/file", root.path(), std::string("/dev/null")}) {
    STRCMP_EQUAL(("opening the serial line " + other +
                  ": it is not a serial line; name one that is: "
                  "ls /dev/ttyS* /dev/ttyUSB* /dev/ttyACM*")
                     .c_str(),
                 refusal(other).c_str());
    CHECK_FALSE(check_serial_line(other.c_str()).ok());
  }
}

// A read from a disconnected line returns 0 or EIO. EAGAIN would mean that no data has arrived.
TEST(SerialLine, AHangupIsNoSilence) {
  auto opened = open_serial_line(path.c_str(), kSerialBaud);
  CHECK(opened.ok());
  master.close();
  char byte = 0;
  const ssize_t got = read(opened.value().number(), &byte, 1);
  CHECK(got == 0 || (got < 0 && errno == EIO));
  LONGS_EQUAL(-1, write(opened.value().number(), &byte, 1));
  LONGS_EQUAL(EIO, errno);
}

TEST(SerialLine, WhatWasNotSentIsThrownAway) {
  auto opened = open_serial_line(path.c_str(), kSerialBaud);
  CHECK(opened.ok());
  const std::string block(4096, 'x');
  while (write(opened.value().number(), block.data(), block.size()) > 0) {
  }
  LONGS_EQUAL(EAGAIN, errno);
  drop_serial_output(opened.value().number());
  CHECK(write(opened.value().number(), block.data(), block.size()) > 0);
}

TEST(SerialLine, KnowsTheUsualSpeeds) {
  for (const uint32_t baud : {9600U, 115200U, 921600U, 3000000U}) CHECK(is_serial_baud(baud));
  for (const uint32_t baud : {0U, 1U, 300U, 115201U, 4000000U}) CHECK_FALSE(is_serial_baud(baud));
  STRCMP_CONTAINS(std::to_string(kSerialBaud).c_str(), kSerialBauds);
  CHECK(is_serial_baud(kSerialBaudMin));
  CHECK(is_serial_baud(kSerialBaudMax));
}
