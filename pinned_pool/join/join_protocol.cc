#include "pinned_pool/join/join_protocol.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include <sys/socket.h>

#include "platform/assert.h"

namespace bedplate::join {
namespace {

constexpr const char* kSameRelease = "run both programs from the same release of Bedplate";

template <size_t kBytes>
bool is_text(const char (&text)[kBytes]) noexcept {
  const char* end = std::find(text, text + kBytes, '\0');
  return end != text + kBytes &&
         std::all_of(text, end, [](char c) { return c >= ' ' && c <= '~'; });
}

template <size_t kBytes>
void copy_text(char (&to)[kBytes], const char (&from)[kBytes]) noexcept {
  for (size_t i = 0; i < kBytes; ++i) {
    to[i] = (from[i] >= ' ' && from[i] <= '~') || from[i] == '\0' ? from[i] : '?';
  }
  to[kBytes - 1] = '\0';
}

Error broken(const char* what) noexcept {
  return Error{}.set_answer("%s", what).set_cure("%s", kSameRelease);
}

}  // namespace

Result<void> check_head(const void* packet, size_t bytes, PacketKind kind, size_t bytes_min,
                        size_t bytes_max) noexcept {
  Head head = {};
  std::memcpy(static_cast<void*>(&head), packet, std::min(bytes, sizeof head));
  Error error;
  if (bytes < sizeof head || head.magic != kMagic) {
    return error.set_answer("the other end is not Bedplate").set_cure("check the socket's path");
  }
  if (head.version != kVersion) {
    return error.set_answer("it uses version %u, this program version %u", head.version, kVersion)
        .set_cure("%s", kSameRelease);
  }
  if (head.kind != kind) return broken("it sent a message of an unexpected kind");
  if (bytes < bytes_min || bytes > bytes_max) return broken("a packet has the wrong length");
  return {};
}

Result<void> check_request(const Request& request, size_t bytes, uintptr_t pool_base) noexcept {
  BP_TRY(check_head(&request, bytes, PacketKind::kRequest, sizeof request, sizeof request));
  Error error;
  error.set_cure("%s, in the same mode", kSameRelease);
  if (request.pool_base != pool_base) {
    return error.set_answer("its pool begins at 0x%" PRIx64 ", this one at 0x%" PRIxPTR,
                            request.pool_base, pool_base);
  }
  if (request.pool_span_bytes != kPoolSpanBytes || request.region_bytes != kRegionBytes) {
    return error.set_answer("its pool has 0x%" PRIx64 " bytes in regions of 0x%" PRIx64
                            ", this one 0x%" PRIx64 " in regions of 0x%" PRIx64,
                            request.pool_span_bytes, request.region_bytes, kPoolSpanBytes,
                            kRegionBytes);
  }
  if (request.cache_line_bytes != kCacheLineBytes) {
    return error.set_answer("its cache lines have %u bytes, here they have %zu",
                            request.cache_line_bytes, kCacheLineBytes);
  }
  if (!is_text(request.process.text) || request.process.text[0] == '\0') {
    return error.set_answer("it sent no name");
  }
  if (request.member_count == 0 || request.member_count > kMemberCountMax) {
    return error.set_answer("it asks for %u members", request.member_count)
        .set_cure("one process can have 1 to %u", kMemberCountMax);
  }
  return {};
}

Result<void> check_accepted(const Accepted& accepted, size_t bytes,
                            uint32_t descriptor_count) noexcept {
  BP_TRY(check_head(&accepted, bytes, PacketKind::kAccepted, offsetof(Accepted, segments),
                    sizeof accepted));
  if (accepted.segment_count > kSegmentCountMax || bytes != accepted.bytes()) {
    return broken("a packet has the wrong length");
  }
  if (descriptor_count != accepted.segment_count + 1) {
    return Error{}
        .set_answer("%u descriptors arrived for %u segments", descriptor_count,
                    accepted.segment_count)
        .set_cure("raise the limit of open files: ulimit -n 1024");
  }
  if (accepted.member_count == 0 || accepted.member_count > kMemberCountMax ||
      accepted.layout_bytes > kLayoutBytesMax || !is_text(accepted.group.text)) {
    return broken("its description of the group is not valid");
  }
  if (accepted.terms_bytes > kTermsBytesMax) {
    return broken("its terms for this process are not valid");
  }
  uint32_t role_counts[5] = {};
  for (uint32_t i = 0; i < accepted.segment_count; ++i) {
    const SegmentGrant& segment = accepted.segments[i];
    const auto role = static_cast<uint32_t>(segment.role);
    if (role == 0 || role >= std::size(role_counts) || segment.is_writable > 1 ||
        segment.is_for_devices > 1 || segment.number >= kSegmentCountMax ||
        !is_text(segment.owner.text)) {
      return broken("its description of a segment is not valid");
    }
    ++role_counts[role];
    if (segment.role != SegmentRole::kMembers) continue;
    const uint64_t offset = accepted.members_address - segment.address;
    if (offset >= segment.bytes || offset % kCacheLineBytes != 0) {
      return broken("the members table lies outside its segment");
    }
  }
  if (role_counts[static_cast<size_t>(SegmentRole::kMembers)] != 1 ||
      role_counts[static_cast<size_t>(SegmentRole::kFifo)] != 1 ||
      role_counts[static_cast<size_t>(SegmentRole::kOwnHeap)] > 1) {
    return broken("a segment is missing or listed twice");
  }
  return {};
}

Explained explain(PacketKind kind, const Error& error) noexcept {
  BP_ASSERT(kind == PacketKind::kRefused || kind == PacketKind::kNotNow ||
            kind == PacketKind::kFailed);
  Explained explained = {.head = {.kind = kind}};
  std::memcpy(explained.doing, error.doing, sizeof explained.doing);
  std::memcpy(explained.answer, error.answer, sizeof explained.answer);
  std::memcpy(explained.cure, error.cure, sizeof explained.cure);
  return explained;
}

Error told(const Explained& explained) noexcept {
  Error error;
  copy_text(error.doing, explained.doing);
  copy_text(error.answer, explained.answer);
  copy_text(error.cure, explained.cure);
  return error;
}

int send_packet(int socket, const void* packet, size_t bytes,
                std::span<const int> descriptors) noexcept {
  BP_ASSERT(descriptors.size() <= kDescriptorCountMax);
  for (const int descriptor : descriptors) BP_DCHECK(descriptor >= 0);
  iovec part = {const_cast<void*>(packet), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorCountMax * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    if (sendmsg(socket, &message, MSG_NOSIGNAL) >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

bool brings_descriptors(int socket) noexcept {
  std::byte first;
  iovec part = {&first, sizeof first};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;  // no space for descriptors, so a flag shows that there are some
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  return got >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
}

int64_t receive_packet(int socket, void* packet, size_t capacity, int flags,
                       std::span<Fd> descriptors, uint32_t* descriptor_count) noexcept {
  BP_ASSERT(capacity > 0);  // with 0, a packet would look like the end
  iovec part = {packet, capacity};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorCountMax * sizeof(int))];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  // Without space for descriptors the kernel installs none, and closes them itself.
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC | MSG_TRUNC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return -errno;
  uint32_t count = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    BP_ASSERT(header->cmsg_len >= CMSG_LEN(0));
    const size_t sent_count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < sent_count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(header) + i * sizeof number, sizeof number);
      Fd descriptor(number);
      if (count < descriptors.size()) descriptors[count++] = std::move(descriptor);
    }
  }
  if (descriptor_count != nullptr) *descriptor_count = count;
  return got;
}

}  // namespace bedplate::join
