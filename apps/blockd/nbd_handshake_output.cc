#include "apps/blockd/nbd_handshake_output.h"

#include <cstring>

#include "platform/assert.h"

namespace bedplate::nbd {
namespace {

constexpr std::byte kZeroes[kReservedZeroesBytes] = {};

constexpr size_t kServerReplyMaxBytes =
    sizeof(OptionReplyHeader) + sizeof(ServerReply) + kNameMaxBytes;
constexpr size_t kInfoReplyMaxBytes = sizeof(OptionReplyHeader) + sizeof(InfoExport) +
                                      sizeof(OptionReplyHeader) + sizeof(InfoBlockSize) +
                                      sizeof(OptionReplyHeader) + sizeof(InfoName) + kNameMaxBytes +
                                      sizeof(OptionReplyHeader);
// Each answer begins with an empty array, so the array only has to hold the largest answer.
static_assert(sizeof(Greeting) <= HandshakeOutput::kCapacityBytes);
static_assert(sizeof(ExportNameReply) + kReservedZeroesBytes <= HandshakeOutput::kCapacityBytes);
static_assert(sizeof(OptionReplyHeader) + HandshakeOutput::kErrorTextMaxBytes <=
              HandshakeOutput::kCapacityBytes);
static_assert(kServerReplyMaxBytes <= HandshakeOutput::kCapacityBytes);
static_assert(kInfoReplyMaxBytes <= HandshakeOutput::kCapacityBytes);

}  // namespace

void HandshakeOutput::sent(size_t count) noexcept {
  BP_ASSERT(count <= end_ - begin_);
  begin_ += count;
  if (begin_ == end_) clear();
}

void HandshakeOutput::greet() noexcept {
  const Greeting greeting{.greeting_magic = kGreetingMagic,
                          .option_magic = kOptionMagic,
                          .handshake_flags = kHandshakeFixedNewstyle | kHandshakeNoZeroes};
  append(&greeting, sizeof greeting);
}

void HandshakeOutput::acknowledge(Option option) noexcept {
  append_header(option, OptionReplyType::kAck, 0);
}

void HandshakeOutput::refuse(Option option, OptionReplyType error, std::string_view text) noexcept {
  append_header(option, error, text.size());
  append(text.data(), text.size());
}

void HandshakeOutput::answer_export_name(const ExportInfo& info, bool structured_replies,
                                         bool zeroes) noexcept {
  const ExportNameReply reply{.export_bytes = info.bytes,
                              .transmission_flags = transmission_flags(info, structured_replies)};
  append(&reply, sizeof reply);
  if (zeroes) append(kZeroes, sizeof kZeroes);
}

void HandshakeOutput::tell_export(Option option, const ExportInfo& info,
                                  bool structured_replies) noexcept {
  const InfoExport about{.type = InfoType::kExport,
                         .export_bytes = info.bytes,
                         .transmission_flags = transmission_flags(info, structured_replies)};
  append_header(option, OptionReplyType::kInfo, sizeof about);
  append(&about, sizeof about);
}

void HandshakeOutput::tell_block_sizes(Option option) noexcept {
  const InfoBlockSize sizes{.type = InfoType::kBlockSize,
                            .block_min_bytes = kBlockMinBytes,
                            .block_preferred_bytes = kBlockPreferredBytes,
                            .payload_max_bytes = kPayloadMaxBytes};
  append_header(option, OptionReplyType::kInfo, sizeof sizes);
  append(&sizes, sizeof sizes);
}

void HandshakeOutput::tell_name(Option option, const ExportInfo& info) noexcept {
  const InfoName name{.type = InfoType::kName};
  append_header(option, OptionReplyType::kInfo, sizeof name + info.name.size());
  append(&name, sizeof name);
  append(info.name.data(), info.name.size());
}

void HandshakeOutput::tell_context(Option option, uint32_t id) noexcept {
  const MetaContext context{.context_id = id};
  append_header(option, OptionReplyType::kMetaContext, sizeof context + kAllocationContext.size());
  append(&context, sizeof context);
  append(kAllocationContext.data(), kAllocationContext.size());
}

bool HandshakeOutput::try_list(const ExportInfo& info) noexcept {
  if (room_bytes() < kServerReplyMaxBytes) return false;
  const ServerReply server{.name_bytes = static_cast<uint32_t>(info.name.size())};
  append_header(Option::kList, OptionReplyType::kServer, sizeof server + info.name.size());
  append(&server, sizeof server);
  append(info.name.data(), info.name.size());
  return true;
}

bool HandshakeOutput::try_end_list() noexcept {
  if (room_bytes() < sizeof(OptionReplyHeader)) return false;
  acknowledge(Option::kList);
  return true;
}

void HandshakeOutput::append(const void* data, size_t count) noexcept {
  BP_ASSERT(count <= room_bytes());
  std::memcpy(bytes_ + end_, data, count);
  end_ += count;
}

void HandshakeOutput::append_header(Option option, OptionReplyType type,
                                    size_t data_bytes) noexcept {
  const OptionReplyHeader header{.magic = kOptionReplyMagic,
                                 .option = option,
                                 .type = type,
                                 .data_bytes = static_cast<uint32_t>(data_bytes)};
  append(&header, sizeof header);
}

}  // namespace bedplate::nbd
