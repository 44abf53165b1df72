// A pseudoterminal that temporarily replaces standard error.
#pragma once

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "platform/file.h"

namespace bedplate::test {

class StderrTerminal {
 public:
  // `kind`: the value of TERM.
  explicit StderrTerminal(unsigned short columns, const char* kind = "xterm")
      : before_(dup(STDERR_FILENO)) {
    int reader = -1;
    int writer = -1;
    termios plain = {};
    winsize size = {};
    size.ws_col = columns;
    if (openpty(&reader, &writer, nullptr, &plain, &size) != 0) std::abort();
    reader_ = Fd(reader);
    dup2(writer, STDERR_FILENO);
    close(writer);
    setenv("TERM", kind, 1);
  }
  StderrTerminal(const StderrTerminal&) = delete;
  StderrTerminal& operator=(const StderrTerminal&) = delete;
  ~StderrTerminal() { dup2(before_.number(), STDERR_FILENO); }

  void resize(unsigned short columns) {
    winsize size = {};
    size.ws_col = columns;
    ioctl(reader_.number(), TIOCSWINSZ, &size);
  }
  // All text that was written since the last call. A terminal has it at once.
  std::string take() {
    std::string text;
    char part[4096];
    for (pollfd some = {reader_.number(), POLLIN, 0}; poll(&some, 1, 0) == 1;) {
      const ssize_t got = read(reader_.number(), part, sizeof part);
      if (got <= 0) break;
      text.append(part, static_cast<size_t>(got));
    }
    return text;
  }

 private:
  Fd before_;
  Fd reader_;
};

}  // namespace bedplate::test
