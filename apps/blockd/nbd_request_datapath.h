// The transmission phase of NBD, without input or output: decodes, checks and answers a request.
//
// Pure functions over bytes that the caller owns: nothing is kept, allocated, logged or waited for.
// The connection carries the verdict out. The rules have a fixed order (rejection_of), so a request
// that breaks several has one answer.
// Source: doc/proto.md of the NBD project, sections "Request message", "Request types", "Command
// flags" and "Error values".
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "apps/blockd/nbd_wire.h"
#include "platform/assert.h"

namespace bedplate::nbd {

inline constexpr size_t kRequestHeaderBytes = sizeof(RequestHeader);

// The longest header of a reply that is encoded here.
inline constexpr size_t kMaxReplyHeaderBytes = sizeof(BlockStatusChunk) + sizeof(BlockDescriptor);
static_assert(kMaxReplyHeaderBytes >= sizeof(OffsetDataChunk));
static_assert(kMaxReplyHeaderBytes >= sizeof(SimpleReply));
static_assert(kMaxReplyHeaderBytes >= sizeof(ErrorChunk));

// The payload of a refused WRITE is read and dropped up to this length; a longer payload ends the
// connection.
inline constexpr uint32_t kDrainMaxBytes = 64 * kMiB;
static_assert(kDrainMaxBytes >= kPayloadMaxBytes, "what could be accepted can be dropped");

using RequestBytes = std::span<const std::byte, kRequestHeaderBytes>;
using ReplyBytes = std::span<std::byte, kMaxReplyHeaderBytes>;

// A request in host byte order. `command` holds any number that the client sent; `cookie` is the
// client's own and goes back unchanged.
struct Request {
  Command command;
  uint16_t flags;
  uint32_t length;
  uint64_t cookie;
  uint64_t offset;
};

// The facts that a request is checked against: the volume's, and those negotiated by the
// connection.
struct ExportView {
  uint64_t bytes;
  bool read_only;
  bool structured_replies;
  bool block_status;  // the context base:allocation is set
};

// The verdict on a request.
struct Verdict {
  enum class Kind : uint8_t {
    kAccept,          // carry it out; the payload of a WRITE (`length` bytes) follows its header
    kRefuse,          // answer `error`; no payload follows the header
    kRefuseAndDrain,  // answer `error`; read and drop `drain_bytes` of payload
    kFinish,          // DISC: answer the outstanding requests, then close; DISC has no reply
    kDisconnect,      // close at once, without an answer: the payload is too long to drop
  };
  Kind kind = Kind::kAccept;
  ErrorCode error = ErrorCode::kNone;
  uint32_t drain_bytes = 0;

