// Requests of NBD: accepted ones, every refusal, the bytes of every reply header, and random
// requests compared with the slow reference.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <span>
#include <string>

#include "apps/blockd/nbd_request_datapath.h"
#include "tests/apps/blockd/nbd_reference.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::nbd {
namespace {

using Kind = Verdict::Kind;
using nbd_reference::be;

constexpr uint64_t kVolumeBytes = 1 << 30;
constexpr ExportView kVolume{
    .bytes = kVolumeBytes, .read_only = false, .structured_replies = false, .block_status = false};
constexpr ExportView kStructured{
    .bytes = kVolumeBytes, .read_only = false, .structured_replies = true, .block_status = true};
constexpr ExportView kReadOnly{
    .bytes = kVolumeBytes, .read_only = true, .structured_replies = true, .block_status = true};
constexpr ExportView kLargest{
    .bytes = UINT64_MAX, .read_only = false, .structured_replies = true, .block_status = false};

constexpr Command kRanged[] = {Command::kRead, Command::kWrite, Command::kTrim,
                               Command::kWriteZeroes};
constexpr Command kWriting[] = {Command::kWrite, Command::kTrim, Command::kWriteZeroes};

}  // namespace

TEST_GROUP(NbdRequest){static Request request(Command command, uint64_t offset, uint32_t length,
                                              uint16_t flags = 0){
    return {.command = command, .flags = flags, .length = length, .cookie = 1, .offset = offset};
}  // namespace bedplate::nbd

static void expect_accept(const Request& request, const ExportView& view) {
  CHECK(check(request, view) == Verdict{});
}

// Checks that the request is refused with `error`, and that the payload of a WRITE is drained.
static void expect_refuse(ErrorCode error, const Request& request, const ExportView& view) {
  const Verdict verdict = check(request, view);
  const bool has_payload = request.command == Command::kWrite && request.length > 0;
  CHECK(verdict.kind == (has_payload ? Kind::kRefuseAndDrain : Kind::kRefuse));
  LONGS_EQUAL(static_cast<uint32_t>(error), static_cast<uint32_t>(verdict.error));
  LONGS_EQUAL(has_payload ? request.length : 0, verdict.drain_bytes);
}

// Returns the bytes that `encode` wrote. Checks that it left the bytes behind them unchanged.
template <typename Encode>
static std::string encoded(Encode encode) {
  std::byte bytes[kMaxReplyHeaderBytes];
  std::memset(bytes, 0x5a, sizeof bytes);
  const size_t count = encode(ReplyBytes(bytes));
  CHECK(count <= kMaxReplyHeaderBytes);
  for (size_t i = count; i < sizeof bytes; ++i) CHECK(bytes[i] == std::byte{0x5a});
  return {reinterpret_cast<const char*>(bytes), count};
}
}
;

TEST(NbdRequest, DecodesEveryField) {
  const std::string wire =
      nbd_reference::request(0x0102, 0x0304, 0x05060708090a0b0c, 0x0d0e0f1011121314, 0x15161718);
  LONGS_EQUAL(kRequestHeaderBytes, wire.size());
  Request decoded{};
  CHECK(try_decode(RequestBytes(std::as_bytes(std::span(wire))), decoded));
  LONGS_EQUAL(0x0102, decoded.flags);
  LONGS_EQUAL(0x0304, static_cast<uint16_t>(decoded.command));
  CHECK(decoded.cookie == 0x05060708090a0b0c);
  CHECK(decoded.offset == 0x0d0e0f1011121314);
  LONGS_EQUAL(0x15161718, decoded.length);
}

TEST(NbdRequest, AcceptsEachCommand) {
  for (const Command command : kRanged) {
    expect_accept(request(command, 4096, 4096), kVolume);
    expect_accept(request(command, 1, 1), kVolume);
    expect_accept(request(command, kVolumeBytes - 1, 1), kVolume);
    expect_accept(request(command, UINT64_MAX - 1, 1), kLargest);
  }
  expect_accept(request(Command::kFlush, 0, 0), kVolume);
  expect_accept(request(Command::kRead, 0, kPayloadMaxBytes), kVolume);
  expect_accept(request(Command::kWrite, 0, kPayloadMaxBytes), kVolume);
}

