// The handshake of NBD, without input or output: it takes bytes as they arrive, and yields bytes to
// send.
//
// Each connection has one object, in planned memory. It has fixed arrays and allocates nothing, so
// no conversation, however long or hostile, changes its size. It reads an option field by field
// (HandshakeField) and never holds a whole one, so 8 KiB of data need no 8 KiB of memory.
// HandshakeOutput encodes the answers. It has no clock: the owner of the socket ends a handshake
// that takes too long.
// Source: doc/proto.md of the NBD project, sections "Fixed newstyle negotiation", "Option types"
// and "Option reply types"; docs/nbd.md lists the answer to each option.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "apps/blockd/nbd_export.h"
#include "apps/blockd/nbd_handshake_field.h"
#include "apps/blockd/nbd_handshake_output.h"
#include "apps/blockd/nbd_wire.h"
#include "platform/assert.h"
#include "transport/sockets/layer_use.h"

namespace bedplate::nbd {

// An option with more data than kOptionDataMaxBytes is skipped and refused; EXPORT_NAME and ABORT
// are exceptions. More data than kOptionSkipMaxBytes ends the connection.
inline constexpr uint32_t kOptionDataMaxBytes = 8 * kKiB;
inline constexpr uint32_t kOptionSkipMaxBytes = 64 * kKiB;

// Its layer is TLS ("Encryption"). If that is required, the server carries out only STARTTLS and
// ABORT before it; it refuses each other option, and EXPORT_NAME ends the connection.
//
// Use: send the pending output, then consume the bytes that arrive, until the state is not
// kNegotiating. Then send the rest of the output, and continue as the state says. One round:
//
//     while (!n.pending_output().empty()) n.output_sent(send(n.pending_output()));
//     if (n.state() == kNegotiating) n.consume(receive(at most n.wanted_bytes()));
//
// Invariants, which is_valid() checks before and after each call: 1. While negotiating, the field
// that is read lacks at least one byte, and none beyond the data of its option. 2. The output is
// valid, and not empty while a LIST is in progress. 3. In kTransmission an export is chosen, and
// TLS runs if it is required. 4. TLS starts at most once, and never with LayerUse::kNone.
// 5. kDisconnect has a reason.
// Threads: one at a time.
class Negotiation {
 public:
  enum class State : uint8_t {
    kNegotiating,   // wants bytes, or has bytes to send
    kTransmission,  // agreed: the bytes that follow are requests
    kStartTls,      // TLS begins once the pending output is sent: then call tls_started()
    kDisconnect,    // over: close once the pending output is sent
  };

  // Requires: `exports` and their names outlive this. The first is the default export.
  explicit Negotiation(std::span<const ExportInfo> exports) noexcept;
  Negotiation(const Negotiation&) = delete;
  Negotiation& operator=(const Negotiation&) = delete;

  // Begins anew, for the next connection: the greeting is pending.
  void reset(LayerUse tls = LayerUse::kNone) noexcept;
  // From now on TLS protects the bytes. Forgets all options agreed before; the client's flags stay.
  // Requires: kStartTls, and nothing is pending.
  void tls_started() noexcept;

  State state() const noexcept { return state_; }

  // The bytes to send next, at most kOutputCapacityBytes; valid until the next call that is not
  // const. A long answer (LIST) comes in several steps.
  std::span<const std::byte> pending_output() const noexcept { return output_.pending(); }

  // Removes the first `bytes` of the pending output. Requires: there are that many.
  void output_sent(size_t bytes) noexcept;

  // Takes bytes that arrived, in order. Returns the number of bytes taken: it stops as soon as
  // there is output to send, and when the negotiation is over. The caller keeps the rest. It offers
  // the rest again after the output, or reads it as requests in kTransmission. In kStartTls a rest
  // is an error: these bytes came without TLS.
  [[nodiscard]] size_t consume(std::span<const std::byte> input) noexcept;

