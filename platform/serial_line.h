// A serial line: a UART, a USB adapter, or a pseudoterminal, as a descriptor that bytes go through
// as they are.
//
// Threads: any. Nothing is allocated.
#pragma once

#include <cstdint>

#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

inline constexpr uint32_t kSerialBaud = 115200;  // what nearly every line has
inline constexpr uint32_t kSerialBaudMin = 9600;
inline constexpr uint32_t kSerialBaudMax = 3'000'000;

// Whether lines can be opened at `baud`, and a list of all such rates, for people. None is slower
// than 9600: a request over a line waits for 10 s at most, and a line of text may have 8 KiB.
bool is_serial_baud(uint64_t baud) noexcept;
extern const char kSerialBauds[];

// Opens the line at `path` for this process alone: raw, 8 bits, no parity, one stop bit, no echo,
// no flow control, no modem lines (CLOCAL), and not as the controlling terminal (O_NOCTTY). It does
// not block, now or later, and is closed on exec. Input that came before is thrown away. Calls on
// it say EAGAIN if there is nothing, and 0 or an error once the line is gone.
// Requires: is_serial_baud(baud). Errors (kSystem), each with what to do: no such file, no
// terminal, no port behind it, another process has it (flock), or it cannot be that fast.
Result<Fd> open_serial_line(const char* path, uint32_t baud) noexcept;
// Checks if the line could be opened, as far as that shows without setting it; a modem on the line
// sees DTR rise. Errors: the same.
Result<void> check_serial_line(const char* path) noexcept;

// Throws away output that was written and has not left yet.
void drop_serial_output(int line) noexcept;
// Closes it at once: close(2) would wait for unsent output, so that is thrown away.
void close_serial_line(Fd* line) noexcept;

}  // namespace bedplate
