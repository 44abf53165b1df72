// Components: parts of a program whose log lines have a level of their own, which can change at run
// time.
//
// A component is named after the folder of the source that logs, in the path that the compiler got:
// "apps/boot", "transport/verbs/connect". A source that needs another name defines it before its
// includes: #define BP_LOG_COMPONENT "echo". Each component registers itself: there is no list to
// maintain.
//
// Threads: any; a level holds for lines that begin after it was set.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "platform/version.h"

namespace bedplate {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning", "error".
const char* to_text(LogLevel level) noexcept;
std::optional<LogLevel> parse_log_level(std::string_view text) noexcept;

// A name that can be a template argument; a longer name is truncated.
struct LogComponentName {
  static constexpr size_t kBytesMax = 47;

  consteval LogComponentName(const char* name) noexcept
      : LogComponentName(std::string_view(name)) {}
  explicit consteval LogComponentName(std::string_view name) noexcept {
    for (size_t i = 0; i < name.size() && i < kBytesMax; ++i) text[i] = name[i];
  }
  // The folder of `path`, or, without a folder, its name up to the dot.
  static consteval LogComponentName of_source(std::string_view path) noexcept {
    while (path.starts_with("./")) path.remove_prefix(2);  // some compilers pass it so
    const size_t slash = path.rfind('/');
    return LogComponentName(path.substr(0, slash != path.npos ? slash : path.rfind('.')));
  }

  char text[kBytesMax + 1] = {};
};

class LogComponent {
 public:
  // Registers this component. Requires: this and `name` outlive the process. Threads: call it
  // before other threads start.
  explicit LogComponent(const char* name) noexcept;
  LogComponent(const LogComponent&) = delete;
  LogComponent& operator=(const LogComponent&) = delete;

  const char* name() const noexcept { return name_; }
  // Lines below this level are dropped.
  LogLevel level() const noexcept;

  // All components, sorted by name. next() of the last one returns nullptr. first() returns nullptr
  // if there are no components.
  static const LogComponent* first() noexcept;
  const LogComponent* next() const noexcept { return next_.load(std::memory_order_acquire); }

 private:
  friend uint32_t set_log_level(LogLevel level) noexcept;
  friend uint32_t set_log_level(std::string_view component, LogLevel level) noexcept;

  static constexpr uint8_t kAsAll = 0;

  const char* name_;
  std::atomic<uint8_t> own_level_{kAsAll};  // kAsAll, or kAsAll + 1 + the level
  std::atomic<LogComponent*> next_{nullptr};
};

// The component of this name; all sources of a program with the same name share it.
template <LogComponentName kName>
inline LogComponent log_component(kName.text);

// Sets the level of all components, also of components that have their own level. Default: kInfo.
// Returns the number of components.
uint32_t set_log_level(LogLevel level) noexcept;
// Sets the level of `component` and of the components below it: "transport" includes
// "transport/verbs". Returns the number of components set; 0: none has this name or is below it.
uint32_t set_log_level(std::string_view component, LogLevel level) noexcept;

}  // namespace bedplate