  // The number of next bytes that surely belong to the negotiation: consume() takes them at once.
  // It is 0 while there is output to send, and when the negotiation is over. A caller that receives
  // at most this many bytes never has bytes left over.
  size_t wanted_bytes() const noexcept;

  // The chosen export, as an index into the exports. Requires: kTransmission.
  size_t export_index() const noexcept;

  // Whether READ and BLOCK_STATUS must be answered with structured replies.
  bool structured_replies() const noexcept { return structured_replies_; }

  // Whether the client may send BLOCK_STATUS: base:allocation is set for the chosen export.
  // Requires: kTransmission.
  bool block_status() const noexcept {
    BP_ASSERT(state_ == State::kTransmission);
    return context_index_ == export_index_;
  }

  // The reason for the disconnect, as static text without a full stop. Requires: kDisconnect.
  const char* reason() const noexcept;

  // Whether the client ended the negotiation by ABORT, which is no misbehaviour.
  bool is_aborted() const noexcept { return is_aborted_; }

  bool is_valid() const noexcept;

  static constexpr size_t kOutputCapacityBytes = HandshakeOutput::kCapacityBytes;

 private:
  // The field that is being read.
  enum class Field : uint8_t {
    kClientFlags,
    kOptionHeader,
    kExportName,  // all data of EXPORT_NAME
    kNameLength,  // of INFO, GO, LIST_META_CONTEXT and SET_META_CONTEXT
    kName,
    kInfoCount,    // of INFO and GO
    kInfoRequest,  // one of the information requests
    kQueryCount,   // of LIST_META_CONTEXT and SET_META_CONTEXT
    kQueryLength,
    kQuery,        // one of the queries
    kIgnoredData,  // the rest of an option whose answer is decided
  };

  bool is_field_valid() const noexcept;
  void expect(Field field, uint32_t bytes) noexcept;
  void finish_field() noexcept;
  void finish_client_flags() noexcept;
  void finish_option_header() noexcept;
  void finish_export_name() noexcept;
  void finish_name_length() noexcept;
  void finish_info_count() noexcept;
  void finish_info_request() noexcept;
  void finish_query_count() noexcept;
  void finish_query_length() noexcept;
  void finish_query() noexcept;
  void expect_query() noexcept;

  void refuse(OptionReplyType type, std::string_view text) noexcept;
  void answer_after_data() noexcept;
  void answer_option() noexcept;
  void answer_info() noexcept;
  void answer_contexts() noexcept;
  void continue_list() noexcept;
  void disconnect(const char* reason) noexcept;

  static constexpr size_t kNoExport = SIZE_MAX;

  std::span<const ExportInfo> exports_;
  State state_ = State::kNegotiating;
  Field reads_ = Field::kClientFlags;
  LayerUse tls_ = LayerUse::kNone;
  bool is_secure_ = false;
  bool no_zeroes_ = false;
  bool structured_replies_ = false;
  bool is_aborted_ = false;
  bool is_listing_ = false;  // continue_list() continues when the output is sent
  bool wants_name_ = false;  // the information requests of this INFO or GO
  bool wants_block_size_ = false;
  bool wants_context_ = false;  // a query named base:allocation
  HandshakeField field_;
  Option option_ = Option::kAbort;                   // the option that is being read or answered
  uint32_t option_bytes_ = 0;                        // the length of its data
  uint32_t option_left_bytes_ = 0;                   // the bytes of its data that have not arrived
  OptionReplyType refusal_ = OptionReplyType::kAck;  // kAck: it is not refused
  std::string_view refusal_text_;
  size_t export_index_ = kNoExport;
  size_t context_index_ = kNoExport;  // the export that base:allocation is set for
  uint32_t queries_left_ = 0;
  size_t list_index_ = 0;
  const char* reason_ = nullptr;
  HandshakeOutput output_;
};
static_assert(sizeof(Negotiation) <= 1024, "one for each of up to 4096 connections");
static_assert(std::is_trivially_destructible_v<Negotiation>);

}  // namespace bedplate::nbd
