#include "transport/verbs/connect/link_talks.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/socket.h>

namespace bedplate {
namespace {

using Stage = LinkTalk::Stage;

}  // namespace

bool LinkTalks::is_valid() const noexcept {
  uint32_t stranger_count = 0;
  uint32_t call_count = 0;
  for (const LinkTalk& talk : all_) {
    if (!is_valid(talk)) return false;
    call_count += talk.call != nullptr;
    stranger_count += talk.stage == Stage::kAwaitHello;
  }
  return stranger_count <= kStrangerCountMax && call_count == manager_.call_count() &&
         manager_.is_valid();
}

bool LinkTalks::is_valid(const LinkTalk& talk) const noexcept {
  const bool is_bound = talk.stage != Stage::kFree && talk.stage != Stage::kAwaitHello;
  const int carrier_count = talk.fd.is_open() + (talk.call != nullptr);
  if (carrier_count != (talk.stage != Stage::kFree)) return false;
  if (is_bound != (talk.link != nullptr) || talk.bytes >= sizeof talk.record) return false;
  if (talk.stage == Stage::kFree) return true;
  if ((talk.call != nullptr) != manager_.is_open()) return false;
  const bool is_lifeline = talk.stage == Stage::kLifeline;
  if (!is_lifeline && talk.deadline_ns == 0) return false;  // it would never be given up
  if (!is_bound) return true;
  if ((is_lifeline || talk.stage == Stage::kHeld) && talk.bytes > 0) return false;
  return of(*talk.link, is_lifeline) == &talk;  // else the link has a second one
}

void LinkTalks::close() noexcept {
  for (LinkTalk& talk : all_) drop(talk);
  all_.clear();
}

LinkTalk* LinkTalks::free_one() noexcept {
  for (LinkTalk& talk : all_) {
    if (talk.stage == Stage::kFree) return &talk;
  }
  return nullptr;
}

LinkTalk* LinkTalks::of(const VerbsLink& link, bool is_lifeline) noexcept {
  return const_cast<LinkTalk*>(std::as_const(*this).of(link, is_lifeline));
}

const LinkTalk* LinkTalks::of(const VerbsLink& link, bool is_lifeline) const noexcept {
  for (const LinkTalk& talk : all_) {
    if (talk.stage != Stage::kFree && talk.link == &link &&
        (talk.stage == Stage::kLifeline) == is_lifeline) {
      return &talk;
    }
  }
  return nullptr;
}

LinkTalk* LinkTalks::of(const rdma_cm_id& call) noexcept {
  const auto is_its = [&](const LinkTalk& talk) { return talk.call == &call; };
  const auto talk = std::find_if(all_.begin(), all_.end(), is_its);
  return talk == all_.end() ? nullptr : &*talk;
}

LinkTalk* LinkTalks::surplus_stranger(uint32_t count_max) noexcept {
  BP_DCHECK(owner_.is_caller() && count_max <= kStrangerCountMax);
  LinkTalk* oldest = nullptr;
  uint32_t count = 0;
  for (LinkTalk& talk : all_) {
    if (talk.stage != Stage::kAwaitHello) continue;
    ++count;
    if (oldest == nullptr || talk.deadline_ns < oldest->deadline_ns) oldest = &talk;
  }
  return count > count_max ? oldest : nullptr;
}

bool LinkTalks::watch(LinkTalk& talk, uint32_t events) noexcept {
  BP_DCHECK(owner_.is_caller());
  if (talk.call != nullptr) return true;
  return events_.watch(talk.fd.number(), events, static_cast<uint64_t>(&talk - all_.data()));
}

bool LinkTalks::send(LinkTalk& talk, HandshakeRecord& record) noexcept {
  BP_DCHECK(owner_.is_caller() && talk.fd.is_open() != (talk.call != nullptr));
  finish_record(record);
  BP_DCHECK_SLOW(check_record(record, static_cast<HandshakeKind>(record.kind)) == Refusal::kNone);
  if (talk.call != nullptr) return manager_.send(talk.call, record);
  // The first bytes of the connection always fit into the socket's send buffer.
  return ::send(talk.fd.number(), &record, sizeof record, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof record);
}

LinkTalks::ReadResult LinkTalks::read(LinkTalk& talk) noexcept {
  BP_DCHECK(owner_.is_caller() && talk.fd.is_open() && talk.bytes < sizeof talk.record);
  BP_DCHECK(talk.stage != Stage::kFree && talk.stage != Stage::kConnecting &&
            talk.stage != Stage::kHeld);
  auto* into = reinterpret_cast<char*>(&talk.record) + talk.bytes;
  const ssize_t bytes = recv(talk.fd.number(), into, sizeof talk.record - talk.bytes, 0);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return ReadResult::kNothing;
  // A lifeline ends with a hang-up, or with unexpected bytes.
  if (bytes <= 0 || talk.stage == Stage::kLifeline) return ReadResult::kHungUp;
  talk.bytes += static_cast<size_t>(bytes);
  // A record without our magic is refused before it is complete.
  const bool is_strange = talk.bytes >= sizeof talk.record.magic && !has_magic(talk.record);
  if (talk.bytes < sizeof talk.record && !is_strange) return ReadResult::kNothing;
  talk.bytes = 0;
  return ReadResult::kRecord;
}

void LinkTalks::drop(LinkTalk& talk) noexcept {
  BP_DCHECK(owner_.is_caller() && &talk >= all_.data() && &talk < all_.data() + all_.size());
  if (talk.fd.is_open()) {
    // A forked child may still hold the socket: close() would tell the peer nothing, and would
    // leave the socket in the epoll.
    shutdown(talk.fd.number(), SHUT_RDWR);
    events_.forget(talk.fd.number());
  }
  if (talk.call != nullptr) manager_.close(talk.call);
  talk = LinkTalk();
}

}  // namespace bedplate
