// The protocol between a process that joins and the owner of the pool.
//
// Each side sends one packet over a Unix socket (SOCK_SEQPACKET), the owner with descriptors
// (SCM_RIGHTS). Then the joiner reports that all is mapped, and the owner answers that the joiner
// is alive. All integers have the machine's byte order: both sides run on it. Neither side trusts
// the other: these functions check each packet before its use. docs/join.md has the byte tables,
// join_server.h has the owner's side, joined_pool.h has the joiner's side. Programs need none of
// these functions: JoinedPool calls them. Threads: any. The functions allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "pinned_pool/layout.h"
#include "pinned_pool/join/membership.h"
#include "pinned_pool/owner_name.h"
#include "platform/file.h"
#include "platform/result.h"

namespace bedplate::join {

inline constexpr uint64_t kMagic = 0x316e'696f'6a70'6562;  // "bepjoin1"
inline constexpr uint32_t kVersion = 4;
inline constexpr uint32_t kLayoutBytesMax = 256;  // of a group
inline constexpr uint32_t kTermsBytesMax = 128;   // of a process
inline constexpr uint32_t kMemberCountMax = 64;   // of one process
inline constexpr uint32_t kDescriptorCountMax = kSegmentCountMax + 1;
static_assert(kDescriptorCountMax <= 253);  // SCM_MAX_FD, unix(7)

enum class PacketKind : uint32_t {
  kRequest = 1,   // joiner
  kAccepted = 2,  // owner, with descriptors
  kRefused = 3,   // owner; it then closes the connection
  kReady = 4,     // joiner: everything is mapped
  kFailed = 5,    // joiner: it cannot use its part
  kLeave = 6,     // joiner: it no longer uses the pool
  kNotNow = 7,    // owner; as kRefused, but the cause may pass, such as no free place
  kAlive = 8,     // owner: other members see the joiner as alive
};

struct Head {
  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  PacketKind kind;
};
static_assert(sizeof(Head) == 16);

struct Request {
  Head head = {.kind = PacketKind::kRequest};
  // The address layout, which both programs must share so that a pointer means the same to both.
  uint64_t pool_base = kPoolBase;
  uint64_t pool_span_bytes = kPoolSpanBytes;
  uint64_t region_bytes = kRegionBytes;
  uint32_t cache_line_bytes = kCacheLineBytes;
  uint32_t member_count = 1;
  MemberName process;
};
static_assert(sizeof(Request) == 80);

// The same in every version, so that every version can read a refusal.
struct Explained {
  Head head = {};
  char doing[192] = {};
  char answer[256] = {};
  char cure[320] = {};
};
static_assert(sizeof(Explained) == 784);
static_assert(sizeof Explained::doing == sizeof Error::doing);
static_assert(sizeof Explained::answer == sizeof Error::answer);
static_assert(sizeof Explained::cure == sizeof Error::cure);

enum class SegmentRole : uint32_t {
  kMembers = 1,  // holds the members table; exactly one
  kFifo = 2,     // the group's FIFOs; exactly one
  kOwnHeap = 3,  // this process's heap; at most one
  kOther = 4,
};

struct SegmentGrant {
  OwnerName owner;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t page_bytes = 0;
  uint8_t is_writable = 0;
  uint8_t is_for_devices = 0;
  uint16_t number = 0;  // Segment::number
  SegmentRole role = SegmentRole::kOther;
};
static_assert(sizeof(SegmentGrant) == 96);

struct MemberGrant {
  uint64_t index = 0;
  uint64_t generation = 0;
};

// Only the first `segment_count` segments are sent. Descriptors: the memfd of each segment, in
// order, then the write end of the quiet pipe.
struct Accepted {
  Head head = {.kind = PacketKind::kAccepted};
  PoolId pool_id;
  OwnerName group;
  uint64_t members_address = 0;  // of the members table, which lies in the kMembers segment
  uint32_t member_count = 0;
  uint32_t segment_count = 0;
  uint32_t layout_bytes = 0;
  uint32_t terms_bytes = 0;
  std::byte layout[kLayoutBytesMax] = {};  // layout and terms belong to the transport: opaque here
  std::byte terms[kTermsBytesMax] = {};
  MemberGrant members[kMemberCountMax] = {};
  SegmentGrant segments[kSegmentCountMax] = {};

  size_t bytes() const noexcept {
    return offsetof(Accepted, segments) + segment_count * sizeof(SegmentGrant);
  }
};
static_assert(offsetof(Accepted, layout) == 120);
static_assert(offsetof(Accepted, terms) == 376);
static_assert(offsetof(Accepted, members) == 504);
static_assert(offsetof(Accepted, segments) == 1528);
static_assert(std::is_trivially_copyable_v<Accepted>);

// Checks the head of a packet of `bytes`, and its expected `kind` and size. Errors: the answer and
// its cure; the caller adds `doing`. The same is true of the next two functions.
Result<void> check_head(const void* packet, size_t bytes, PacketKind kind, size_t bytes_min,
                        size_t bytes_max) noexcept;
// Checks a request. `pool_base`: the base of the owner's pool.
Result<void> check_request(const Request& request, size_t bytes, uintptr_t pool_base) noexcept;
// Checks the owner's answer, except for the checks of PinnedPool::adopt_segment and
// MembersTable::open.
Result<void> check_accepted(const Accepted& accepted, size_t bytes,
                            uint32_t descriptor_count) noexcept;

// Makes the packet that carries `error`. Requires: `kind` is kRefused, kNotNow or kFailed.
Explained explain(PacketKind kind, const Error& error) noexcept;
// The error that a packet carries. Every text is terminated, without control characters.
Error told(const Explained& explained) noexcept;

// Sends one packet with `descriptors`, which stay the caller's: kDescriptorCountMax at most. Waits
// for space if `socket` blocks. Returns 0 or an errno value. Raises no signal.
int send_packet(int socket, const void* packet, size_t bytes,
                std::span<const int> descriptors = {}) noexcept;

// Whether the next packet, which stays in the socket, carries descriptors; false if there is no
// packet. Does not wait. Before Linux 6.16 a thread that receives such a packet, or closes its
// socket, may have to close the files in it.
bool brings_descriptors(int socket) noexcept;

// Receives one packet. Returns its true length, which may be more than `capacity` (the packet was
// truncated); 0 at the end, or for an empty packet; or -errno. Fills `descriptors` as far as the
// packet's descriptors fit, and counts these in `descriptor_count`; closes the others. An error
// leaves the count as it was. Requires: capacity > 0.
int64_t receive_packet(int socket, void* packet, size_t capacity, int flags = 0,
                       std::span<Fd> descriptors = {},
                       uint32_t* descriptor_count = nullptr) noexcept;

}  // namespace bedplate::join
