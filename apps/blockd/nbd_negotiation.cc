#include "apps/blockd/nbd_negotiation.h"

#include <algorithm>
#include <cstring>

#include "platform/assert.h"

namespace bedplate::nbd {
namespace {

// Name length, name, number of information requests ("Option types", INFO and GO).
constexpr uint32_t kInfoFixedBytes = sizeof(Be32) + sizeof(Be16);
// Name length, name, number of queries ("Option types", LIST_META_CONTEXT and SET_META_CONTEXT).
constexpr uint32_t kContextsFixedBytes = sizeof(Be32) + sizeof(Be32);

constexpr std::byte kZeroes[kReservedZeroesBytes] = {};

// Each step begins with an empty buffer, so it is large enough when the largest step fits.
constexpr size_t kServerReplyMaxBytes =
    sizeof(OptionReplyHeader) + sizeof(ServerReply) + kNameMaxBytes;
constexpr size_t kInfoReplyMaxBytes = sizeof(OptionReplyHeader) + sizeof(InfoExport) +
                                      sizeof(OptionReplyHeader) + sizeof(InfoBlockSize) +
                                      sizeof(OptionReplyHeader) + sizeof(InfoName) + kNameMaxBytes +
                                      sizeof(OptionReplyHeader);
static_assert(sizeof(OptionHeader) <= kNameMaxBytes, "a field of fixed length is kept as a whole");
static_assert(sizeof(Greeting) <= Negotiation::kOutputCapacityBytes);
static_assert(sizeof(ExportNameReply) + kReservedZeroesBytes <= Negotiation::kOutputCapacityBytes);
static_assert(sizeof(OptionReplyHeader) + Negotiation::kErrorTextMaxBytes <=
              Negotiation::kOutputCapacityBytes);
static_assert(kServerReplyMaxBytes <= Negotiation::kOutputCapacityBytes);
static_assert(kAllocationContext.size() <= kNameMaxBytes, "a query that could match is kept whole");
static_assert(kInfoReplyMaxBytes <= Negotiation::kOutputCapacityBytes);

}  // namespace

Negotiation::Negotiation(std::span<const ExportInfo> exports) noexcept : exports_(exports) {
  for (const ExportInfo& each : exports) {
    BP_ASSERT(!each.name.empty() && each.name.size() <= kNameMaxBytes);
  }
  reset();
}

bool Negotiation::is_valid() const noexcept {
  if (output_begin_ > output_end_ || output_end_ > kOutputCapacityBytes) return false;
  if (output_begin_ == output_end_ && (output_end_ > 0 || is_listing_)) return false;
  if (is_listing_ && (state_ != State::kNegotiating || list_index_ > exports_.size())) return false;
  if (is_secure_ && tls_ == Tls::kNone) return false;
  if ((reason_ != nullptr) != (state_ == State::kDisconnect)) return false;
  switch (state_) {
    case State::kNegotiating: return is_field_valid();
    case State::kTransmission:
      return export_index_ < exports_.size() && (tls_ != Tls::kRequired || is_secure_);
    case State::kStartTls: return tls_ != Tls::kNone && !is_secure_;
    case State::kDisconnect: return true;
  }
  return false;
}

bool Negotiation::is_field_valid() const noexcept {
  if (field_have_bytes_ >= field_bytes_ || option_left_bytes_ > option_bytes_) return false;
  if (option_bytes_ > kOptionSkipMaxBytes) return false;
  const bool is_within = field_ != Field::kClientFlags && field_ != Field::kOptionHeader;
  return is_within ? field_bytes_ - field_have_bytes_ <= option_left_bytes_
                   : option_left_bytes_ == 0;
}

void Negotiation::reset(Tls tls) noexcept {
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
  output_begin_ = 0;
  output_end_ = 0;
  const Greeting greeting{.greeting_magic = kGreetingMagic,
                          .option_magic = kOptionMagic,
                          .handshake_flags = kHandshakeFixedNewstyle | kHandshakeNoZeroes};
  append(&greeting, sizeof greeting);
  expect(Field::kClientFlags, sizeof(Be32));
  BP_DCHECK_SLOW(is_valid());
}

void Negotiation::tls_started() noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(state_ == State::kStartTls && output_end_ == 0);
  state_ = State::kNegotiating;
  is_secure_ = true;
  structured_replies_ = false;
  export_index_ = kNoExport;
  context_index_ = kNoExport;
  expect(Field::kOptionHeader, sizeof(OptionHeader));
}

