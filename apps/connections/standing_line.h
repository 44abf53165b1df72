// A line that is always there, a serial one say: a ConnectionThread serves it beside the
// connections that come, by read(2) and write(2), and has it opened again when it broke.
//
// Threads: that of the connections. None of these blocks.
#pragma once

#include "platform/file.h"

namespace bedplate {

class StandingLine {
 public:
  virtual ~StandingLine() = default;

  // Returns a descriptor that does not block; if it is not open, open() is called again a second
  // later.
  virtual Fd open() noexcept = 0;
  // The line broke, by an errno value; 0: it was hung up. It is closed next.
  virtual void lost(int error_number) noexcept = 0;
  // Throws away what was sent, as nobody takes it.
  virtual void drop_output(int fd) noexcept = 0;
  virtual void close(Fd* fd) noexcept = 0;
};

}  // namespace bedplate
