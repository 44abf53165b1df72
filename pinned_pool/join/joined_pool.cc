#include "pinned_pool/join/joined_pool.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

#include <sys/socket.h>

#include "pinned_pool/join/join_socket.h"
#include "platform/clock.h"

namespace bedplate {
namespace {

constexpr uint64_t kAliveWithinNs = 10 * kNsPerSecond;
constexpr uint64_t kAliveLookNs = 100 * kNsPerMs;  // between checks whether it was cut off
// The delay before the next request for a place: the first, and the longest.
constexpr uint64_t kAskAgainMinNs = 2 * kNsPerMs;
constexpr uint64_t kAskAgainMaxNs = 128 * kNsPerMs;

void sleep_ns(uint64_t ns) noexcept {
  const timespec pause = {static_cast<time_t>(ns / kNsPerSecond),
                          static_cast<long>(ns % kNsPerSecond)};
  nanosleep(&pause, nullptr);
}

constinit std::atomic<int> the_quiet_fd{-1};
// The table of the pool that this process has joined; has_mapped: once it has mapped any of it.
constinit const MembersTable* the_table = nullptr;
constinit bool has_mapped = false;

void set_receive_timeout(int socket, uint64_t ns) noexcept {
  const timeval limit = {static_cast<time_t>(ns / kNsPerSecond),
                         static_cast<suseconds_t>(ns % kNsPerSecond / 1000)};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

void at_step(const JoinOptions& options, JoinStep step) noexcept {
  if (options.at_step != nullptr) options.at_step(step);
}

Result<void> check_first_time(Error error) noexcept {
  if (!has_mapped) return {};
  error.set_cure("start the process again, and let it join");
  if (the_table == nullptr) return error.set_answer("an earlier attempt failed half-way");
  return error.set_answer(the_table->is_owner_gone()
                              ? "this process belonged to a pool whose owner is gone"
                              : "this process has joined a pool before");
}

Result<void> check_owner(int socket, const JoinOptions& options) noexcept {
  if (!options.owner_uid.has_value()) return {};
  ucred owner = {};
  socklen_t bytes = sizeof owner;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &owner, &bytes) == 0 &&
      owner.uid == *options.owner_uid) {
    return {};
  }
  return Error{}
      .set_answer("user %u serves %s, not user %u", owner.uid, options.socket_path,
                  *options.owner_uid)
      .set_cure("find out who took the owner's socket, or expect the user who runs it");
}

// Receives the owner's answer. Errors: an error without the part `doing`, or the owner's own error,
// complete. `may_come`: its cause may pass.
Result<void> receive_answer(int socket, join::Accepted* accepted, std::span<Fd> descriptors,
                            bool* may_come) noexcept {
  uint32_t descriptor_count = 0;
  const auto receive = [&] {
    return join::receive_packet(socket, accepted, sizeof *accepted, 0, descriptors,
                                &descriptor_count);
  };
  int64_t got = receive();
  // The owner closed before it had read our request; a refusal may still be in the socket.
  if (got == -ECONNRESET) got = receive();
  if (got <= 0) {
    Error error;
    if (got == 0) error.set_answer("it closed the connection");
    if (got == -EAGAIN) error.set_answer("it did not answer in time");
    if (got < 0 && got != -EAGAIN) error.set_answer_errno(static_cast<int>(-got));
    return error.set_cure("check that the owner of the pool runs, and read its log");
  }
  const auto bytes = static_cast<size_t>(got);
  join::Explained refusal;
  std::memcpy(static_cast<void*>(&refusal), accepted, sizeof refusal);
  // A refusal is the same in every version.
  const bool is_for_now = refusal.head.kind == join::PacketKind::kNotNow;
  if (bytes == sizeof refusal && refusal.head.magic == join::kMagic &&
      (refusal.head.kind == join::PacketKind::kRefused || is_for_now)) {
    *may_come = is_for_now;
    return join::told(refusal);
  }
  return join::check_accepted(*accepted, bytes, descriptor_count);
}

}  // namespace

int quiet_fd() noexcept { return the_quiet_fd.load(std::memory_order_relaxed); }