void Negotiation::output_sent(size_t bytes) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(bytes <= output_end_ - output_begin_);
  output_begin_ += bytes;
  if (output_begin_ < output_end_) return;
  output_begin_ = 0;
  output_end_ = 0;
  if (is_listing_) continue_list();
}

size_t Negotiation::wanted_bytes() const noexcept {
  if (state_ != State::kNegotiating || output_end_ != 0) return 0;
  return std::max(field_bytes_ - field_have_bytes_, option_left_bytes_);
}

size_t Negotiation::consume(std::span<const std::byte> input) noexcept {
  BP_KEEPS_VALID(*this);
  size_t taken = 0;
  // A round finishes a field or runs out of input. Fields of no bytes finish without any.
  while (state_ == State::kNegotiating && output_end_ == 0) {
    const size_t step_bytes =
        std::min<size_t>(field_bytes_ - field_have_bytes_, input.size() - taken);
    if (field_have_bytes_ < kFieldKeptBytes) {
      std::copy_n(input.data() + taken,
                  std::min<size_t>(step_bytes, kFieldKeptBytes - field_have_bytes_),
                  field_data_ + field_have_bytes_);
    }
    taken += step_bytes;
    field_have_bytes_ += static_cast<uint32_t>(step_bytes);
    option_left_bytes_ -= static_cast<uint32_t>(std::min<size_t>(step_bytes, option_left_bytes_));
    if (field_have_bytes_ < field_bytes_) break;
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
  field_ = field;
  field_bytes_ = bytes;
  field_have_bytes_ = 0;
}

void Negotiation::finish_field() noexcept {
  switch (field_) {
    case Field::kClientFlags: return finish_client_flags();
    case Field::kOptionHeader: return finish_option_header();
    case Field::kExportName: return finish_export_name();
    case Field::kNameLength: return finish_name_length();
    case Field::kName:
      export_index_ = find_named_export();
      return is_about_contexts() ? expect(Field::kQueryCount, sizeof(Be32))
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
  const auto flags = load_be<uint32_t>(field_data_);
  // "The server MUST drop the TCP connection if the client sets an unknown flag." A client that
  // leaves out FIXED_NEWSTYLE is served all the same, as "Client flags" allows.
  if ((flags & ~(kClientFixedNewstyle | kClientNoZeroes)) != 0) {
    return disconnect("the client set unknown handshake flags");
  }
  no_zeroes_ = (flags & kClientNoZeroes) != 0;
  expect(Field::kOptionHeader, sizeof(OptionHeader));
}

void Negotiation::finish_option_header() noexcept {
  OptionHeader header;
  std::memcpy(&header, field_data_, sizeof header);
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
  // These two cannot be refused: ABORT's data is ignored, EXPORT_NAME's answer has no error form.
  if (option_ == Option::kAbort) return answer_after_data();
  const bool is_too_early = tls_ == Tls::kRequired && !is_secure_ && option_ != Option::kStartTls;
  if (is_too_early && option_ == Option::kExportName) {
    return disconnect("EXPORT_NAME came without TLS");
  }
  if (is_too_early) return refuse(OptionReplyType::kErrTlsReqd, "TLS must be negotiated first");
  if (option_ == Option::kExportName) return expect(Field::kExportName, option_bytes_);
  // SET_META_CONTEXT unsets the context that was set before, even if it is refused.
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
      if (tls_ == Tls::kNone) {
        return refuse(OptionReplyType::kErrUnsup, "TLS is not configured here");
      }
      if (is_secure_) return refuse(OptionReplyType::kErrInvalid, "TLS was negotiated before");
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
  const size_t index = find_named_export();
  if (index == kNoExport) return disconnect("EXPORT_NAME named no export");
  const ExportInfo& info = exports_[index];
  const ExportNameReply reply{.export_bytes = info.bytes,
                              .transmission_flags = transmission_flags(info, structured_replies_)};
  append(&reply, sizeof reply);
  if (!no_zeroes_) append(kZeroes, sizeof kZeroes);
  export_index_ = index;
  state_ = State::kTransmission;
}

void Negotiation::finish_name_length() noexcept {
  const auto name_bytes = load_be<uint32_t>(field_data_);
  // "MUST be no larger than the option data length - 6"; finish_option_header checked those 6.
  if (name_bytes > option_bytes_ - (is_about_contexts() ? kContextsFixedBytes : kInfoFixedBytes)) {
    return refuse(OptionReplyType::kErrInvalid, "the name is longer than the option's data");
  }
  expect(Field::kName, name_bytes);
}

void Negotiation::finish_info_count() noexcept {
  const auto info_count = load_be<uint16_t>(field_data_);
  if (option_left_bytes_ != info_count * sizeof(Be16)) {
    return refuse(OptionReplyType::kErrInvalid, "the option's data does not fit its contents");
  }
  if (info_count == 0) return answer_option();
  expect(Field::kInfoRequest, sizeof(Be16));
}

void Negotiation::finish_info_request() noexcept {
  const auto type = load_be<InfoType>(field_data_);
  wants_name_ |= type == InfoType::kName;
  wants_block_size_ |= type == InfoType::kBlockSize;
  // "The server MUST ignore any information requests it does not understand."
  if (option_left_bytes_ == 0) return answer_option();
  expect(Field::kInfoRequest, sizeof(Be16));
}

void Negotiation::finish_query_count() noexcept {
  queries_left_ = load_be<uint32_t>(field_data_);
  // "A LIST without queries asks for all contexts."
  wants_context_ = queries_left_ == 0 && option_ == Option::kListMetaContext;
  expect_query();
}

// Expects the next query; after the last it answers.
void Negotiation::expect_query() noexcept {
  if (queries_left_ == 0 ? option_left_bytes_ != 0 : option_left_bytes_ < sizeof(Be32)) {
    return refuse(OptionReplyType::kErrInvalid, "the option's data does not fit its contents");
  }
  if (queries_left_ == 0) return answer_option();
  expect(Field::kQueryLength, sizeof(Be32));
}

void Negotiation::finish_query_length() noexcept {
  const auto query_bytes = load_be<uint32_t>(field_data_);
  if (query_bytes > option_left_bytes_) {
    return refuse(OptionReplyType::kErrInvalid, "a query is longer than the option's data");
  }
  expect(Field::kQuery, query_bytes);
}

// "The server MUST ignore queries it does not understand."
void Negotiation::finish_query() noexcept {
  const std::string_view query(reinterpret_cast<const char*>(field_data_),
                               std::min<size_t>(field_bytes_, kFieldKeptBytes));
  wants_context_ |= query == kAllocationContext ||
                    (query == kBaseNamespace && option_ == Option::kListMetaContext);
  BP_DCHECK(queries_left_ > 0);
  --queries_left_;
  expect_query();
}

// Refuses the option once its data has passed by.
void Negotiation::refuse(OptionReplyType type, std::string_view text) noexcept {
  BP_ASSERT(text.size() <= kErrorTextMaxBytes);
  refusal_ = type;
  refusal_text_ = text;
  answer_after_data();
}

void Negotiation::answer_after_data() noexcept { expect(Field::kIgnoredData, option_left_bytes_); }

// Answers an option whose data has arrived as a whole.
void Negotiation::answer_option() noexcept {
  BP_ASSERT(option_left_bytes_ == 0);
  expect(Field::kOptionHeader, sizeof(OptionHeader));
  if (refusal_ != OptionReplyType::kAck) {
    append_reply(refusal_, refusal_text_.size());
    return append(refusal_text_.data(), refusal_text_.size());
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
    case Option::kStructuredReply:
      structured_replies_ = true;
      return append_reply(OptionReplyType::kAck, 0);
    case Option::kStartTls:
      state_ = State::kStartTls;
      return append_reply(OptionReplyType::kAck, 0);
    default:
      BP_ASSERT(option_ == Option::kAbort);
      append_reply(OptionReplyType::kAck, 0);
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
  const InfoExport about{.type = InfoType::kExport,
                         .export_bytes = info.bytes,
                         .transmission_flags = transmission_flags(info, structured_replies_)};
  append_reply(OptionReplyType::kInfo, sizeof about);
  append(&about, sizeof about);
  if (wants_block_size_) {
    const InfoBlockSize sizes{.type = InfoType::kBlockSize,
                              .block_min_bytes = kBlockMinBytes,
                              .block_preferred_bytes = kBlockPreferredBytes,
                              .payload_max_bytes = kPayloadMaxBytes};
    append_reply(OptionReplyType::kInfo, sizeof sizes);
    append(&sizes, sizeof sizes);
  }
  if (wants_name_) {
    const InfoName name{.type = InfoType::kName};
    append_reply(OptionReplyType::kInfo, sizeof name + info.name.size());
    append(&name, sizeof name);
    append(info.name.data(), info.name.size());
  }
  append_reply(OptionReplyType::kAck, 0);
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
    const MetaContext context{.context_id = is_set ? kAllocationContextId : 0};
    append_reply(OptionReplyType::kMetaContext, sizeof context + kAllocationContext.size());
    append(&context, sizeof context);
    append(kAllocationContext.data(), kAllocationContext.size());
    if (is_set) context_index_ = export_index_;
  }
  append_reply(OptionReplyType::kAck, 0);
}

// Fills the output with as many entries as fit; output_sent() calls again until all are told.
void Negotiation::continue_list() noexcept {
  for (; list_index_ < exports_.size(); ++list_index_) {
    if (output_room_bytes() < kServerReplyMaxBytes) return;
    const std::string_view name = exports_[list_index_].name;
    const ServerReply server{.name_bytes = static_cast<uint32_t>(name.size())};
    append_reply(OptionReplyType::kServer, sizeof server + name.size());
    append(&server, sizeof server);
    append(name.data(), name.size());
  }
  if (output_room_bytes() < sizeof(OptionReplyHeader)) return;
  append_reply(OptionReplyType::kAck, 0);
  is_listing_ = false;
}

void Negotiation::disconnect(const char* reason) noexcept {
  BP_DCHECK(state_ == State::kNegotiating && reason != nullptr);
  state_ = State::kDisconnect;
  reason_ = reason;
}

void Negotiation::append(const void* data, size_t bytes) noexcept {
  BP_ASSERT(bytes <= output_room_bytes());
  std::memcpy(output_ + output_end_, data, bytes);
  output_end_ += bytes;
}

void Negotiation::append_reply(OptionReplyType type, size_t data_bytes) noexcept {
  const OptionReplyHeader header{.magic = kOptionReplyMagic,
                                 .option = option_,
                                 .type = type,
                                 .data_bytes = static_cast<uint32_t>(data_bytes)};
  append(&header, sizeof header);
}

// The export that the field just read names; a field of no bytes names the default export.
size_t Negotiation::find_named_export() const noexcept {
  if (field_bytes_ > kNameMaxBytes) return kNoExport;
  if (field_bytes_ == 0) return exports_.empty() ? kNoExport : 0;
  const std::string_view name(reinterpret_cast<const char*>(field_data_), field_bytes_);
  for (size_t index = 0; index < exports_.size(); ++index) {
    if (exports_[index].name == name) return index;
  }
  return kNoExport;
}

}  // namespace bedplate::nbd
