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

// Whether lines can be opened at `baud`. At 9600, the lowest rate, a line of text of 8 KiB takes
// 8.5 s, and a request over a line may take 10 s.
bool is_serial_baud(uint64_t baud) noexcept;
// A list of these rates, for messages.
extern const char kSerialBauds[];

// Opens the line at `path` for this process alone: raw, 8 bits, no parity, one stop bit, no echo,
// no flow control, no modem lines (CLOCAL), and not as the controlling terminal (O_NOCTTY). It is
// non-blocking from the open on, and closed on exec. Earlier input is discarded. Reads and writes
// fail with EAGAIN if they would block. Once the line is gone, they return 0 or another error.
// Requires: is_serial_baud(baud). Errors (kSystem), each with its cure: no such file, no right to
// open it, no terminal, no port behind it, another process has it (flock), or the port does not
// support the rate.
Result<Fd> open_serial_line(const char* path, uint32_t baud) noexcept;
// Checks if the line can be opened, without changing its settings: it does not check the rate. A
// modem on the line sees DTR rise. Errors: the same, except for the rate.
Result<void> check_serial_line(const char* path) noexcept;

// Discards output that was written and not yet sent.
void drop_serial_output(int line) noexcept;
// Closes the line at once, if it is open. Discards unsent output, because close(2) would wait for
// it, and unread input.
void close_serial_line(Fd* line) noexcept;

}  // namespace bedplate
