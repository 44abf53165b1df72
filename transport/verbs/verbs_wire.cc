#include "transport/verbs/verbs_wire.h"

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr char kCmMagic[3] = {'B', 'P', 'V'};

uint32_t fnv_1a(const void* data, size_t bytes) noexcept {
  const auto* at = static_cast<const uint8_t*>(data);
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 16777619;
  return hash;
}

uint32_t checksum_of(const HandshakeRecord& record) noexcept {
  return fnv_1a(&record, offsetof(HandshakeRecord, checksum));
}

bool is_name(const char (&name)[kVerbsNameBytes]) noexcept {
  return name[0] != '\0' && std::memchr(name, '\0', sizeof name) != nullptr;
}

}  // namespace

const char* to_text(Refusal refusal) noexcept {
  switch (refusal) {
    case Refusal::kNone: return "nothing";
    case Refusal::kNotListed: return "its list of peers does not contain this name";
    case Refusal::kCrossing: return "both sides dialed at once";
    case Refusal::kVersion: return "it uses another version";
    case Refusal::kShape: return "its window or its messages have another size";
    case Refusal::kCutOff: return "this side violated the protocol before";
    case Refusal::kDevice: return "its device cannot connect to this one";
    case Refusal::kMalformed: return "a malformed record";
  }
  return "an unknown reason";
}

const char* cure_of(Refusal refusal) noexcept {
  switch (refusal) {
    case Refusal::kNotListed: return "list this appliance there, by its name";
    case Refusal::kVersion: return "run the same release on both sides";
    case Refusal::kShape: return "give both sides the same window and message_bytes";
    case Refusal::kCutOff: return "see its log for why, and restart this side";
    case Refusal::kDevice: return "see its log for why";
    case Refusal::kMalformed: return "find out what listens there";
    case Refusal::kNone:
    case Refusal::kCrossing: break;
  }
  return "see its log";
}

void finish_record(HandshakeRecord& record) noexcept {
  std::memcpy(record.magic, kHandshakeMagic, sizeof record.magic);
  record.version = kHandshakeVersion;
  record.checksum = checksum_of(record);
}

bool has_magic(const HandshakeRecord& record) noexcept {
  return std::memcmp(record.magic, kHandshakeMagic, sizeof record.magic) == 0;
}

Refusal check_record(const HandshakeRecord& record, HandshakeKind expected) noexcept {
  if (!has_magic(record)) return Refusal::kMalformed;
  if (record.version != kHandshakeVersion) return Refusal::kVersion;
  const bool is_good = record.checksum == checksum_of(record) && is_name(record.name) &&
                       record.kind == static_cast<uint16_t>(expected) &&
                       record.datagram_queue <= 0xff'ffff && record.instance != 0 &&
                       record.packet_number <= 0xff'ffff && record.queue_pair <= 0xff'ffff &&
                       record.mtu >= 1 && record.mtu <= 5 && record.reads_max >= 1;
  return is_good ? Refusal::kNone : Refusal::kMalformed;
}

uint32_t hash_of_name(const char* name) noexcept { return fnv_1a(name, std::strlen(name)); }

CmHello shorten(const HandshakeRecord& hello) noexcept {
  BP_ASSERT(hello.datagram_queue <= 0xff'ffff && hello.mtu <= 7 && hello.reads_max <= 31);
  CmHello brief = {};
  std::memcpy(brief.magic, kCmMagic, sizeof brief.magic);
  brief.version = kHandshakeVersion;
  brief.name_hash = hash_of_name(hello.name);
  brief.instance = hello.instance;
  brief.received = hello.received;
  brief.flush_address = hello.flush_address;
  brief.flush_key = hello.flush_key;
  brief.known_instance = static_cast<uint32_t>(hello.known_instance);
  brief.packet_number = hello.packet_number;
  brief.message_bytes = hello.message_bytes;
  brief.window = hello.window;
  brief.index = hello.index;
  brief.datagrams_mtu_reads =
      hello.datagram_queue | uint32_t{hello.mtu} << 24 | uint32_t{hello.reads_max} << 27;
  return brief;
}

void complete_record(HandshakeRecord& record, const CmHello& hello, const char* name,
                     uint64_t own_instance) noexcept {
  if (std::memcmp(hello.magic, kCmMagic, sizeof hello.magic) != 0) return;
  record.kind = static_cast<uint16_t>(HandshakeKind::kHello);
  // No configured peer has the name "?".
  std::strncpy(record.name, name == nullptr ? "?" : name, sizeof record.name - 1);
  record.instance = hello.instance;
  const bool is_own = hello.known_instance == static_cast<uint32_t>(own_instance);
  record.known_instance = is_own ? own_instance : hello.known_instance;
  record.received = hello.received;
  record.packet_number = hello.packet_number;
  record.mtu = hello.datagrams_mtu_reads >> 24 & 7;
  record.reads_max = static_cast<uint8_t>(hello.datagrams_mtu_reads >> 27);
  record.window = hello.window;
  record.index = hello.index;
  record.message_bytes = hello.message_bytes;
  record.flush_key = hello.flush_key;
  record.flush_address = hello.flush_address;
  record.datagram_queue = hello.datagrams_mtu_reads & 0xff'ffff;
  finish_record(record);
  record.version = hello.version;
}

HandshakeRecord ready_record() noexcept {
  HandshakeRecord record = {};
  record.kind = static_cast<uint16_t>(HandshakeKind::kReady);
  record.name[0] = '?';
  record.instance = record.mtu = record.reads_max = 1;
  finish_record(record);
  return record;
}

}  // namespace bedplate
