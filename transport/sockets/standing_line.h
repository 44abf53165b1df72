// A line that always exists, such as a serial line. A LineServer (line_server.h) serves it by
// readv(2) and writev(2), and reopens it after it broke.
//
// Threads: the loop's. No function blocks.
#pragma once

#include "platform/file.h"

namespace bedplate {

class StandingLine {
 public:
  virtual ~StandingLine() = default;

  // Returns a non-blocking descriptor; if it is not open, open() is called again a second later.
  virtual Fd open() noexcept = 0;
  // The line broke with this errno value; 0: it hung up. close() comes next.
  virtual void lost(int error_number) noexcept = 0;
  // Discards sent bytes that nobody reads.
  virtual void drop_output(int fd) noexcept = 0;
  virtual void close(Fd* fd) noexcept = 0;
};

}  // namespace bedplate