Result<JoinedPool> JoinedPool::join(const JoinOptions& options) noexcept {
  Error error = error_while("joining the pool at %s as %s", options.socket_path, options.process);
  const auto complete = [&error](const Error& cause) {
    if (cause.doing[0] != '\0') return cause;
    Error completed = cause;
    completed.set_doing("%s", error.doing);
    return completed;
  };
  BP_TRY(check_first_time(error));
  if (std::strlen(options.process) >= sizeof join::Request{}.process.text) {
    return error.set_answer("the name has %zu bytes", std::strlen(options.process))
        .set_cure("choose one of at most 31");
  }
  const uint64_t deadline_ns = monotonic_ns() + options.timeout_ns;
  join::Accepted accepted;
  Fd descriptors[join::kDescriptorCountMax];
  JoinedPool joined;
  bool was_told = false;  // `error` says that no place is free
  for (uint64_t pause_ns = kAskAgainMinNs;; pause_ns = std::min(2 * pause_ns, kAskAgainMaxNs)) {
    bool may_come = false;
    auto asked = joined.ask(options, deadline_ns, &accepted, descriptors, &may_come);
    if (asked.ok()) break;
    const bool is_over = monotonic_ns() >= deadline_ns;
    // If the time ends between two answers, the last answer says more than a timeout.
    if (!may_come && !(is_over && was_told)) return complete(asked.error());
    if (may_come) error = complete(asked.error());
    if (is_over) return error;
    was_told = true;
    joined.socket_.close();
    sleep_ns(std::min(pause_ns, deadline_ns - std::min(deadline_ns, monotonic_ns())));
  }
  at_step(options, JoinStep::kAnswered);
  if (auto taken = joined.take(accepted, descriptors, options); !taken.ok()) {
    const Error cause = complete(taken.error());
    joined.fail(cause);
    return cause;
  }
  at_step(options, JoinStep::kChecked);
  BP_DCHECK_SLOW(joined.is_valid());
  return joined;
}

bool JoinedPool::is_valid() const noexcept {
  const auto is_shared = [](const Segment* segment) {
    return segment != nullptr && !segment->is_own && segment->is_writable;
  };
  if (table_ == nullptr || table_ != the_table || table_->pool_id() != pool_id_) return false;
  if (member_count_ == 0 || member_count_ > join::kMemberCountMax) return false;
  for (const join::MemberGrant& member : members()) {
    if (member.index >= table_->member_count() || member.generation == 0) return false;
  }
  return is_shared(fifo_) && (own_heap_ == nullptr || is_shared(own_heap_)) && own_heap_ != fifo_ &&
         layout_bytes_ <= sizeof layout_ && terms_bytes_ <= sizeof terms_;
}

// Connects and asks once. Errors: those of receive_answer.
Result<void> JoinedPool::ask(const JoinOptions& options, uint64_t deadline_ns,
                             join::Accepted* accepted, std::span<Fd> descriptors,
                             bool* may_come) noexcept {
  auto connected = connect_to_owner(options.socket_path, deadline_ns);
  if (!connected.ok()) return connected.error();
  socket_ = connected.take();
  BP_TRY(check_owner(socket_.number(), options));
  at_step(options, JoinStep::kConnected);
  join::Request request;
  request.pool_base = options.pool->base();
  request.member_count = options.member_count;
  request.process = MemberName(options.process);
  // EPIPE: the owner may have refused already, and sent its reason.
  if (const int outcome = join::send_packet(socket_.number(), &request, sizeof request);
      outcome != 0 && outcome != EPIPE) {
    return Error{}.set_answer_errno(outcome).set_cure("check that the owner of the pool runs");
  }
  at_step(options, JoinStep::kAsked);
  auto answered = receive_answer(socket_.number(), accepted, descriptors, may_come);
  if (!answered.ok()) fail(answered.error());  // the owner hears it unless it has refused
  return answered;
}

