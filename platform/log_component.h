// Parts of a program whose lines in the log have a level of their own, to be changed while it runs.
//
// A part is the folder of the source that logs, as the compiler was given it: "apps/boot",
// "transport/verbs/connect". A source that is to be called otherwise says so before it includes
// anything: #define BP_LOG_COMPONENT "echo". Each that logs registers itself: nobody lists them.
//
// Threads: any; a level holds for lines that begin after it was set.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace bedplate {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning", "error".
const char* to_text(LogLevel level) noexcept;
std::optional<LogLevel> parse_log_level(std::string_view text) noexcept;

// A name that can be a template argument; the end of a longer name is left out.
struct LogComponentName {
  static constexpr size_t kBytesMax = 47;

  consteval LogComponentName(const char* name) noexcept
      : LogComponentName(std::string_view(name)) {}
  explicit consteval LogComponentName(std::string_view name) noexcept {
    for (size_t i = 0; i < name.size() && i < kBytesMax; ++i) text[i] = name[i];
  }
  // The folder of `path`, or, if it has none, its name up to the dot.
  static consteval LogComponentName of_source(std::string_view path) noexcept {
    while (path.starts_with("./")) path.remove_prefix(2);  // as some compilers have it
    const size_t slash = path.rfind('/');
    return LogComponentName(path.substr(0, slash != path.npos ? slash : path.rfind('.')));
  }

  char text[kBytesMax + 1] = {};
};

class LogComponent {
 public:
  // Registers this component. Requires: this and `name` outlive the process. Threads: before others
  // start.
  explicit LogComponent(const char* name) noexcept;
  LogComponent(const LogComponent&) = delete;
  LogComponent& operator=(const LogComponent&) = delete;

  const char* name() const noexcept { return name_; }
  // Lines below this level are dropped.
  LogLevel level() const noexcept;

  // All components, sorted by name. The last one's next() is nullptr, and so is first() if there is
  // none.
  static const LogComponent* first() noexcept;
  const LogComponent* next() const noexcept { return next_.load(std::memory_order_acquire); }

 private:
  friend uint32_t set_log_level(LogLevel level) noexcept;
  friend uint32_t set_log_level(std::string_view component, LogLevel level) noexcept;

  static constexpr uint8_t kAsAll = 0;

  const char* name_;
  std::atomic<uint8_t> own_level_{kAsAll};  // from kAsAll + 1 on
  std::atomic<LogComponent*> next_{nullptr};
};

// The component of this name: all sources of a program that give the name share it.
template <LogComponentName kName>
inline LogComponent log_component(kName.text);

// Sets the level of all components, also of those that have one of their own. Default: kInfo.
// Returns the number of components.
uint32_t set_log_level(LogLevel level) noexcept;
// Sets the level of `component` and those below it: "transport" is also "transport/verbs". Returns
// the number of components set; 0: there is none.
uint32_t set_log_level(std::string_view component, LogLevel level) noexcept;

}  // namespace bedplate
