#include "platform/units.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>

#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::Seed;

namespace {

void check_parsed(const char* text, uint64_t bytes) {
  const auto parsed = parse_bytes(text);
  CHECK_TEXT(parsed.has_value(), text);
  CHECK_TEXT(*parsed == bytes, text);
}

struct UnitRow {
  const char* kind;
  double number;
  const char* text;
};
constexpr UnitRow kUnitRows[] = {
#include "tests/platform/unit_texts.inc"
};

UnitText text_of(const UnitRow& row) {
  const std::string_view kind = row.kind;
  if (kind == "count") return format_rounded_count(row.number);
  const auto whole = static_cast<uint64_t>(row.number);
  return kind == "ns" ? format_rounded_ns(whole) : format_rounded_bytes(whole);
}

void check_refused(std::string_view text) {
  CHECK_TEXT(!parse_bytes(text).has_value(), text.data());
}

}  // namespace

TEST_GROUP(Units){};

TEST(Units, BytesAreParsedWithAndWithoutUnit) {
  check_parsed("0", 0);
  check_parsed("4096", 4096);
  check_parsed("4KiB", 4096);
  check_parsed("4 KiB", 4096);
  check_parsed("4   KiB", 4096);
  check_parsed("256 MiB", 256 * kMiB);
  check_parsed("1 GiB", kGiB);
  check_parsed("2 TiB", 2 * kTiB);
  check_parsed("007 MiB", 7 * kMiB);
}

TEST(Units, LargestIsWhatFitsInto63Bits) {
  check_parsed("9223372036854775807", std::numeric_limits<int64_t>::max());
  check_parsed("8388607 TiB", 8388607 * kTiB);
  check_refused("9223372036854775808");
  check_refused("8388608 TiB");
  check_refused("18446744073709551615 KiB");
  check_refused("18446744073709551616");
  check_refused("99999999999999999999999999");
}

TEST(Units, WhatIsNoByteSizeIsRefused) {
  for (const char* text : {"",        " ",        "MiB",   "-1",    "+1",     "1.5 MiB", "1e3",
                           "0x10",    " 1",       "1 ",    "1 MB",  "1 M",    "1 mib",   "1 MiB ",
                           "1 MiB x", "1 KiBKiB", "1 PiB", "1,000", "1\tKiB", "one"}) {
    check_refused(text);
  }
  check_refused(std::string_view("1\0KiB", 5));
}

TEST(Units, LargestUnitThatDividesIsWritten) {
  STRCMP_EQUAL("0 bytes", format_bytes(0).text);
  STRCMP_EQUAL("1 bytes", format_bytes(1).text);
  STRCMP_EQUAL("1023 bytes", format_bytes(1023).text);
  STRCMP_EQUAL("12 KiB", format_bytes(12 * kKiB).text);
  STRCMP_EQUAL("1025 KiB", format_bytes(kMiB + kKiB).text);
  STRCMP_EQUAL("256 MiB", format_bytes(256 * kMiB).text);
  STRCMP_EQUAL("3 GiB", format_bytes(3 * kGiB).text);
  STRCMP_EQUAL("16777215 TiB", format_bytes(16777215 * kTiB).text);
  STRCMP_EQUAL("18446744073709551615 bytes", format_bytes(UINT64_MAX).text);
}

TEST(Units, RoundedTextsAreThoseOfTheTable) {
  for (const UnitRow& row : kUnitRows) STRCMP_EQUAL(row.text, text_of(row).text);
}

TEST(Units, LargestNumbersFit) {
  STRCMP_EQUAL("16777216 TiB", format_rounded_bytes(UINT64_MAX).text);
  STRCMP_EQUAL("18446744074 s", format_rounded_ns(UINT64_MAX).text);
  STRCMP_EQUAL("100000000000000000T", format_rounded_count(1e300).text);
  STRCMP_EQUAL("5124095576030431 h 0 min", format_wait(UINT64_MAX).text);
}

TEST(Units, WaitsAreSaidInMinutesAndHours) {
  STRCMP_EQUAL("0 s", format_wait(0).text);
  STRCMP_EQUAL("119 s", format_wait(119).text);
  STRCMP_EQUAL("2 min", format_wait(120).text);
  STRCMP_EQUAL("119 min", format_wait(7199).text);
  STRCMP_EQUAL("2 h 0 min", format_wait(7200).text);
  STRCMP_EQUAL("3 h 20 min", format_wait(12'059).text);
}

TEST(Units, WhatIsWrittenIsParsedBack) {
  const Seed seed;
  std::mt19937_64 random(seed.value());
  for (int round = 0; round < 10'000; ++round) {
    const uint64_t bytes = (random() >> (1 + random() % 63)) << (random() % 8);
    if (bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) continue;
    UnitText text = format_bytes(bytes);
    if (char* unit = std::strstr(text.text, " bytes")) *unit = '\0';
    const auto parsed = parse_bytes(text.text);
    CHECK_TEXT(parsed.has_value() && *parsed == bytes, seed.text());
  }
}

TEST(Units, RoundingGoesToTheMultiple) {
  CHECK(align_up(0, 4096) == 0);
  CHECK(align_up(1, 4096) == 4096);
  CHECK(align_up(4096, 4096) == 4096);
  CHECK(align_up(4097, 4096) == 8192);
  CHECK(align_down(4095, 4096) == 0);
  CHECK(align_down(8191, 4096) == 4096);
  CHECK(align_up(7, 1) == 7);
}

TEST(Units, PowersOfTwoAreToldFromOthers) {
  CHECK_FALSE(is_power_of_two(0));
  for (unsigned bit = 0; bit < 64; ++bit) CHECK(is_power_of_two(uint64_t{1} << bit));
  for (uint64_t value : {3U, 5U, 6U, 7U, 9U, 12U, 4095U, 4097U}) {
    CHECK_FALSE(is_power_of_two(value));
  }
}