Result<void> JoinedPool::take(const join::Accepted& accepted, std::span<Fd> descriptors,
                              const JoinOptions& options) noexcept {
  BP_ASSERT(!has_mapped && accepted.segment_count < descriptors.size());
  has_mapped = true;
  the_quiet_fd.store(descriptors[accepted.segment_count].release(), std::memory_order_relaxed);
  for (uint32_t i = 0; i < accepted.segment_count; ++i) {
    const join::SegmentGrant& grant = accepted.segments[i];
    auto adopted = options.pool->adopt_segment(
        {grant.owner, grant.number, grant.address, grant.bytes, grant.page_bytes,
         grant.is_writable != 0, grant.is_for_devices != 0},
        std::move(descriptors[i]));
    if (!adopted.ok()) return adopted.error();
    at_step(options, JoinStep::kMapped);
    Segment* segment = adopted.value();
    if (grant.role == join::SegmentRole::kFifo) fifo_ = segment;
    if (grant.role == join::SegmentRole::kOwnHeap) own_heap_ = segment;
    if (grant.role != join::SegmentRole::kMembers) continue;
    const std::span<const std::byte> memory =
        segment->memory().subspan(accepted.members_address - grant.address);
    auto opened = MembersTable::open(memory, accepted.pool_id);
    if (!opened.ok()) return opened.error();
    table_ = the_table = opened.value();
  }
  for (uint32_t i = 0; i < accepted.member_count; ++i) {
    const join::MemberGrant& member = accepted.members[i];
    if (member.index >= table_->member_count() ||
        table_->generation(static_cast<uint32_t>(member.index)) != member.generation) {
      return Error{}
          .set_answer("member %llu is not in the members table",
                      static_cast<unsigned long long>(member.index))
          .set_cure("run both programs from the same release of Bedplate");
    }
  }
  pool_id_ = accepted.pool_id;
  group_ = accepted.group;
  member_count_ = accepted.member_count;
  layout_bytes_ = accepted.layout_bytes;
  terms_bytes_ = accepted.terms_bytes;
  std::copy_n(accepted.members, member_count_, members_);
  std::copy_n(accepted.layout, layout_bytes_, layout_);
  std::copy_n(accepted.terms, terms_bytes_, terms_);
  return {};
}

Result<void> JoinedPool::ready() noexcept {
  BP_KEEPS_VALID(*this);
  const join::Head ready = {.kind = join::PacketKind::kReady};
  const int outcome = join::send_packet(socket_.number(), &ready, sizeof ready);
  // Other members drop messages of a member that they do not see as alive. So this waits for the
  // owner's kAlive, which does not come if the owner has cut this process off.
  const join::MemberGrant& last = members_[member_count_ - 1];
  const auto now = [&] { return table_->word(static_cast<uint32_t>(last.index)); };
  const MemberWord joining = {last.generation, MemberState::kJoining};
  const MemberWord alive = {last.generation, MemberState::kAlive};
  const uint64_t deadline_ns = monotonic_ns() + kAliveWithinNs;
  set_receive_timeout(socket_.number(), kAliveLookNs);
  while (outcome == 0 && monotonic_ns() < deadline_ns) {
    join::Head said = {.kind = join::PacketKind::kAlive};
    const int64_t got = join::receive_packet(socket_.number(), &said, sizeof said);
    if (got > 0 || is_owner_gone()) break;
    if (!(now() == joining) && !(now() == alive)) break;
    if (got != -EAGAIN) sleep_ns(kNsPerMs);  // closed: the table will soon show the cause
  }
  if (now() == alive) return {};
  Error error = error_while("telling the owner of the pool that this process is ready");
  if (is_owner_gone()) {
    return error.set_answer("it is gone").set_cure("start the owner, then this process again");
  }
  if (outcome == 0 && now() == joining) {
    return error.set_answer("it does not answer")
        .set_cure("check that the owner of the pool runs, and read its log");
  }
  return error.set_answer("it has cut this process off")
      .set_cure("see the owner's log for the reason, and start the process again");
}

void JoinedPool::fail(const Error& error) noexcept {
  const join::Explained explained = join::explain(join::PacketKind::kFailed, error);
  join::send_packet(socket_.number(), &explained, sizeof explained);
}

void JoinedPool::leave() noexcept {
  BP_KEEPS_VALID(*this);
  const join::Head leave = {.kind = join::PacketKind::kLeave};
  join::send_packet(socket_.number(), &leave, sizeof leave);
  socket_.close();
  Fd(the_quiet_fd.exchange(-1, std::memory_order_relaxed)).close();
}

}  // namespace bedplate
