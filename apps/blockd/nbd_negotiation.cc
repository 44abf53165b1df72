#include "apps/blockd/nbd_negotiation.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate::nbd {
namespace {

// Name length, name, number of information requests ("Option types", INFO and GO).
constexpr uint32_t kInfoFixedBytes = sizeof(Be32) + sizeof(Be16);
// Name length, name, number of queries ("Option types", LIST_META_CONTEXT and SET_META_CONTEXT).
constexpr uint32_t kContextsFixedBytes = sizeof(Be32) + sizeof(Be32);

bool is_about_contexts(Option option) noexcept {
  return option == Option::kListMetaContext || option == Option::kSetMetaContext;
}

// The index of the export that this field names; an empty field names the default export. SIZE_MAX:
// no such export.
size_t find_export(std::span<const ExportInfo> exports, const HandshakeField& field) noexcept {
  if (field.bytes() > kNameMaxBytes) return SIZE_MAX;
  if (field.bytes() == 0) return exports.empty() ? SIZE_MAX : 0;
  const auto is_it = [&](const ExportInfo& each) { return each.name == field.text(); };
  const auto found = std::find_if(exports.begin(), exports.end(), is_it);
  return found == exports.end() ? SIZE_MAX : static_cast<size_t>(found - exports.begin());
}

}  // namespace

Negotiation::Negotiation(std::span<const ExportInfo> exports) noexcept : exports_(exports) {
  for (const ExportInfo& each : exports) {
    BP_ASSERT(!each.name.empty() && each.name.size() <= kNameMaxBytes);
  }
  reset();
}

bool Negotiation::is_valid() const noexcept {
  if (!output_.is_valid() || (output_.is_empty() && is_listing_)) return false;
  if (is_listing_ && (state_ != State::kNegotiating || list_index_ > exports_.size())) return false;
  if (is_secure_ && tls_ == LayerUse::kNone) return false;
  if ((reason_ != nullptr) != (state_ == State::kDisconnect)) return false;
  switch (state_) {
    case State::kNegotiating: return is_field_valid();
    case State::kTransmission:
      return export_index_ < exports_.size() && (tls_ != LayerUse::kRequired || is_secure_);
    case State::kStartTls: return tls_ != LayerUse::kNone && !is_secure_;
    case State::kDisconnect: return true;
  }
  return false;
}

bool Negotiation::is_field_valid() const noexcept {
  if (field_.missing_bytes() == 0 || option_left_bytes_ > option_bytes_) return false;
  if (option_bytes_ > kOptionSkipMaxBytes) return false;
  const bool is_within = reads_ != Field::kClientFlags && reads_ != Field::kOptionHeader;
  return is_within ? field_.missing_bytes() <= option_left_bytes_ : option_left_bytes_ == 0;
}

void Negotiation::reset(LayerUse tls) noexcept {
  state_ = State::kNegotiating;
  tls_ = tls;
  is_secure_ = false;
  no_zeroes_ = false;
  structured_replies_ = false;
  is_aborted_ = false;
  is_listing_ = false;
  option_bytes_ = 0;
  option_left_bytes_ = 0;
  export_index_ = kNoExport;
  context_index_ = kNoExport;
  reason_ = nullptr;
  output_.clear();
  output_.greet();
  expect(Field::kClientFlags, sizeof(Be32));
  BP_DCHECK_SLOW(is_valid());
}

void Negotiation::tls_started() noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(state_ == State::kStartTls && output_.is_empty());
  state_ = State::kNegotiating;
  is_secure_ = true;
  structured_replies_ = false;
  export_index_ = kNoExport;
  context_index_ = kNoExport;
  expect(Field::kOptionHeader, sizeof(OptionHeader));
}

void Negotiation::output_sent(size_t bytes) noexcept {
  BP_KEEPS_VALID(*this);
  output_.sent(bytes);
  if (output_.is_empty() && is_listing_) continue_list();
}

size_t Negotiation::wanted_bytes() const noexcept {
  if (state_ != State::kNegotiating || !output_.is_empty()) return 0;
  return std::max(field_.missing_bytes(), option_left_bytes_);
}

size_t Negotiation::consume(std::span<const std::byte> input) noexcept {
  BP_KEEPS_VALID(*this);
  size_t taken = 0;
  // A round finishes a field or runs out of input. Empty fields finish without input.
  while (state_ == State::kNegotiating && output_.is_empty()) {
    const uint32_t step_bytes = field_.take(input.subspan(taken));
    taken += step_bytes;
    option_left_bytes_ -= std::min(step_bytes, option_left_bytes_);
    if (field_.missing_bytes() > 0) break;
    finish_field();
  }
  return taken;
}

size_t Negotiation::export_index() const noexcept {
  BP_ASSERT(state_ == State::kTransmission);
  return export_index_;
}

const char* Negotiation::reason() const noexcept {
  BP_ASSERT(state_ == State::kDisconnect);
  return reason_;
}

void Negotiation::expect(Field field, uint32_t bytes) noexcept {
  reads_ = field;
  field_.begin(bytes);
}

