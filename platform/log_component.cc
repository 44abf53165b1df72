#include "platform/log_component.h"

#include <iterator>

namespace bedplate {
namespace {

constexpr const char* kTexts[] = {"debug", "info", "warning", "error"};

constinit std::atomic<LogLevel> level_of_all{LogLevel::kInfo};
constinit std::atomic<LogComponent*> first_component{nullptr};

bool is_at_or_below(std::string_view name, std::string_view component) noexcept {
  return name.starts_with(component) &&
         (name.size() == component.size() || name[component.size()] == '/');
}

}  // namespace

const char* to_text(LogLevel level) noexcept { return kTexts[static_cast<size_t>(level)]; }

std::optional<LogLevel> parse_log_level(std::string_view text) noexcept {
  for (size_t i = 0; i < std::size(kTexts); ++i) {
    if (text == kTexts[i]) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

LogComponent::LogComponent(const char* name) noexcept : name_(name) {
  std::atomic<LogComponent*>* link = &first_component;
  LogComponent* behind = link->load(std::memory_order_relaxed);
  while (behind != nullptr && std::string_view(behind->name_) < name_) {
    link = &behind->next_;
    behind = link->load(std::memory_order_relaxed);
  }
  next_.store(behind, std::memory_order_relaxed);
  link->store(this, std::memory_order_release);  // pairs with next() and first()
}

LogLevel LogComponent::level() const noexcept {
  const uint8_t own = own_level_.load(std::memory_order_relaxed);
  if (own == kAsAll) return level_of_all.load(std::memory_order_relaxed);
  return static_cast<LogLevel>(own - kAsAll - 1);
}

const LogComponent* LogComponent::first() noexcept {
  return first_component.load(std::memory_order_acquire);
}

uint32_t set_log_level(LogLevel level) noexcept {
  uint32_t count = 0;
  level_of_all.store(level, std::memory_order_relaxed);
  for (LogComponent* each = first_component.load(std::memory_order_acquire); each != nullptr;
       each = each->next_.load(std::memory_order_acquire)) {
    each->own_level_.store(LogComponent::kAsAll, std::memory_order_relaxed);
    ++count;
  }
  return count;
}

uint32_t set_log_level(std::string_view component, LogLevel level) noexcept {
  uint32_t count = 0;
  for (LogComponent* each = first_component.load(std::memory_order_acquire); each != nullptr;
       each = each->next_.load(std::memory_order_acquire)) {
    if (!is_at_or_below(each->name_, component)) continue;
    each->own_level_.store(
        static_cast<uint8_t>(LogComponent::kAsAll + 1 + static_cast<uint8_t>(level)),
        std::memory_order_relaxed);
    ++count;
  }
  return count;
}

}  // namespace bedplate
