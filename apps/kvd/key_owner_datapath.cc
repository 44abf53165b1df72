#include "apps/kvd/key_owner_datapath.h"

#include <array>
#include <cstring>

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

namespace bedplate::kvd {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;

constexpr std::array<uint32_t, 256> make_table() noexcept {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) {
      rest = rest >> 1 ^ ((rest & 1) != 0 ? kReversedPolynomial : 0);
    }
    table[byte] = rest;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();
static_assert(kTable[1] == 0xf26b8303 && kTable[255] == 0xad7d5351);

#ifdef __x86_64__
// Builds for any x86-64 processor have this function, too.
[[gnu::target("sse4.2")]] uint32_t crc32c_by_instruction(std::string_view key) noexcept {
  uint64_t state = ~uint32_t{0};
  for (; key.size() >= sizeof state; key.remove_prefix(sizeof state)) {
    uint64_t word;
    std::memcpy(&word, key.data(), sizeof word);
    state = _mm_crc32_u64(state, word);
  }
  auto rest = static_cast<uint32_t>(state);
  for (const char each : key) rest = _mm_crc32_u8(rest, static_cast<uint8_t>(each));
  return ~rest;
}

const bool has_instruction = __builtin_cpu_supports("sse4.2");
#endif

}  // namespace

uint32_t crc32c_by_table(std::string_view key) noexcept {
  uint32_t state = ~uint32_t{0};
  for (const char each : key) {
    state = state >> 8 ^ kTable[(state ^ static_cast<uint8_t>(each)) & 0xff];
  }
  return ~state;
}

uint32_t crc32c(std::string_view key) noexcept {
#ifdef __x86_64__
  if (BP_LIKELY(has_instruction)) return crc32c_by_instruction(key);
#endif
  return crc32c_by_table(key);
}

}  // namespace bedplate::kvd
