// Collects one field of a handshake while its bytes arrive.
//
// It keeps as many bytes as the longest name has. It only counts further bytes: the server
// understands no longer field.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "apps/blockd/nbd_export.h"
#include "apps/blockd/nbd_wire.h"
#include "platform/assert.h"

namespace bedplate::nbd {

class HandshakeField {
 public:
  static constexpr size_t kKeptBytes = kNameMaxBytes;
  static_assert(sizeof(OptionHeader) <= kKeptBytes, "a field of fixed length is kept as a whole");
  static_assert(kAllocationContext.size() <= kKeptBytes, "a query that could match is kept whole");

  // Begins the next field, of this length.
  void begin(uint32_t bytes) noexcept {
    bytes_ = bytes;
    have_bytes_ = 0;
  }
  uint32_t bytes() const noexcept { return bytes_; }
  uint32_t missing_bytes() const noexcept { return bytes_ - have_bytes_; }

  // Takes up to missing_bytes() from the front of `input`. Returns the number of bytes taken.
  uint32_t take(std::span<const std::byte> input) noexcept {
    const auto count = static_cast<uint32_t>(std::min<size_t>(missing_bytes(), input.size()));
    if (have_bytes_ < kKeptBytes) {
      std::copy_n(input.data(), std::min<size_t>(count, kKeptBytes - have_bytes_),
                  data_ + have_bytes_);
    }
    have_bytes_ += count;
    return count;
  }

  // ---- Requires: no byte is missing ----

  template <typename T>
  T number() const noexcept {
    BP_DCHECK(bytes_ == sizeof(T) && missing_bytes() == 0);
    return load_be<T>(data_);
  }
  OptionHeader option_header() const noexcept {
    BP_DCHECK(bytes_ == sizeof(OptionHeader) && missing_bytes() == 0);
    OptionHeader header;
    std::memcpy(&header, data_, sizeof header);
    return header;
  }
  // The kept bytes: the first kKeptBytes of a longer field.
  std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(data_), std::min<size_t>(bytes_, kKeptBytes)};
  }

 private:
  uint32_t bytes_ = 0;
  uint32_t have_bytes_ = 0;
  std::byte data_[kKeptBytes] = {};
};
static_assert(std::is_trivially_destructible_v<HandshakeField>);

}  // namespace bedplate::nbd