TEST(NbdRequest, TrimAndWriteZeroesMayBeAsLongAsTheExport) {
  expect_accept(request(Command::kTrim, 0, kVolumeBytes), kVolume);
  expect_accept(request(Command::kWriteZeroes, 0, kVolumeBytes), kVolume);
  expect_accept(request(Command::kTrim, 0, UINT32_MAX), kLargest);
  expect_accept(request(Command::kWriteZeroes, UINT64_MAX - UINT32_MAX, UINT32_MAX), kLargest);
}

TEST(NbdRequest, FuaMayComeWithEveryCommand) {
  for (const Command command : kRanged) {
    expect_accept(request(command, 0, 1, kCommandFlagFua), kVolume);
  }
  expect_accept(request(Command::kFlush, 0, 0, kCommandFlagFua), kVolume);
}

TEST(NbdRequest, FlushIgnoresItsReservedFields) {
  expect_accept(request(Command::kFlush, UINT64_MAX, UINT32_MAX), kVolume);
  expect_accept(request(Command::kFlush, 0, 0), kReadOnly);
}

TEST(NbdRequest, NoHoleGoesWithWriteZeroes) {
  expect_accept(request(Command::kWriteZeroes, 0, 1, kCommandFlagNoHole | kCommandFlagFua),
                kVolume);
}

TEST(NbdRequest, FastZeroGoesWithWriteZeroes) {
  expect_accept(request(Command::kWriteZeroes, 0, 1, kCommandFlagNoHole | kCommandFlagFastZero),
                kVolume);
}

TEST(NbdRequest, BlockStatusTakesAContext) {
  const Request status = request(Command::kBlockStatus, 4096, UINT32_MAX / 8, kCommandFlagReqOne);
  expect_accept(status, kStructured);
  expect_accept(status, kReadOnly);
  expect_refuse(ErrorCode::kEinval, status, kVolume);
  expect_refuse(ErrorCode::kEinval, request(Command::kBlockStatus, 0, 0), kStructured);
  expect_refuse(ErrorCode::kEinval, request(Command::kBlockStatus, kVolumeBytes, 1), kStructured);
}

TEST(NbdRequest, DontFragmentGoesWithReadAndStructuredReplies) {
  expect_accept(request(Command::kRead, 0, 1, kCommandFlagDf), kStructured);
  expect_refuse(ErrorCode::kEinval, request(Command::kRead, 0, 1, kCommandFlagDf), kVolume);
  expect_refuse(ErrorCode::kEinval, request(Command::kWrite, 0, 1, kCommandFlagDf), kStructured);
}

TEST(NbdRequest, DiscIsObeyedWhateverElseItSays) {
  CHECK(check(request(Command::kDisc, 0, 0), kVolume) == Verdict{.kind = Kind::kFinish});
  CHECK(check(request(Command::kDisc, 7, 7, 0xffff), kReadOnly) == Verdict{.kind = Kind::kFinish});
}

TEST(NbdRequest, WrongMagicIsNotDecoded) {
  for (size_t i = 0; i < 4; ++i) {
    std::string wire = nbd_reference::request(0, 0, 1, 0, 1);
    wire[i] ^= 1;
    Request decoded{};
    CHECK_FALSE(try_decode(RequestBytes(std::as_bytes(std::span(wire))), decoded));
  }
}

