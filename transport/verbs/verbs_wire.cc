#include "transport/verbs/verbs_wire.h"

namespace bedplate {
namespace {

uint32_t checksum_of(const ExchangeRecord& record) noexcept {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
  uint32_t hash = 2166136261u;  // FNV-1a
  for (size_t i = 0; i < offsetof(ExchangeRecord, checksum); ++i) {
    hash = (hash ^ bytes[i]) * 16777619;
  }
  return hash;
}

bool is_name(const char (&name)[kVerbsNameBytes]) noexcept {
  return name[0] != '\0' && std::memchr(name, '\0', sizeof name) != nullptr;
}

}  // namespace

const char* to_text(Refusal refusal) noexcept {
  switch (refusal) {
    case Refusal::kNone: return "nothing";
    case Refusal::kNotListed: return "its list of peers does not have this name";
    case Refusal::kCrossing: return "both sides dialed at once";
    case Refusal::kVersion: return "it speaks another version";
    case Refusal::kShape: return "its window or its messages have another size";
    case Refusal::kCutOff: return "this side broke the rules before";
    case Refusal::kDevice: return "its device cannot connect to this one";
    case Refusal::kMalformed: return "a malformed record";
  }
  return "an unknown reason";
}

void finish_record(ExchangeRecord& record) noexcept {
  std::memcpy(record.magic, kExchangeMagic, sizeof record.magic);
  record.version = kExchangeVersion;
  record.checksum = checksum_of(record);
}

bool has_magic(const ExchangeRecord& record) noexcept {
  return std::memcmp(record.magic, kExchangeMagic, sizeof record.magic) == 0;
}

Refusal check_record(const ExchangeRecord& record, ExchangeKind expected) noexcept {
  if (!has_magic(record)) return Refusal::kMalformed;
  if (record.version != kExchangeVersion) return Refusal::kVersion;
  const bool is_good = record.checksum == checksum_of(record) && is_name(record.name) &&
                       record.kind == static_cast<uint16_t>(expected) && record.zero == 0 &&
                       record.instance != 0 && record.packet_number <= 0xff'ffff &&
                       record.queue_pair <= 0xff'ffff && record.mtu >= 1 && record.mtu <= 5 &&
                       record.reads_max >= 1;
  return is_good ? Refusal::kNone : Refusal::kMalformed;
}

}  // namespace bedplate