void Negotiation::finish_field() noexcept {
  switch (reads_) {
    case Field::kClientFlags: return finish_client_flags();
    case Field::kOptionHeader: return finish_option_header();
    case Field::kExportName: return finish_export_name();
    case Field::kNameLength: return finish_name_length();
    case Field::kName:
      export_index_ = find_export(exports_, field_);
      return is_about_contexts(option_) ? expect(Field::kQueryCount, sizeof(Be32))
                                        : expect(Field::kInfoCount, sizeof(Be16));
    case Field::kInfoCount: return finish_info_count();
    case Field::kInfoRequest: return finish_info_request();
    case Field::kQueryCount: return finish_query_count();
    case Field::kQueryLength: return finish_query_length();
    case Field::kQuery: return finish_query();
    case Field::kIgnoredData: return answer_option();
  }
}

void Negotiation::finish_client_flags() noexcept {
  const auto flags = field_.number<uint32_t>();
  // "The server MUST drop the TCP connection if the client sets an unknown flag." A client that
  // leaves out FIXED_NEWSTYLE is still served, as "Client flags" allows.
  if ((flags & ~(kClientFixedNewstyle | kClientNoZeroes)) != 0) {
    return disconnect("the client set unknown handshake flags");
  }
  no_zeroes_ = (flags & kClientNoZeroes) != 0;
  expect(Field::kOptionHeader, sizeof(OptionHeader));
}

void Negotiation::finish_option_header() noexcept {
  const OptionHeader header = field_.option_header();
  if (header.magic.value() != kOptionMagic) {
    return disconnect("an option did not begin with IHAVEOPT");
  }
  option_ = header.option.value();
  option_bytes_ = header.data_bytes.value();
  if (option_bytes_ > kOptionSkipMaxBytes) {
    return disconnect("an option had more than 64 KiB of data");
  }
  option_left_bytes_ = option_bytes_;
  refusal_ = OptionReplyType::kAck;
  // Never refused: ABORT's data is ignored, and EXPORT_NAME's answer has no error form.
  if (option_ == Option::kAbort) return answer_after_data();
  const bool is_too_early =
      tls_ == LayerUse::kRequired && !is_secure_ && option_ != Option::kStartTls;
  if (is_too_early && option_ == Option::kExportName) {
    return disconnect("EXPORT_NAME came without TLS");
  }
  if (is_too_early) return refuse(OptionReplyType::kErrTlsReqd, "TLS must be negotiated first");
  if (option_ == Option::kExportName) return expect(Field::kExportName, option_bytes_);
  // SET_META_CONTEXT unsets the current context, even if it is refused.
  if (option_ == Option::kSetMetaContext) context_index_ = kNoExport;
  if (option_bytes_ > kOptionDataMaxBytes) {
    return refuse(OptionReplyType::kErrTooBig, "the option's data is longer than 8 KiB");
  }
  switch (option_) {
    case Option::kInfo:
    case Option::kGo:
      if (option_bytes_ < kInfoFixedBytes) {
        return refuse(OptionReplyType::kErrInvalid, "the option's data is too short");
      }
      wants_name_ = false;
      wants_block_size_ = false;
      return expect(Field::kNameLength, sizeof(Be32));
    case Option::kSetMetaContext:
    case Option::kListMetaContext:
      if (option_bytes_ < kContextsFixedBytes) {
        return refuse(OptionReplyType::kErrInvalid, "the option's data is too short");
      }
      wants_context_ = false;
      return expect(Field::kNameLength, sizeof(Be32));
    case Option::kStartTls:
      if (tls_ == LayerUse::kNone) {
        return refuse(OptionReplyType::kErrUnsup, "TLS is not configured here");
      }
      if (is_secure_) return refuse(OptionReplyType::kErrInvalid, "TLS was already negotiated");
      [[fallthrough]];
    case Option::kList:
    case Option::kStructuredReply:
      if (option_bytes_ != 0) {
        return refuse(OptionReplyType::kErrInvalid, "the option takes no data");
      }
      return answer_option();
    default: return refuse(OptionReplyType::kErrUnsup, "the option is not supported");
  }
}

void Negotiation::finish_export_name() noexcept {
  const size_t index = find_export(exports_, field_);
  if (index == kNoExport) return disconnect("EXPORT_NAME named an unknown export");
  output_.answer_export_name(exports_[index], structured_replies_, !no_zeroes_);
  export_index_ = index;
  state_ = State::kTransmission;
}

void Negotiation::finish_name_length() noexcept {
  const auto name_bytes = field_.number<uint32_t>();
  // "MUST be no larger than the option data length - 6"; finish_option_header checked those 6.
  if (name_bytes >
      option_bytes_ - (is_about_contexts(option_) ? kContextsFixedBytes : kInfoFixedBytes)) {
    return refuse(OptionReplyType::kErrInvalid, "the name is longer than the option's data");
  }
  expect(Field::kName, name_bytes);
}

void Negotiation::finish_info_count() noexcept {
  const auto info_count = field_.number<uint16_t>();
  if (option_left_bytes_ != info_count * sizeof(Be16)) {
    return refuse(OptionReplyType::kErrInvalid, "the option's length does not match its contents");
  }
  if (info_count == 0) return answer_option();
  expect(Field::kInfoRequest, sizeof(Be16));
}