TEST(NbdRequest, PastTheEndIsRefused) {
  const struct {
    Command command;
    ErrorCode error;
  } kCases[] = {{Command::kRead, ErrorCode::kEinval},
                {Command::kWrite, ErrorCode::kEnospc},
                {Command::kTrim, ErrorCode::kEinval},
                {Command::kWriteZeroes, ErrorCode::kEnospc}};
  for (const auto& [command, error] : kCases) {
    expect_refuse(error, request(command, kVolumeBytes, 1), kVolume);
    expect_refuse(error, request(command, kVolumeBytes - 1, 2), kVolume);
    expect_refuse(error, request(command, kVolumeBytes + 1, 1), kVolume);
    // offset + length overflows 64 bits.
    expect_refuse(error, request(command, UINT64_MAX, 1), kVolume);
    expect_refuse(error, request(command, UINT64_MAX, 2), kLargest);
    expect_refuse(error, request(command, UINT64_MAX - 4095, 8192), kVolume);
  }
}

TEST(NbdRequest, NoBytesAreInvalid) {
  for (const Command command : kRanged) {
    expect_refuse(ErrorCode::kEinval, request(command, 0, 0), kVolume);
    expect_refuse(ErrorCode::kEinval, request(command, kVolumeBytes + 1, 0), kVolume);
  }
}

TEST(NbdRequest, WritingToReadOnlyIsNotPermitted) {
  for (const Command command : kWriting) {
    expect_refuse(ErrorCode::kEperm, request(command, 0, 4096), kReadOnly);
    expect_refuse(ErrorCode::kEperm, request(command, kVolumeBytes, 4096), kReadOnly);
  }
  expect_accept(request(Command::kRead, 0, 4096), kReadOnly);
}

TEST(NbdRequest, UnknownFlagsAreInvalid) {
  for (int bit = 0; bit < 16; ++bit) {
    const auto flag = static_cast<uint16_t>(1 << bit);
    for (const Command command : kRanged) {
      if (flag == kCommandFlagFua) continue;
      if (flag == kCommandFlagNoHole && command == Command::kWriteZeroes) continue;
      if (flag == kCommandFlagFastZero && command == Command::kWriteZeroes) continue;
      if (flag == kCommandFlagDf && command == Command::kRead) continue;
      expect_refuse(ErrorCode::kEinval, request(command, 0, 4096, flag), kStructured);
    }
    if (flag == kCommandFlagFua) continue;
    expect_refuse(ErrorCode::kEinval, request(Command::kFlush, 0, 0, flag), kStructured);
  }
}

TEST(NbdRequest, UnknownCommandsAreInvalidAndHaveNoPayload) {
  for (uint32_t number = 0; number <= UINT16_MAX; ++number) {
    if (number <= 4 || number == 6) continue;
    expect_refuse(ErrorCode::kEinval, request(static_cast<Command>(number), 0, 4096), kVolume);
  }
}

TEST(NbdRequest, PayloadsHaveALimit) {
  expect_refuse(ErrorCode::kEinval, request(Command::kRead, 0, kPayloadMaxBytes + 1), kVolume);
  expect_refuse(ErrorCode::kEinval, request(Command::kRead, 0, UINT32_MAX), kLargest);
  expect_refuse(ErrorCode::kEinval, request(Command::kWrite, 0, kPayloadMaxBytes + 1), kVolume);
  expect_refuse(ErrorCode::kEinval, request(Command::kWrite, 0, 64 << 20), kVolume);
  expect_refuse(ErrorCode::kEnospc, request(Command::kWrite, kVolumeBytes, 64 << 20), kVolume);
}

TEST(NbdRequest, AWriteTooLongToBeDroppedDisconnects) {
  const Verdict disconnect{.kind = Kind::kDisconnect};
  for (const uint32_t length : {(64U << 20) + 1, UINT32_MAX}) {
    CHECK(check(request(Command::kWrite, 0, length), kVolume) == disconnect);
    CHECK(check(request(Command::kWrite, 0, length), kReadOnly) == disconnect);
    CHECK(check(request(Command::kWrite, 0, length, 0xffff), kVolume) == disconnect);
  }
}

