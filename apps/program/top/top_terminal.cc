#include "apps/program/top/top_terminal.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/environment.h"
#include "platform/text_words.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// The longest time from ESC to the rest of its key, even over a slow line.
constexpr uint64_t kEscapeNs = 100 * kNsPerMs;
constexpr size_t kLongestKey = 8;

// Turns line wrapping off, and hides the cursor on terminals that can.
constexpr const char* kBegin = "\033[?7l\033[?25l\033[H\033[2J";
constexpr const char* kEnd = "\033[m\033[H\033[2J\033[?25h\033[?7h";

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
volatile sig_atomic_t g_must_end = 0;
volatile sig_atomic_t g_is_resized = 0;

void note_signal(int number) {
  if (number == SIGWINCH) {
    g_is_resized = 1;
  } else {
    g_must_end = 1;
  }
}

struct KeySequence {
  std::string_view bytes;  // after the ESC
  int key;
};
constexpr KeySequence kSequences[] = {
    {"[A", kTopUp},      {"[B", kTopDown},      {"[C", kTopRight}, {"[D", kTopLeft},
    {"OA", kTopUp},      {"OB", kTopDown},      {"OC", kTopRight}, {"OD", kTopLeft},
    {"[5~", kTopPageUp}, {"[6~", kTopPageDown}, {"[H", kTopHome},  {"[F", kTopEnd},
    {"OH", kTopHome},    {"OF", kTopEnd},       {"[1~", kTopHome}, {"[4~", kTopEnd},
};

size_t number_of_environment(const char* name, size_t otherwise) {
  const char* text = environment_text(name);
  size_t number = 0;
  const bool is_number = text != nullptr && parse_number(text, &number);
  return is_number && number > 0 && number < 10'000 ? number : otherwise;
}

}  // namespace

std::optional<int> TopKeys::next(bool is_quiet) {
  while (!bytes_.empty()) {
    const unsigned char first = static_cast<unsigned char>(bytes_[0]);
    if (first != 27) {
      bytes_.erase(0, 1);
      return first;
    }
    const std::string_view rest = std::string_view(bytes_).substr(1);
    if (rest.empty() || (rest[0] != '[' && rest[0] != 'O')) {
      if (rest.empty() && !is_quiet) return {};
      bytes_.erase(0, 1);
      return first;
    }
    for (const KeySequence& sequence : kSequences) {
      if (!rest.starts_with(sequence.bytes)) continue;
      bytes_.erase(0, 1 + sequence.bytes.size());
      return sequence.key;
    }
    // An unknown sequence ends with a letter or "~".
    const size_t end =
        rest.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz~", 1);
    if (end == std::string_view::npos && rest.size() < kLongestKey && !is_quiet) return {};
    bytes_.erase(0, end == std::string_view::npos ? bytes_.size() : end + 2);
  }
  return {};
}

bool TopTerminal::is_usable() {
  const char* name = environment_text("TERM");
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && name != nullptr &&
         *name != '\0' && std::string_view(name) != "dumb";
}

Result<void> TopTerminal::open() {
  BP_ASSERT(!is_open_);
  if (tcgetattr(STDIN_FILENO, &before_) != 0) {
    return error_from_errno("taking over the terminal: tcgetattr")
        .set_cure("use --once, or TERM=dumb for plain lines");
  }
  termios raw = before_;
  cfmakeraw(&raw);
  if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) != 0) {
    return error_from_errno("taking over the terminal: tcsetattr")
        .set_cure("start it in the foreground, or use --once");
  }
  is_open_ = true;
  // The signals are unblocked only in ppoll, so none is missed.
  sigset_t ours;
  sigemptyset(&ours);
  for (const int number : kSignals) {
    sigaddset(&ours, number);
    struct sigaction action {};
    action.sa_handler = &note_signal;
    sigaction(number, &action, nullptr);
  }
  sigprocmask(SIG_BLOCK, &ours, &mask_before_);
  write_all(kBegin);
  return {};
}

void TopTerminal::close() noexcept {
  if (!is_open_) return;
  is_open_ = false;
  write_all(kEnd);
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
}

TopTerminal::Size TopTerminal::size() const {
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 0) {
    return {window.ws_col, window.ws_row};
  }
  return {number_of_environment("COLUMNS", 80), number_of_environment("LINES", 24)};
}

void TopTerminal::write_all(const std::string& text) noexcept {
  size_t done = 0;
  while (done < text.size() && !is_gone_) {
    const ssize_t wrote = write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (wrote > 0) done += static_cast<size_t>(wrote);
    if (wrote < 0 && errno != EINTR && errno != EAGAIN) is_gone_ = true;
  }
}

void TopTerminal::draw(const TopPicture& picture) {
  if (drawn_.size() != picture.lines.size()) {  // another size, or the first picture
    drawn_.assign(picture.lines.size(), "");
    write_all("\033[2J");
  }
  std::string text;
  for (size_t i = 0; i < picture.lines.size(); ++i) {
    std::string line = picture.lines[i];
    for (const TopMark& mark : picture.marks) {
      if (mark.line != i) continue;
      BP_ASSERT(mark.begin <= mark.end && mark.end <= line.size());
      line.insert(mark.end, "\033[m");
      line.insert(mark.begin, "\033[7m");
    }
    if (line == drawn_[i]) continue;
    // Clears the line first: clearing after a full line would erase its last character.
    text += "\033[" + std::to_string(i + 1) + ";1H\033[K" + line;
    drawn_[i] = std::move(line);
  }
  write_all(text);
}

TopTerminal::Input TopTerminal::wait(uint64_t deadline_ns) {
  BP_ASSERT(is_open_);  // signals are blocked except in ppoll
  bool is_quiet = false;
  // Polls at least once: otherwise no key would be read if a look or drawing takes longer than the
  // interval.
  bool has_listened = false;
  while (true) {
    if (g_must_end != 0 || is_gone_) return {Event::kEnd};
    if (g_is_resized != 0) {
      g_is_resized = 0;
      drawn_.clear();
      return {Event::kResized};
    }
    if (const auto key = keys_.next(is_quiet)) return {Event::kKey, *key};
    const uint64_t now_ns = monotonic_ns();
    if (now_ns >= deadline_ns && keys_.is_empty() && has_listened) return {Event::kTime};
    uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    if (!keys_.is_empty()) left_ns = kEscapeNs;
    timespec time = {};
    time.tv_sec = static_cast<time_t>(left_ns / kNsPerSecond);
    time.tv_nsec = static_cast<long>(left_ns % kNsPerSecond);
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    const int count = ppoll(&input, 1, &time, &mask_before_);
    is_quiet = count == 0;
    has_listened = true;
    if (count <= 0) continue;
    char bytes[64];
    const ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return {Event::kEnd};
    if (got > 0) keys_.add({bytes, static_cast<size_t>(got)});
  }
}

}  // namespace bedplate
