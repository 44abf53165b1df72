// The name of an owner ("heap", "volume:ram0"): a short text that needs no allocation, because
// owners exist before the heap and are shown after a crash.
//
// It is a value of 64 bytes without pointers: memcpy may copy it, and the pool map and packets to
// other processes contain it unchanged. It is always terminated. Threads: any, as any value.
//
// A name that is too long is truncated, not refused: names come from the configuration, which
// refuses long ones when it reads them. Two names that differ only behind the cut are one owner
// here.
#pragma once

#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "platform/version.h"

namespace bedplate {

struct OwnerName {
  char text[64] = {};

  OwnerName() noexcept = default;
  // Truncated at 63 bytes, or at its first zero byte.
  OwnerName(std::string_view name) noexcept {  // NOLINT: names convert
    const size_t bytes = name.size() < sizeof text ? name.size() : sizeof text - 1;
    std::memcpy(text, name.data(), bytes);
  }
  // Requires: terminated, not nullptr.
  OwnerName(const char* name) noexcept : OwnerName(std::string_view(name)) {}  // NOLINT

  // "kind:name", truncated in the same way: the owner of a named object's memory.
  OwnerName(std::string_view kind, std::string_view name) noexcept {
    std::snprintf(text, sizeof text, "%.*s:%.*s", static_cast<int>(kind.size()), kind.data(),
                  static_cast<int>(name.size()), name.data());
  }

  // Valid as long as this lives.
  std::string_view view() const noexcept { return text; }
  bool operator==(const OwnerName& other) const noexcept { return view() == other.view(); }
};
// Other processes read it.
static_assert(std::is_trivially_copyable_v<OwnerName> && sizeof(OwnerName) == 64);

}  // namespace bedplate
