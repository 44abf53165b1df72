// A moving test picture as MPEG-2 video (ISO/IEC 13818-2): bars of colour, a ball, and a counter of
// frames.
//
// The encoder is minimal: it makes only intra pictures, and codes only the mean of each block of 8
// x 8, so a picture is a mosaic of 44 x 36.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate::relay {

class TestPicture {
 public:
  static constexpr uint32_t kWidth = 352;
  static constexpr uint32_t kHeight = 288;
  static constexpr uint32_t kFramesPerSecond = 25;
  static constexpr uint32_t kBytesMax = 16 * 1024;  // the longest picture

  // Encodes picture `number`, with a sequence header, so that a decoder can start at any picture.
  // The bytes are valid until the next call.
  std::span<const std::byte> encode(uint64_t number) noexcept;

 private:
  struct Colour {
    uint8_t luma;
    uint8_t blue;
    uint8_t red;
  };

  void put(uint32_t value, uint32_t bit_count) noexcept;
  void align() noexcept;
  void put_start_code(uint8_t code) noexcept;
  void put_headers(uint64_t number) noexcept;
  void put_mean(int mean, int* before, bool is_luma) noexcept;
  static Colour colour_at(uint32_t column, uint32_t row, uint64_t number) noexcept;

  std::byte bytes_[kBytesMax];
  uint32_t byte_count_ = 0;
  uint32_t bits_ = 0;  // not in bytes_ yet
  uint32_t bit_count_ = 0;
};

}  // namespace bedplate::relay
