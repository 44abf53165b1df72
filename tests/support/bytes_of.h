// A text as bytes of a message.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace bedplate::test {

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace bedplate::test