void Negotiation::finish_info_request() noexcept {
  const auto type = field_.number<InfoType>();
  wants_name_ |= type == InfoType::kName;
  wants_block_size_ |= type == InfoType::kBlockSize;
  // "The server MUST ignore any information requests it does not understand."
  if (option_left_bytes_ == 0) return answer_option();
  expect(Field::kInfoRequest, sizeof(Be16));
}

void Negotiation::finish_query_count() noexcept {
  queries_left_ = field_.number<uint32_t>();
  // "A LIST without queries asks for all contexts."
  wants_context_ = queries_left_ == 0 && option_ == Option::kListMetaContext;
  expect_query();
}

// Expects the next query; after the last query it answers.
void Negotiation::expect_query() noexcept {
  if (queries_left_ == 0 ? option_left_bytes_ != 0 : option_left_bytes_ < sizeof(Be32)) {
    return refuse(OptionReplyType::kErrInvalid, "the option's length does not match its contents");
  }
  if (queries_left_ == 0) return answer_option();
  expect(Field::kQueryLength, sizeof(Be32));
}

void Negotiation::finish_query_length() noexcept {
  const auto query_bytes = field_.number<uint32_t>();
  if (query_bytes > option_left_bytes_) {
    return refuse(OptionReplyType::kErrInvalid, "a query is longer than the option's data");
  }
  expect(Field::kQuery, query_bytes);
}

// "The server MUST ignore queries it does not understand."
void Negotiation::finish_query() noexcept {
  const std::string_view query = field_.text();
  wants_context_ |= query == kAllocationContext ||
                    (query == kBaseNamespace && option_ == Option::kListMetaContext);
  BP_DCHECK(queries_left_ > 0);
  --queries_left_;
  expect_query();
}

// Refuses the option once its remaining data have been skipped.
void Negotiation::refuse(OptionReplyType type, std::string_view text) noexcept {
  BP_ASSERT(text.size() <= HandshakeOutput::kErrorTextMaxBytes);
  refusal_ = type;
  refusal_text_ = text;
  answer_after_data();
}

void Negotiation::answer_after_data() noexcept { expect(Field::kIgnoredData, option_left_bytes_); }

// Answers an option whose data have arrived completely.
void Negotiation::answer_option() noexcept {
  BP_ASSERT(option_left_bytes_ == 0);
  expect(Field::kOptionHeader, sizeof(OptionHeader));
  if (refusal_ != OptionReplyType::kAck) {
    return output_.refuse(option_, refusal_, refusal_text_);
  }
  switch (option_) {
    case Option::kInfo:
    case Option::kGo: return answer_info();
    case Option::kListMetaContext:
    case Option::kSetMetaContext: return answer_contexts();
    case Option::kList:
      list_index_ = 0;
      is_listing_ = true;
      return continue_list();
    case Option::kStructuredReply: structured_replies_ = true; return output_.acknowledge(option_);
    case Option::kStartTls: state_ = State::kStartTls; return output_.acknowledge(option_);
    default:
      BP_ASSERT(option_ == Option::kAbort);
      output_.acknowledge(option_);
      is_aborted_ = true;
      return disconnect("the client aborted the negotiation");
  }
}

// Answers INFO and GO, which differ only in the state that follows.
void Negotiation::answer_info() noexcept {
  if (export_index_ == kNoExport) {
    return refuse(OptionReplyType::kErrUnknown, "no export has this name");
  }
  BP_DCHECK(export_index_ < exports_.size());
  const ExportInfo& info = exports_[export_index_];
  output_.tell_export(option_, info, structured_replies_);
  if (wants_block_size_) output_.tell_block_sizes(option_);
  if (wants_name_) output_.tell_name(option_, info);
  output_.acknowledge(option_);
  if (option_ == Option::kGo) state_ = State::kTransmission;
}

void Negotiation::answer_contexts() noexcept {
  if (!structured_replies_) {
    return refuse(OptionReplyType::kErrInvalid, "structured replies must be negotiated first");
  }
  if (export_index_ == kNoExport) {
    return refuse(OptionReplyType::kErrUnknown, "no export has this name");
  }
  const bool is_set = option_ == Option::kSetMetaContext;
  if (wants_context_) {
    output_.tell_context(option_, is_set ? kAllocationContextId : 0);
    if (is_set) context_index_ = export_index_;
  }
  output_.acknowledge(option_);
}

// Fills the output with as many entries as fit; output_sent() calls again until all are listed.
void Negotiation::continue_list() noexcept {
  for (; list_index_ < exports_.size(); ++list_index_) {
    if (!output_.try_list(exports_[list_index_])) return;
  }
  if (!output_.try_end_list()) return;
  is_listing_ = false;
}

void Negotiation::disconnect(const char* reason) noexcept {
  BP_DCHECK(state_ == State::kNegotiating && reason != nullptr);
  state_ = State::kDisconnect;
  reason_ = reason;
}

}  // namespace bedplate::nbd