TEST(NbdRequest, EncodesASimpleReply) {
  const std::string bytes = encoded([](ReplyBytes out) {
    return encode_simple_reply(out, 0x0102030405060708, ErrorCode::kEnospc);
  });
  CHECK(bytes == be(0x67446698, 4) + be(28, 4) + be(0x0102030405060708, 8));
}

TEST(NbdRequest, EncodesAReadChunk) {
  const std::string bytes = encoded([](ReplyBytes out) {
    return encode_read_chunk(out, 0x0102030405060708, 0x1112131415161718, kPayloadMaxBytes);
  });
  CHECK(bytes == be(0x668e33ef, 4) + be(1, 2) + be(1, 2) + be(0x0102030405060708, 8) +
                     be((32 << 20) + 8, 4) + be(0x1112131415161718, 8));
}

TEST(NbdRequest, EncodesAnErrorChunk) {
  const std::string bytes = encoded([](ReplyBytes out) {
    return encode_error_chunk(out, 0x0102030405060708, ErrorCode::kEinval);
  });
  CHECK(bytes == be(0x668e33ef, 4) + be(1, 2) + be(0x8001, 2) + be(0x0102030405060708, 8) +
                     be(6, 4) + be(22, 4) + be(0, 2));
}

TEST(NbdRequest, EncodesABlockStatus) {
  const std::string head = be(0x668e33ef, 4) + be(1, 2) + be(5, 2) + be(0x0102030405060708, 8);
  const std::string bytes =
      encoded([](ReplyBytes out) { return encode_block_status(out, 0x0102030405060708, 3 * 8); });
  CHECK(bytes == head + be(28, 4) + be(1, 4));
  const std::string all =
      encoded([](ReplyBytes out) { return encode_all_data(out, 0x0102030405060708, 0x11121314); });
  CHECK(all == head + be(12, 4) + be(1, 4) + be(0x11121314, 4) + be(0, 4));
}

namespace {

// Returns a number near a limit of the protocol, a small number, or any number.
uint64_t some_number(std::mt19937_64& random, uint64_t volume_bytes) {
  const uint64_t borders[] = {0,          4096,         32 << 20,   64 << 20,
                              UINT32_MAX, volume_bytes, UINT64_MAX, volume_bytes - UINT32_MAX};
  switch (random() % 4) {
    case 0: return random();
    case 1: return random() % 4096;
    default: return borders[random() % std::size(borders)] + random() % 5 - 2;
  }
}

}  // namespace

TEST(NbdRequest, AnyRequestIsJudgedAsTheReferenceDoes) {
  const uint64_t seed = nbd_reference::test_seed();
  UT_PRINT(StringFromFormat("BEDPLATE_TEST_SEED=%llu", static_cast<unsigned long long>(seed)));
  std::mt19937_64 random(seed);
  int kinds[5] = {};
  for (int round = 0; round < 400000; ++round) {
    const uint64_t volume_bytes = some_number(random, uint64_t{1} << 33);
    const ExportView view{.bytes = volume_bytes,
                          .read_only = random() % 4 == 0,
                          .structured_replies = random() % 2 == 0,
                          .block_status = random() % 2 == 0};
    const bool any_command = random() % 16 == 0;
    const uint64_t flags = random() % 4 == 0 ? uint64_t{1} << random() % 17 : random() % 2;
    const std::string wire = nbd_reference::request(flags, any_command ? random() : random() % 8,
                                                    random(), some_number(random, volume_bytes),
                                                    some_number(random, volume_bytes));
    Request decoded{};
    CHECK(try_decode(RequestBytes(std::as_bytes(std::span(wire))), decoded));
    const Verdict verdict = check(decoded, view);
    CHECK(verdict == nbd_reference::expected_verdict(decoded, view));
    ++kinds[static_cast<int>(verdict.kind)];
  }
  // Each kind of verdict must occur often, or the random requests prove little.
  for (const int count : kinds) CHECK(count > 1000);
}

}  // namespace bedplate::nbd
