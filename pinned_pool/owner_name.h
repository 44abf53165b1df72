// The name of an owner ("heap", "volume:ram0"): a short text that needs no allocation, because
// owners exist before the heap and are shown after a crash.
//
// It is a value of 64 bytes that points nowhere: it may be copied with memcpy, and lies as it is in
// the pool map and in what processes are sent. Always terminated. Threads: any, as any value.
//
// A name that is too long is cut off and not refused: names come from the configuration, which
// refuses long ones where it reads them. Two that differ only behind the cut are one owner here.
#pragma once

#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace bedplate {

struct OwnerName {
  char text[64] = {};

  OwnerName() noexcept = default;
  // Cut off at 63 bytes, or at its first zero byte.
  OwnerName(std::string_view name) noexcept {  // NOLINT: names convert
    const size_t bytes = name.size() < sizeof text ? name.size() : sizeof text - 1;
    std::memcpy(text, name.data(), bytes);
  }
  // Requires: terminated, not nullptr.
  OwnerName(const char* name) noexcept : OwnerName(std::string_view(name)) {}  // NOLINT

  // "kind:name", cut off in the same way: what owns memory for something that has a name.
  OwnerName(std::string_view kind, std::string_view name) noexcept {
    std::snprintf(text, sizeof text, "%.*s:%.*s", static_cast<int>(kind.size()), kind.data(),
                  static_cast<int>(name.size()), name.data());
  }

  // As long as this lives.
  std::string_view view() const noexcept { return text; }
  bool operator==(const OwnerName& other) const noexcept { return view() == other.view(); }
};
// Other processes read it.
static_assert(std::is_trivially_copyable_v<OwnerName> && sizeof(OwnerName) == 64);

}  // namespace bedplate
