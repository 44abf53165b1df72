// The terminal of `top`: keys in, lines out, and its settings restored at the end.
//
// It uses VT100 sequences, so a serial console is enough: they move the cursor to a line, clear the
// line to its end, and set reverse video. It uses no colour. It sends only lines that have changed.
// It uses no terminal library: such a library reads a description of the terminal from a file, and
// an image has none.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <termios.h>

#include "apps/program/top/top_screen.h"
#include "platform/result.h"

namespace bedplate {

// Decodes the bytes that a terminal sends into keys: "ESC [ A" is one key.
class TopKeys {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  // The next key; nothing: none is complete. `is_quiet`: no more bytes came for a while, so a
  // single ESC is the Esc key. Unknown keys are skipped.
  std::optional<int> next(bool is_quiet);
  bool is_empty() const noexcept { return bytes_.empty(); }

 private:
  std::string bytes_;
};

class TopTerminal {
 public:
  // Whether standard input and output are a terminal with a movable cursor, according to TERM:
  // "dumb" has none.
  static bool is_usable();

  TopTerminal() = default;
  TopTerminal(const TopTerminal&) = delete;
  TopTerminal& operator=(const TopTerminal&) = delete;
  ~TopTerminal() { close(); }

  // Takes the terminal over: keys are read at once and not echoed. From now on SIGINT, SIGTERM and
  // SIGHUP end a wait: they are blocked outside of wait(). Errors: the system's. Requires:
  // is_usable(); called once, in a program of one thread.
  Result<void> open();
  // Restores the terminal; the signals stay blocked.
  void close() noexcept;

  struct Size {
    size_t columns;
    size_t rows;
  };
  // The present size. A terminal on a serial line does not report it: then the size is COLUMNS and
  // LINES, or else 80 x 24.
  Size size() const;
  void draw(const TopPicture& picture);

  enum class Event : uint8_t { kKey, kTime, kResized, kEnd };
  struct Input {
    Event event;
    int key = 0;  // kKey
  };
  // Waits for a key, at most until `deadline_ns` (monotonic), or 100 ms longer in the middle of a
  // key. kTime: no key came. kResized: size() may differ. kEnd: a signal came, or the terminal is
  // gone. Requires: open() succeeded.
  Input wait(uint64_t deadline_ns);

 private:
  void write_all(const std::string& text) noexcept;

  bool is_open_ = false;
  bool is_gone_ = false;
  termios before_ = {};
  sigset_t mask_before_ = {};
  TopKeys keys_;
  std::vector<std::string> drawn_;  // the lines on the terminal now
};

}  // namespace bedplate
