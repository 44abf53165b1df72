#include "apps/examples/test_picture.h"

#include <bit>

#include "platform/assert.h"

namespace bedplate::relay {
namespace {

constexpr uint32_t kColumns = TestPicture::kWidth / 8;  // of the mosaic
constexpr uint32_t kRows = TestPicture::kHeight / 8;
constexpr uint32_t kMacroblockColumns = TestPicture::kWidth / 16;
constexpr uint32_t kMacroblockRows = TestPicture::kHeight / 16;

struct Code {
  uint8_t bits;
  uint8_t bit_count;
};
// The codes for the number of bits of a difference of means (13818-2, tables B.12 and B.13).
constexpr Code kLumaSizes[] = {{0b100, 3},  {0b00, 2},    {0b01, 2},     {0b101, 3},    {0b110, 3},
                               {0b1110, 4}, {0b11110, 5}, {0b111110, 6}, {0b1111110, 7}};
constexpr Code kChromaSizes[] = {{0b00, 2},     {0b01, 2},      {0b10, 2},
                                 {0b110, 3},    {0b1110, 4},    {0b11110, 5},
                                 {0b111110, 6}, {0b1111110, 7}, {0b11111110, 8}};
constexpr Code kEndOfBlock = {0b10, 2};

// Digits of 3 x 5, a row for each octal figure.
constexpr uint16_t kDigits[] = {075557, 026227, 071747, 071717, 055711,
                                074717, 074757, 071111, 075757, 075717};

}  // namespace

void TestPicture::put(uint32_t value, uint32_t bit_count) noexcept {
  for (uint32_t i = bit_count; i-- > 0;) {
    bits_ = bits_ << 1 | (value >> i & 1);
    if (++bit_count_ < 8) continue;
    BP_ASSERT(byte_count_ < kBytesMax);
    bytes_[byte_count_++] = static_cast<std::byte>(bits_);
    bits_ = bit_count_ = 0;
  }
}

void TestPicture::align() noexcept {
  while (bit_count_ != 0) put(0, 1);
}

void TestPicture::put_start_code(uint8_t code) noexcept {
  align();
  put(1, 24);
  put(code, 8);
}

void TestPicture::put_headers(uint64_t number) noexcept {
  put_start_code(0xB3);  // sequence_header
  put(kWidth, 12);
  put(kHeight, 12);
  put(2, 4);        // 4:3
  put(3, 4);        // 25 frames per second
  put(20'000, 18);  // bit_rate, in units of 400 bits
  put(1, 1);
  put(20, 10);           // vbv_buffer_size, in units of 2 KiB
  put(0, 3);             // no constrained parameters, no matrices of its own
  put_start_code(0xB5);  // sequence_extension
  put(1, 4);
  put(0x48, 8);  // main profile, main level
  put(1, 1);     // progressive
  put(1, 2);     // 4:2:0
  put(0, 16);    // of sizes and bit rate
  put(1, 1);
  put(0, 16);
  put_start_code(0xB8);  // group_of_pictures_header
  const uint64_t second = number / kFramesPerSecond;
  put(0, 1);
  put(static_cast<uint32_t>(second / 3600 % 24), 5);
  put(static_cast<uint32_t>(second / 60 % 60), 6);
  put(1, 1);
  put(static_cast<uint32_t>(second % 60), 6);
  put(static_cast<uint32_t>(number % kFramesPerSecond), 6);
  put(0b10, 2);       // closed
  put_start_code(0);  // picture_header
  put(0, 10);         // temporal_reference
  put(1, 3);          // intra
  put(0xFFFF, 16);    // vbv_delay
  put(0, 1);
  put_start_code(0xB5);  // picture_coding_extension
  put(8, 4);
  put(0xFFFF, 16);        // f_codes
  put(0, 2);              // intra_dc_precision: 8 bits
  put(3, 2);              // a frame
  put(0b0100000'1'1, 9);  // frame_pred_frame_dct; chroma_420_type; progressive_frame
  put(0, 1);              // no composite display
}

// Writes the mean of a block as the difference to the previous one.
void TestPicture::put_mean(int mean, int* before, bool is_luma) noexcept {
  const int difference = mean - *before;
  *before = mean;
  const auto amount = static_cast<uint32_t>(difference < 0 ? -difference : difference);
  const auto size = static_cast<uint32_t>(std::bit_width(amount));
  const Code code = is_luma ? kLumaSizes[size] : kChromaSizes[size];
  put(code.bits, code.bit_count);
  put(difference < 0 ? (1U << size) - 1 - amount : amount, size);
  put(kEndOfBlock.bits, kEndOfBlock.bit_count);
}

TestPicture::Colour TestPicture::colour_at(uint32_t column, uint32_t row,
                                           uint64_t number) noexcept {
  constexpr Colour kBars[] = {{180, 128, 128}, {162, 44, 142}, {131, 156, 44}, {112, 72, 58},
                              {84, 184, 198},  {65, 100, 212}, {35, 212, 114}};
  constexpr Colour kWhite = {235, 128, 128};
  constexpr Colour kBlack = {16, 128, 128};
  constexpr uint32_t kDigitRow = kRows - 8;
  constexpr uint32_t kDigitCount = 8;
  if (row >= kDigitRow) {
    const uint32_t line = row - kDigitRow - 1;
    const uint32_t position = column / 5;
    if (row == kDigitRow || line >= 5 || column % 5 == 0 || column % 5 == 4) return kBlack;
    if (position >= kDigitCount) return kBlack;
    for (uint32_t i = position + 1; i < kDigitCount; ++i) number /= 10;
    const uint32_t bits = kDigits[number % 10] >> (3 * (4 - line)) & 7;
    return (bits >> (3 - column % 5) & 1) != 0 ? kWhite : kBlack;
  }
  // A ball that moves back and forth, and up and down.
  const auto swing = [](uint64_t step, uint32_t range) {
    const auto at = static_cast<uint32_t>(step % (2 * range));
    return static_cast<int>(at < range ? at : 2 * range - at);
  };
  const int x = static_cast<int>(column) - swing(number, kColumns - 1);
  const int y = static_cast<int>(row) - swing(number / 2, kDigitRow - 1);
  if (x * x + y * y <= 9) return kWhite;
  return kBars[column * 7 / kColumns];
}

std::span<const std::byte> TestPicture::encode(uint64_t number) noexcept {
  byte_count_ = bits_ = bit_count_ = 0;
  put_headers(number);
  for (uint32_t row = 0; row < kMacroblockRows; ++row) {
    put_start_code(static_cast<uint8_t>(row + 1));  // slice
    put(8, 5);                                      // quantiser_scale_code: of nothing
    put(0, 1);
    int luma = 128;
    int blue = 128;
    int red = 128;
    for (uint32_t column = 0; column < kMacroblockColumns; ++column) {
      put(0b11, 2);  // the next macroblock; intra
      for (uint32_t i = 0; i < 4; ++i) {
        put_mean(colour_at(2 * column + i % 2, 2 * row + i / 2, number).luma, &luma, true);
      }
      const Colour colour = colour_at(2 * column, 2 * row, number);
      put_mean(colour.blue, &blue, false);
      put_mean(colour.red, &red, false);
    }
  }
  align();
  return {bytes_, byte_count_};
}

}  // namespace bedplate::relay
