// The NBD protocol on the wire: constants and message layouts, nothing else.
//
// Source: doc/proto.md of the NBD project; each group names its section. This file has only the
// parts that this server sends, reads or refuses by name: no extended headers. docs/nbd.md has the
// same as byte tables, and the answer to each message.
//
// All fields are big-endian ("Conventions"). The layouts are made of BigEndian<T>, which has
// alignment 1: a struct may be copied from any address, and a value cannot be used unswapped.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "platform/units.h"

namespace bedplate::nbd {

// ---- Big-endian values ------------------------------------------------------------------------

constexpr uint16_t swap_bytes(uint16_t value) noexcept { return __builtin_bswap16(value); }
constexpr uint32_t swap_bytes(uint32_t value) noexcept { return __builtin_bswap32(value); }
constexpr uint64_t swap_bytes(uint64_t value) noexcept { return __builtin_bswap64(value); }

// The unsigned integer that carries a T: T itself, or the type under an enumeration.
template <typename T>
using WireBits = std::conditional_t<sizeof(T) == 2, uint16_t,
                                    std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

// The value of the sizeof(T) bytes at `from`, which needs no alignment.
template <typename T>
inline T load_be(const std::byte* from) noexcept {
  static_assert(sizeof(WireBits<T>) == sizeof(T));
  WireBits<T> bits;
  std::memcpy(&bits, from, sizeof bits);
  if constexpr (std::endian::native == std::endian::little) bits = swap_bytes(bits);
  return static_cast<T>(bits);
}

// Writes `value` as sizeof(T) bytes at `to`, which needs no alignment.
template <typename T>
inline void store_be(std::byte* to, T value) noexcept {
  static_assert(sizeof(WireBits<T>) == sizeof(T));
  auto bits = static_cast<WireBits<T>>(value);
  if constexpr (std::endian::native == std::endian::little) bits = swap_bytes(bits);
  std::memcpy(to, &bits, sizeof bits);
}

// A field of a message.
template <typename T>
class BigEndian {
 public:
  BigEndian() noexcept = default;
  BigEndian(T value) noexcept { store_be(bytes_, value); }  // NOLINT: a field takes its value
  T value() const noexcept { return load_be<T>(bytes_); }

