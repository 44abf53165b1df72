// The exact wire format between the two ends of a verbs connection. docs/verbs.md has the tables.
//
// Little endian, like every supported machine. Bytes from a peer are copied out, checked once, and
// then used. All functions: any thread; noexcept; no allocation. For the provider and for tests;
// programs need only RemoteRights.
//
// Invariants: 1. Each record that this end sends passes the receiver's check. (check_record, in
// LinkTalks::send) 2. A hello keeps its values when it is shortened and completed: each number fits
// its field. (shorten)
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/messages/endpoint.h"

namespace bedplate {

static_assert(std::endian::native == std::endian::little);

inline constexpr char kHandshakeMagic[8] = {'B', 'P', 'V', 'E', 'R', 'B', 'S', '1'};
inline constexpr uint16_t kHandshakeVersion = 1;
inline constexpr size_t kVerbsNameBytes = 32;  // with at least one zero

enum class HandshakeKind : uint16_t { kHello = 1, kWelcome = 2, kReady = 3, kRefusal = 4 };

enum class Refusal : uint32_t {
  kNone,
  kNotListed,  // no peer of this name is configured here
  kCrossing,   // both ends dialed at once, and this end's call wins
  kVersion,
  kShape,   // the window or the message size differs
  kCutOff,  // the peer broke the protocol before
  kDevice,  // the queue pair cannot be connected, or the device is lost; this end's log says why
  kMalformed,
};
const char* to_text(Refusal refusal) noexcept;
// The cure, for the refused side.
const char* cure_of(Refusal refusal) noexcept;

struct HandshakeRecord {
  char magic[8];
  uint16_t version;
  uint16_t kind;     // HandshakeKind
  uint32_t refusal;  // Refusal
  char name[kVerbsNameBytes];
  uint64_t instance;
  uint64_t known_instance;  // the receiver's instance, as the sender knew it; 0: never
  uint64_t received;        // messages of that instance
  uint32_t queue_pair;
  uint32_t packet_number;
  uint8_t gid[16];
  uint16_t lid;
  uint8_t mtu;
  uint8_t reads_max;
  uint16_t window;
  uint16_t index;  // of the link, at the sender
  uint32_t message_bytes;
  uint32_t flush_key;
  uint64_t flush_address;
  uint32_t datagram_queue;  // number of the queue pair for datagrams; 0: none
  uint32_t checksum;
};
static_assert(sizeof(HandshakeRecord) == 128 && offsetof(HandshakeRecord, gid) == 80 &&
              offsetof(HandshakeRecord, flush_address) == 112 &&
              offsetof(HandshakeRecord, checksum) == 124);

// Sets magic, version and checksum.
void finish_record(HandshakeRecord& record) noexcept;
// Whether the record is of this protocol. Records without the magic get no answer.
bool has_magic(const HandshakeRecord& record) noexcept;
// Checks one record by itself. Returns kNone, kVersion or kMalformed.
Refusal check_record(const HandshakeRecord& record, HandshakeKind expected) noexcept;

// A hello in a request of the RDMA connection manager. The request itself carries the queue pair's
// number, the GID and the LID. The manager's packets have a checksum of their own.
struct CmHello {
  char magic[3];  // "BPV"
  uint8_t version;
  uint32_t name_hash;  // FNV-1a
  uint64_t instance;
  uint64_t received;
  uint64_t flush_address;
  uint32_t flush_key;
  uint32_t known_instance;  // the lower half
  uint32_t packet_number;
  uint32_t message_bytes;
  uint16_t window;
  uint16_t index;                // of the link, at the sender
  uint32_t datagrams_mtu_reads;  // 24, 3 and 5 bits, from the lowest
};
static_assert(sizeof(CmHello) == 56);

uint32_t hash_of_name(const char* name) noexcept;
CmHello shorten(const HandshakeRecord& hello) noexcept;
// Completes `record`, whose queue pair, GID and LID are set, to the full form of `hello`. Leaves it
// without magic if `hello` has none. `name`: the peer whose name has the hash; nullptr: no such
// peer. If the hello has the lower half of `own_instance`, the record gets all of it.
void complete_record(HandshakeRecord& record, const CmHello& hello, const char* name,
                     uint64_t own_instance) noexcept;
// A ready record, for the event that the connection is established.
HandshakeRecord ready_record() noexcept;

enum class VerbsMessageKind : uint8_t {
  kMessage = 1,
  kLoan = 2,
  kReturns = 3,
  kAcknowledgement = 4,  // has no number, takes no credit
  kNothing = 5,          // a message whose loan was lost with the connection
};

struct VerbsMessageHeader {
  uint64_t number;
  uint64_t consumed;  // messages of the other direction
  uint32_t mark;      // the sender's first packet number
  uint16_t index;     // of the link, at the receiver
  VerbsMessageKind kind;
  AmId am;
  uint32_t bytes;
  uint32_t zero;
};
static_assert(sizeof(VerbsMessageHeader) == 32);

struct VerbsLoanBody {
  RemoteMemory memory;
  uint32_t loan;
  uint32_t mark;
};
static_assert(sizeof(VerbsLoanBody) == 40);

struct ReturnedLoan {
  uint32_t loan;
  uint32_t mark;
};
static_assert(sizeof(ReturnedLoan) == 8);

inline constexpr uint32_t kVerbsLoanCountMax = 128;  // lent to one peer at a time
inline constexpr uint32_t kVerbsLoanHeaderBytesMax = 64;

// Rights of peers to memory.
enum RemoteRights : uint8_t {
  kRead = 1,
  kWrite = 2,
  kAtomic = 4,
  kAllRights = kRead | kWrite | kAtomic,
};

// RemoteMemory::kind tells how long the key is valid, and which rights it gives. The device
// enforces the rights. The peer knows the rights, so it sends no request that would break the
// connection.
enum class Reach : uint8_t {
  kExport = 1,      // while the owner's instance runs; tag: its lower half
  kConnection = 2,  // while the connection lasts; tag: its mark
};
constexpr uint64_t pack_reach(Reach reach, RemoteRights rights, uint32_t tag) noexcept {
  return uint64_t{'V'} << 56 | uint64_t{static_cast<uint8_t>(reach)} << 48 |
         uint64_t{rights} << 40 | tag;
}
constexpr Reach reach_of(const RemoteMemory& memory) noexcept {
  return static_cast<Reach>(memory.kind >> 48 & 0xff);
}
constexpr RemoteRights rights_of(const RemoteMemory& memory) noexcept {
  return static_cast<RemoteRights>(memory.kind >> 40 & 0xff);
}
// Whether the key has this `reach` and `tag`, with any rights.
constexpr bool is_reach(const RemoteMemory& memory, Reach reach, uint32_t tag) noexcept {
  return memory.kind == pack_reach(reach, rights_of(memory), tag);
}

}  // namespace bedplate
