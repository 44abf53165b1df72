// A serial line, as a descriptor that passes bytes unchanged: a UART, a USB adapter or a
// pseudoterminal.
//
// Threads: any. Nothing is allocated.
#pragma once

#include <cstdint>

#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

inline constexpr uint32_t kSerialBaud = 115200;  // the rate of nearly every line
inline constexpr uint32_t kSerialBaudMin = 9600;
inline constexpr uint32_t kSerialBaudMax = 3'000'000;

// Whether lines can be opened at `baud`, and a list of these rates, for people. The lowest is 9600:
// a request over a line waits for 10 s at most, and a line of text may have 8 KiB.
bool is_serial_baud(uint64_t baud) noexcept;
extern const char kSerialBauds[];

// Opens the line at `path` for this process alone: raw, 8 bits, no parity, one stop bit, no echo,
// no flow control, no modem lines (CLOCAL), and not as the controlling terminal (O_NOCTTY). It is
// non-blocking from the open on, and closed on exec. Earlier input is discarded. Reads and writes
// return EAGAIN if they would block, and 0 or an error once the line is gone.
// Requires: is_serial_baud(baud). Errors (kSystem), each with its cure: no such file, no terminal,
// no port behind it, another process has it (flock), or the port does not support the rate.
Result<Fd> open_serial_line(const char* path, uint32_t baud) noexcept;
// Checks if the line could be opened, as far as possible without changing its settings; a modem on
// the line sees DTR rise. Errors: the same.
Result<void> check_serial_line(const char* path) noexcept;

// Discards output that was written and not yet sent.
void drop_serial_output(int line) noexcept;
// Closes the line at once. Discards unsent output, because close(2) would wait for it.
void close_serial_line(Fd* line) noexcept;

}  // namespace bedplate
