// The terminal that `top` is shown on: keys in, lines out, and its settings put back at the end.
//
// It speaks what a VT100 does, so a serial console will do: the cursor to a line, clear to the end
// of it, reverse video, no colour. Only lines that have changed are sent. No library for terminals:
// those look for a description of the terminal in a file, and an image has none.
//
// Tested by tests/system/top_screen_test.py.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <termios.h>

#include "apps/program/top_screen.h"
#include "platform/result.h"

namespace bedplate {

// Keys of the bytes that a terminal sends: "ESC [ A" is one.
class TopKeys {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  // The next key; nothing: there is none yet. `is_quiet`: no more bytes came for a while, so an ESC
  // that stands alone is the key of this name. What is no key that is known is left out.
  std::optional<int> next(bool is_quiet);
  bool is_empty() const noexcept { return bytes_.empty(); }

 private:
  std::string bytes_;
};

class TopTerminal {
 public:
  // Whether standard input and output are a terminal that can be written on at any place, as TERM
  // says: "dumb" cannot.
  static bool is_usable();

  TopTerminal() = default;
  TopTerminal(const TopTerminal&) = delete;
  TopTerminal& operator=(const TopTerminal&) = delete;
  ~TopTerminal() { close(); }

  // Takes it over: keys come at once and are not echoed. SIGINT, SIGTERM and SIGHUP end a wait from
  // now on. Requires: is_usable(); called once, in a program of one thread.
  Result<void> open();
  // As it was.
  void close() noexcept;

  struct Size {
    size_t columns;
    size_t rows;
  };
  // Now; 80 x 24 where it does not say, as over a serial line, unless COLUMNS and LINES do.
  Size size() const;
  void draw(const TopPicture& picture);

  enum class Event : uint8_t { kKey, kTime, kResized, kEnd };
  struct Input {
    Event event;
    int key = 0;  // kKey
  };
  // Waits for a key, until `deadline_ns` (monotonic) at most. kEnd: a signal, or it is gone.
  Input wait(uint64_t deadline_ns);

 private:
  void write_all(const std::string& text) noexcept;

  bool is_open_ = false;
  bool is_gone_ = false;
  termios before_ = {};
  sigset_t mask_before_ = {};
  TopKeys keys_;
  std::vector<std::string> drawn_;  // as they were sent
};

}  // namespace bedplate
