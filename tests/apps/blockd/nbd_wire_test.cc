// The layouts of the NBD messages, compared byte by byte with numbers written by hand.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "apps/blockd/nbd_wire.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::nbd {
namespace {

// Returns the bytes of a message as hexadecimal digits.
template <typename T>
std::string hex(const T& message) {
  constexpr char kDigits[] = "0123456789abcdef";
  unsigned char bytes[sizeof message];
  std::memcpy(bytes, &message, sizeof message);
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

void expect_hex(const char* digits, const std::string& text) { STRCMP_EQUAL(digits, text.c_str()); }

}  // namespace

TEST_GROUP(NbdWire){};

TEST(NbdWire, StoresTheHighestByteFirst) {
  expect_hex("1234", hex(Be16(0x1234)));
  expect_hex("12345678", hex(Be32(0x12345678)));
  expect_hex("123456789abcdef0", hex(Be64(0x123456789abcdef0)));
}

TEST(NbdWire, LoadsWhatItStoredAtAnyAddress) {
  std::byte bytes[16];
  for (size_t at = 0; at < 8; ++at) {
    store_be(bytes + at, uint64_t{0xfedcba9876543210});
    CHECK(load_be<uint64_t>(bytes + at) == 0xfedcba9876543210);
    CHECK(load_be<uint32_t>(bytes + at) == 0xfedcba98);
    CHECK(load_be<uint16_t>(bytes + at) == 0xfedc);
  }
}

TEST(NbdWire, CarriesValuesThatNoEnumeratorNames) {
  const BigEndian<Option> option = static_cast<Option>(0xdeadbeef);
  expect_hex("deadbeef", hex(option));
  CHECK(option.value() == static_cast<Option>(0xdeadbeef));
}

TEST(NbdWire, MagicsAreTheirText) {
  expect_hex("4e42444d41474943", hex(Be64(kGreetingMagic)));  // "NBDMAGIC"
  expect_hex("49484156454f5054", hex(Be64(kOptionMagic)));    // "IHAVEOPT"
  std::byte bytes[8];
  store_be(bytes, kGreetingMagic);
  MEMCMP_EQUAL("NBDMAGIC", bytes, 8);
  store_be(bytes, kOptionMagic);
  MEMCMP_EQUAL("IHAVEOPT", bytes, 8);
}

TEST(NbdWire, HandshakeMessages) {
  expect_hex("4e42444d4147494349484156454f50540003",
             hex(Greeting{.greeting_magic = kGreetingMagic,
                          .option_magic = kOptionMagic,
                          .handshake_flags = kHandshakeFixedNewstyle | kHandshakeNoZeroes}));
  expect_hex("49484156454f50540000000700000102",
             hex(OptionHeader{.magic = kOptionMagic, .option = Option::kGo, .data_bytes = 0x102}));
  expect_hex("0003e889045565a9000000038000000100000203",
             hex(OptionReplyHeader{.magic = kOptionReplyMagic,
                                   .option = Option::kList,
                                   .type = OptionReplyType::kErrUnsup,
                                   .data_bytes = 0x203}));
  expect_hex("01020304050607080123",
             hex(ExportNameReply{.export_bytes = 0x0102030405060708, .transmission_flags = 0x123}));
  expect_hex("0000010203040506070801ef", hex(InfoExport{.type = InfoType::kExport,
                                                        .export_bytes = 0x0102030405060708,
                                                        .transmission_flags = 0x1ef}));
  expect_hex("0003000000010000100002000000",
             hex(InfoBlockSize{.type = InfoType::kBlockSize,
                               .block_min_bytes = kBlockMinBytes,
                               .block_preferred_bytes = kBlockPreferredBytes,
                               .payload_max_bytes = kPayloadMaxBytes}));
  expect_hex("0001", hex(InfoName{.type = InfoType::kName}));
  expect_hex("000000ff", hex(ServerReply{.name_bytes = 255}));
}

TEST(NbdWire, TransmissionMessages) {
  expect_hex("25609513000100060102030405060708090a0b0c0d0e0f1011121314",
             hex(RequestHeader{.magic = kRequestMagic,
                               .flags = kCommandFlagFua,
                               .command = Command::kWriteZeroes,
                               .cookie = 0x0102030405060708,
                               .offset = 0x090a0b0c0d0e0f10,
                               .length = 0x11121314}));
  expect_hex("674466980000001c0102030405060708", hex(SimpleReply{.magic = kSimpleReplyMagic,
                                                                 .error = ErrorCode::kEnospc,
                                                                 .cookie = 0x0102030405060708}));
  const ChunkHeader header{.magic = kChunkMagic,
                           .flags = kChunkFlagDone,
                           .type = ChunkType::kError,
                           .cookie = 0x0102030405060708,
                           .payload_bytes = 6};
  expect_hex("668e33ef00018001010203040506070800000006", hex(header));
  expect_hex("668e33ef00018001010203040506070800000006000000160000",
             hex(ErrorChunk{.header = header, .error = ErrorCode::kEinval, .message_bytes = 0}));
  expect_hex("668e33ef000180010102030405060708000000060000000000001000",
             hex(OffsetDataChunk{.header = header, .offset = 4096}));
}

TEST(NbdWire, ErrorsAreNbdsNumbers) {
  CHECK_EQUAL(1U, static_cast<uint32_t>(ErrorCode::kEperm));
  CHECK_EQUAL(5U, static_cast<uint32_t>(ErrorCode::kEio));
  CHECK_EQUAL(12U, static_cast<uint32_t>(ErrorCode::kEnomem));
  CHECK_EQUAL(22U, static_cast<uint32_t>(ErrorCode::kEinval));
  CHECK_EQUAL(28U, static_cast<uint32_t>(ErrorCode::kEnospc));
  CHECK_EQUAL(75U, static_cast<uint32_t>(ErrorCode::kEoverflow));
  CHECK_EQUAL(95U, static_cast<uint32_t>(ErrorCode::kEnotsup));
  CHECK_EQUAL(108U, static_cast<uint32_t>(ErrorCode::kEshutdown));
}

}  // namespace bedplate::nbd