  bool operator==(const Verdict&) const = default;
};

// Reads the 28 bytes of a request header. Returns false if the magic is wrong: the stream is out of
// step, and the connection must be closed without an answer.
[[nodiscard]] inline bool try_decode(RequestBytes wire, Request& request) noexcept {
  RequestHeader header;
  std::memcpy(&header, wire.data(), sizeof header);
  request.command = header.command.value();
  request.flags = header.flags.value();
  request.length = header.length.value();
  request.cookie = header.cookie.value();
  request.offset = header.offset.value();
  return header.magic.value() == kRequestMagic;
}

// The rules for one command.
struct CommandRule {
  bool is_known = false;
  bool has_range = false;  // offset and length are a range of the export
  bool writes = false;
  uint16_t flags = 0;  // the flags that may be set
  uint32_t length_max_bytes = 0;
  ErrorCode past_end = ErrorCode::kNone;
};

// By command. FUA may come with every command, and has no effect if nothing is written ("the server
// MUST accept all commands with this bit set"). FLUSH has no range: its offset and length are
// reserved, and ignored. DISC has no rules: it is obeyed whatever its other fields say.
inline constexpr CommandRule kCommandRules[] = {
    /* READ */ {.is_known = true,
                .has_range = true,
                .flags = kCommandFlagFua | kCommandFlagDf,
                .length_max_bytes = kPayloadMaxBytes,
                .past_end = ErrorCode::kEinval},
    /* WRITE */
    {.is_known = true,
     .has_range = true,
     .writes = true,
     .flags = kCommandFlagFua,
     .length_max_bytes = kPayloadMaxBytes,
     .past_end = ErrorCode::kEnospc},
    /* DISC */ {},
    /* FLUSH */ {.is_known = true, .flags = kCommandFlagFua},
    /* TRIM */
    {.is_known = true,
     .has_range = true,
     .writes = true,
     .flags = kCommandFlagFua,
     .length_max_bytes = UINT32_MAX,
     .past_end = ErrorCode::kEinval},
    /* CACHE */ {},
    /* WRITE_ZEROES */
    {.is_known = true,
     .has_range = true,
     .writes = true,
     .flags = kCommandFlagFua | kCommandFlagNoHole | kCommandFlagFastZero,
     .length_max_bytes = UINT32_MAX,
     .past_end = ErrorCode::kEnospc},
    /* BLOCK_STATUS */
    {.is_known = true,
     .has_range = true,
     .flags = kCommandFlagFua | kCommandFlagReqOne,
     .length_max_bytes = UINT32_MAX,
     .past_end = ErrorCode::kEinval},
};
inline constexpr size_t kCommandRuleCount = sizeof kCommandRules / sizeof kCommandRules[0];
static_assert(kCommandRuleCount == static_cast<size_t>(Command::kBlockStatus) + 1);

// Returns the error of the first rule that the request breaks; kNone: it breaks none.
inline ErrorCode rejection_of(const Request& request, const ExportView& view) noexcept {
  const auto command = static_cast<size_t>(request.command);
  if (command >= kCommandRuleCount) return ErrorCode::kEinval;
  const CommandRule& rule = kCommandRules[command];
  if (!rule.is_known) return ErrorCode::kEinval;
  // "A client MUST NOT send it unless" a context is set.
  if (request.command == Command::kBlockStatus && !view.block_status) return ErrorCode::kEinval;
  // DF is announced, and so valid, only with structured replies ("Transmission flags").
  uint32_t allowed_flags = rule.flags;
  if (!view.structured_replies) allowed_flags &= ~uint32_t{kCommandFlagDf};
  if ((request.flags & ~allowed_flags) != 0) return ErrorCode::kEinval;
  if (rule.writes && view.read_only) return ErrorCode::kEperm;
  if (!rule.has_range) return ErrorCode::kNone;
  if (request.length == 0) return ErrorCode::kEinval;
  // offset + length may overflow 64 bits; view.bytes - offset is safe once offset is inside.
  if (request.offset > view.bytes || request.length > view.bytes - request.offset) {
    return rule.past_end;
  }
  if (request.length > rule.length_max_bytes) return ErrorCode::kEinval;
  return ErrorCode::kNone;
}

// Checks a decoded request.
// Cost of an accepted request: about a dozen instructions and one cache line of constants.
[[nodiscard]] inline Verdict check(const Request& request, const ExportView& view) noexcept {
  using Kind = Verdict::Kind;
  const ErrorCode error = rejection_of(request, view);
  if (BP_LIKELY(error == ErrorCode::kNone)) return {};
  if (request.command == Command::kDisc) return {.kind = Kind::kFinish};
  if (request.command != Command::kWrite || request.length == 0) {
    return {.kind = Kind::kRefuse, .error = error};
  }
  if (request.length > kDrainMaxBytes) return {.kind = Kind::kDisconnect};
  return {.kind = Kind::kRefuseAndDrain, .error = error, .drain_bytes = request.length};
}

// Each encode function writes to `out` and returns the number of bytes written.

// The answer to any request while structured replies are not negotiated; with structured replies,
// to any but READ and BLOCK_STATUS. If it answers a READ with kNone, the data must follow. Returns
// 16.
inline size_t encode_simple_reply(ReplyBytes out, uint64_t cookie, ErrorCode error) noexcept {
  const SimpleReply reply{.magic = kSimpleReplyMagic, .error = error, .cookie = cookie};
  std::memcpy(out.data(), &reply, sizeof reply);
  return sizeof reply;
}

// The answer to a READ of `length` bytes at `offset` with structured replies: one chunk, which is
// the last. It claims success, so the whole data must be there, and must follow. Returns 28.
// Requires: 0 < length <= kPayloadMaxBytes, as check() ensures.
inline size_t encode_read_chunk(ReplyBytes out, uint64_t cookie, uint64_t offset,
                                uint32_t length) noexcept {
  BP_DCHECK(length > 0 && length <= kPayloadMaxBytes);
  const auto payload_bytes = static_cast<uint32_t>(sizeof(Be64) + length);
  const OffsetDataChunk chunk{.header = {.magic = kChunkMagic,
                                         .flags = kChunkFlagDone,
                                         .type = ChunkType::kOffsetData,
                                         .cookie = cookie,
                                         .payload_bytes = payload_bytes},
                              .offset = offset};
  std::memcpy(out.data(), &chunk, sizeof chunk);
  return sizeof chunk;
}

// The answer to a BLOCK_STATUS: `descriptor_bytes` of descriptors must follow. Returns 24.
inline size_t encode_block_status(ReplyBytes out, uint64_t cookie,
                                  uint32_t descriptor_bytes) noexcept {
  BP_DCHECK(descriptor_bytes > 0 && descriptor_bytes % sizeof(BlockDescriptor) == 0);
  const BlockStatusChunk chunk{
      .header = {.magic = kChunkMagic,
                 .flags = kChunkFlagDone,
                 .type = ChunkType::kBlockStatus,
                 .cookie = cookie,
                 .payload_bytes = static_cast<uint32_t>(sizeof(Be32)) + descriptor_bytes},
      .context_id = kAllocationContextId};
  std::memcpy(out.data(), &chunk, sizeof chunk);
  return sizeof chunk;
}

// The answer to a BLOCK_STATUS with one descriptor: the whole range is data. Returns 32.
inline size_t encode_all_data(ReplyBytes out, uint64_t cookie, uint32_t length) noexcept {
  BP_DCHECK(length > 0);
  const BlockDescriptor descriptor{.bytes = length, .state = 0};
  const size_t header_bytes = encode_block_status(out, cookie, sizeof descriptor);
  std::memcpy(out.data() + header_bytes, &descriptor, sizeof descriptor);
  return header_bytes + sizeof descriptor;
}

// The answer to a failed READ or BLOCK_STATUS with structured replies, without a message. Returns
// 26.
// Requires: error != kNone.
inline size_t encode_error_chunk(ReplyBytes out, uint64_t cookie, ErrorCode error) noexcept {
  BP_DCHECK(error != ErrorCode::kNone);
  constexpr uint32_t kPayloadBytes = sizeof(ErrorChunk) - sizeof(ChunkHeader);
  const ErrorChunk chunk{.header = {.magic = kChunkMagic,
                                    .flags = kChunkFlagDone,
                                    .type = ChunkType::kError,
                                    .cookie = cookie,
                                    .payload_bytes = kPayloadBytes},
                         .error = error,
                         .message_bytes = 0};
  std::memcpy(out.data(), &chunk, sizeof chunk);
  return sizeof chunk;
}

}  // namespace bedplate::nbd