 private:
  std::byte bytes_[sizeof(T)];
};
using Be16 = BigEndian<uint16_t>;
using Be32 = BigEndian<uint32_t>;
using Be64 = BigEndian<uint64_t>;
static_assert(sizeof(Be16) == 2 && sizeof(Be32) == 4 && sizeof(Be64) == 8 && alignof(Be64) == 1);
static_assert(std::is_trivially_copyable_v<Be64> && std::is_standard_layout_v<Be64>);

// ---- Handshake --------------------------------------------------------------------------------

// "Newstyle negotiation", "Fixed newstyle negotiation".
inline constexpr uint64_t kGreetingMagic = 0x4e42444d41474943;  // "NBDMAGIC"
inline constexpr uint64_t kOptionMagic = 0x49484156454f5054;    // "IHAVEOPT"
inline constexpr uint64_t kOptionReplyMagic = 0x0003e889045565a9;
inline constexpr size_t kReservedZeroesBytes = 124;  // end EXPORT_NAME's answer, unless NO_ZEROES

// "Handshake flags" (server, 16 bits) and "Client flags" (client, 32 bits).
inline constexpr uint16_t kHandshakeFixedNewstyle = 1 << 0;
inline constexpr uint16_t kHandshakeNoZeroes = 1 << 1;
inline constexpr uint32_t kClientFixedNewstyle = 1 << 0;
inline constexpr uint32_t kClientNoZeroes = 1 << 1;

// "Transmission flags".
inline constexpr uint16_t kTransmissionHasFlags = 1 << 0;
inline constexpr uint16_t kTransmissionReadOnly = 1 << 1;
inline constexpr uint16_t kTransmissionSendFlush = 1 << 2;
inline constexpr uint16_t kTransmissionSendFua = 1 << 3;
inline constexpr uint16_t kTransmissionSendTrim = 1 << 5;
inline constexpr uint16_t kTransmissionSendWriteZeroes = 1 << 6;
inline constexpr uint16_t kTransmissionSendDf = 1 << 7;
inline constexpr uint16_t kTransmissionCanMultiConn = 1 << 8;
inline constexpr uint16_t kTransmissionSendFastZero = 1 << 11;

// "Option types": those served. Any other value may arrive.
enum class Option : uint32_t {
  kExportName = 1,
  kAbort = 2,
  kList = 3,
  kStartTls = 5,
  kInfo = 6,
  kGo = 7,
  kStructuredReply = 8,
  kListMetaContext = 9,
  kSetMetaContext = 10,
};

// "Option reply types": those sent.
enum class OptionReplyType : uint32_t {
  kAck = 1,
  kServer = 2,
  kInfo = 3,
  kMetaContext = 4,
  kErrUnsup = 0x80000001,
  kErrInvalid = 0x80000003,
  kErrTlsReqd = 0x80000005,
  kErrUnknown = 0x80000006,
  kErrTooBig = 0x80000009,
};

// NBD_REP_INFO under "Option reply types": those sent. A client may ask for any other value.
enum class InfoType : uint16_t {
  kExport = 0,
  kName = 1,
  kBlockSize = 3,
};

// "Metadata querying": the only context, and its id once it is set.
inline constexpr std::string_view kAllocationContext = "base:allocation";
inline constexpr std::string_view kBaseNamespace = "base:";
inline constexpr uint32_t kAllocationContextId = 1;

// "Size constraints": the sizes that this server announces, which are the specification's defaults.
inline constexpr uint32_t kBlockMinBytes = 1;
inline constexpr uint32_t kBlockPreferredBytes = 4096;
inline constexpr uint32_t kPayloadMaxBytes = 32 * kMiB;
static_assert(kPayloadMaxBytes == uint32_t{1} << 25, "any client may count on 2^25");

// "Newstyle negotiation": the first message of the server.
struct Greeting {
  Be64 greeting_magic;
  Be64 option_magic;
  Be16 handshake_flags;
};
static_assert(sizeof(Greeting) == 18 && offsetof(Greeting, handshake_flags) == 16);

// "Newstyle negotiation": in front of an option's data.
struct OptionHeader {
  Be64 magic;
  BigEndian<Option> option;
  Be32 data_bytes;
};
static_assert(sizeof(OptionHeader) == 16 && offsetof(OptionHeader, option) == 8);
static_assert(offsetof(OptionHeader, data_bytes) == 12);

// "Fixed newstyle negotiation": in front of a reply's data.
struct OptionReplyHeader {
  Be64 magic;
  BigEndian<Option> option;
  BigEndian<OptionReplyType> type;
  Be32 data_bytes;
};
static_assert(sizeof(OptionReplyHeader) == 20 && offsetof(OptionReplyHeader, type) == 12);
static_assert(offsetof(OptionReplyHeader, data_bytes) == 16);

// "Newstyle negotiation": the answer to EXPORT_NAME, which has no reply header.
struct ExportNameReply {
  Be64 export_bytes;
  Be16 transmission_flags;
};
static_assert(sizeof(ExportNameReply) == 10 && offsetof(ExportNameReply, transmission_flags) == 8);

// NBD_REP_SERVER under "Option reply types": the name follows.
struct ServerReply {
  Be32 name_bytes;
};
static_assert(sizeof(ServerReply) == 4);

// NBD_INFO_EXPORT under "Option reply types".
struct InfoExport {
  BigEndian<InfoType> type;
  Be64 export_bytes;
  Be16 transmission_flags;
};
static_assert(sizeof(InfoExport) == 12 && offsetof(InfoExport, export_bytes) == 2);
static_assert(offsetof(InfoExport, transmission_flags) == 10);

// NBD_INFO_NAME under "Option reply types": the name follows.
struct InfoName {
  BigEndian<InfoType> type;
};
static_assert(sizeof(InfoName) == 2);

// NBD_INFO_BLOCK_SIZE under "Option reply types".
struct InfoBlockSize {
  BigEndian<InfoType> type;
  Be32 block_min_bytes;
  Be32 block_preferred_bytes;
  Be32 payload_max_bytes;
};
static_assert(sizeof(InfoBlockSize) == 14 && offsetof(InfoBlockSize, block_min_bytes) == 2);
static_assert(offsetof(InfoBlockSize, payload_max_bytes) == 10);

// NBD_REP_META_CONTEXT under "Option reply types": the name follows.
struct MetaContext {
  Be32 context_id;
};
static_assert(sizeof(MetaContext) == 4);

// ---- Transmission -----------------------------------------------------------------------------

// "Request message", "Simple reply message", "Structured reply chunk message".
inline constexpr uint32_t kRequestMagic = 0x25609513;
inline constexpr uint32_t kSimpleReplyMagic = 0x67446698;
inline constexpr uint32_t kChunkMagic = 0x668e33ef;

// "Request types": those served. Any other value may arrive.
enum class Command : uint16_t {
  kRead = 0,
  kWrite = 1,
  kDisc = 2,
  kFlush = 3,
  kTrim = 4,
  kWriteZeroes = 6,
  kBlockStatus = 7,
};

// "Command flags".
inline constexpr uint16_t kCommandFlagFua = 1 << 0;
inline constexpr uint16_t kCommandFlagNoHole = 1 << 1;
inline constexpr uint16_t kCommandFlagDf = 1 << 2;
inline constexpr uint16_t kCommandFlagReqOne = 1 << 3;
inline constexpr uint16_t kCommandFlagFastZero = 1 << 4;

// "Error values": NBD's own numbers, independent of this machine's errno. The type is ErrorCode
// because bedplate::Error is the three-part message.
enum class ErrorCode : uint32_t {
  kNone = 0,
  kEperm = 1,
  kEio = 5,
  kEnomem = 12,
  kEinval = 22,
  kEnospc = 28,
  kEoverflow = 75,
  kEnotsup = 95,
  kEshutdown = 108,
};

// "Structured reply flags", "Structured reply types": those sent.
inline constexpr uint16_t kChunkFlagDone = 1 << 0;
enum class ChunkType : uint16_t {
  kOffsetData = 1,
  kBlockStatus = 5,
  kError = (1 << 15) + 1,
};

// "Request message": the payload of a WRITE follows.
struct RequestHeader {
  Be32 magic;
  Be16 flags;
  BigEndian<Command> command;
  Be64 cookie;
  Be64 offset;
  Be32 length;
};
static_assert(sizeof(RequestHeader) == 28 && offsetof(RequestHeader, flags) == 4);
static_assert(offsetof(RequestHeader, command) == 6 && offsetof(RequestHeader, cookie) == 8);
static_assert(offsetof(RequestHeader, offset) == 16 && offsetof(RequestHeader, length) == 24);

// "Simple reply message": the payload of a READ follows when `error` is kNone.
struct SimpleReply {
  Be32 magic;
  BigEndian<ErrorCode> error;
  Be64 cookie;
};
static_assert(sizeof(SimpleReply) == 16 && offsetof(SimpleReply, error) == 4);
static_assert(offsetof(SimpleReply, cookie) == 8);

// "Structured reply chunk message".
struct ChunkHeader {
  Be32 magic;
  Be16 flags;
  BigEndian<ChunkType> type;
  Be64 cookie;
  Be32 payload_bytes;
};
static_assert(sizeof(ChunkHeader) == 20 && offsetof(ChunkHeader, type) == 6);
static_assert(offsetof(ChunkHeader, cookie) == 8 && offsetof(ChunkHeader, payload_bytes) == 16);

// NBD_REPLY_TYPE_OFFSET_DATA under "Structured reply types": the data follows.
struct OffsetDataChunk {
  ChunkHeader header;
  Be64 offset;
};
static_assert(sizeof(OffsetDataChunk) == 28 && offsetof(OffsetDataChunk, offset) == 20);

// NBD_REPLY_TYPE_BLOCK_STATUS under "Structured reply types": descriptors follow.
struct BlockStatusChunk {
  ChunkHeader header;
  Be32 context_id;
};
static_assert(sizeof(BlockStatusChunk) == 24 && offsetof(BlockStatusChunk, context_id) == 20);

// A part of the range. Each part begins at the end of the part before. `state` has the flags of
// base:allocation, below.
struct BlockDescriptor {
  Be32 bytes;
  Be32 state;
};
static_assert(sizeof(BlockDescriptor) == 8 && offsetof(BlockDescriptor, state) == 4);
inline constexpr uint32_t kStateHole = 1 << 0;
inline constexpr uint32_t kStateZero = 1 << 1;

// NBD_REPLY_TYPE_ERROR under "Structured reply types": a message may follow; this server sends
// none.
struct ErrorChunk {
  ChunkHeader header;
  BigEndian<ErrorCode> error;
  Be16 message_bytes;
};
static_assert(sizeof(ErrorChunk) == 26 && offsetof(ErrorChunk, error) == 20);
static_assert(offsetof(ErrorChunk, message_bytes) == 24);

}  // namespace bedplate::nbd
