// The name of an owner ("heap", "volume:ram0"): a short text that needs no allocation, because
// owners exist before the heap and are shown after a crash.
#pragma once

#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace bedplate {

struct OwnerName {
  char text[64] = {};

  OwnerName() noexcept = default;
  // Cut off at 63 bytes.
  OwnerName(std::string_view name) noexcept {  // NOLINT: names convert
    const size_t bytes = name.size() < sizeof text ? name.size() : sizeof text - 1;
    std::memcpy(text, name.data(), bytes);
  }
  OwnerName(const char* name) noexcept : OwnerName(std::string_view(name)) {}  // NOLINT

  // "kind:name", cut off at 63 bytes.
  OwnerName(std::string_view kind, std::string_view name) noexcept {
    std::snprintf(text, sizeof text, "%.*s:%.*s", static_cast<int>(kind.size()), kind.data(),
                  static_cast<int>(name.size()), name.data());
  }

  std::string_view view() const noexcept { return text; }
  bool operator==(const OwnerName& other) const noexcept { return view() == other.view(); }
};
static_assert(std::is_trivially_copyable_v<OwnerName>);

}  // namespace bedplate
