#include "tests/strain/participant.h"

#include <algorithm>

#include <sched.h>

#include "platform/clock.h"

namespace bedplate::strain {
namespace {

constexpr AmId kCopyId = 1;
constexpr AmId kLoanId = 2;
constexpr uint64_t kDrainNs = 20 * kNsPerSecond;

}  // namespace

void Participant::create(const Options& options) {
  board_ = options.board;
  members_ = options.shm.members;
  self_ = options.shm.member;
  member_count_ = options.shm.segment.shape().member_count;
  generation_ = members_->generation(self_);
  random_.seed(options.seed);
  hold_max_ = std::min<uint32_t>(options.hold_max, static_cast<uint32_t>(held_.size()));
  row().~BoardRow();
  new (&row()) BoardRow{};
  for (uint32_t i = 0; i < kBlockCount; ++i) {
    blocks_[i].owner = this;
    blocks_[i].memory = options.heap.subspan(uint64_t{i} * kBlockBytes, kBlockBytes);
    blocks_[i].call = [](Completion& self, Outcome) noexcept {
      auto& block = static_cast<Block&>(self);
      block.owner->returned(block);
    };
  }
  const AmHandler handler = {[](void* self, const Message& message) noexcept {
                               static_cast<Participant*>(self)->receive(message);
                             },
                             this};
  messenger_.set_handler(kCopyId, handler);
  messenger_.set_handler(kLoanId, handler);
  ShmProviderOptions shm = options.shm;
  shm.counters = &counters_;
  shm.on_peer = {[](void* self, const PeerEvent& event) noexcept {
                   static_cast<Participant*>(self)->learn(event);
                 },
                 this};
  if (auto created = shm_.create(shm, messenger_.dispatcher()); !created.ok()) {
    fail("%s: %s", created.error().doing, created.error().answer);
  }
  messenger_.add_provider(shm_);
}

// ---- Arrivals ----

void Participant::receive(const Message& message) noexcept {
  VerifiedHeader header;
  if (message.payload.size() < sizeof header) {
    fail("a message of %zu bytes", message.payload.size());
  }
  std::memcpy(&header, message.payload.data(), sizeof header);
  const std::span<const std::byte> content =
      message.id == kLoanId ? message.loan.memory : message.payload.subspan(sizeof header);
  const uint32_t from = static_cast<ShmEndpoint&>(message.from).peer();
  if (header.bytes != content.size() || header.sender != from || header.receiver != self_ ||
      header.receiver_generation != static_cast<uint16_t>(generation_) ||
      header.checksum != checksum_of(header, content)) {
    fail("member %u: message %u from %u is not what was sent (from %u/%u to %u/%u, number %llu, "
         "%u bytes of %zu)",
         self_, message.id, from, header.sender, header.sender_generation, header.receiver,
         header.receiver_generation, static_cast<unsigned long long>(header.sequence), header.bytes,
         content.size());
  }
  Peer& peer = peers_[from];
  if (static_cast<uint16_t>(peer.heard_generation) != header.sender_generation) {
    peer.heard_generation = header.sender_generation;
    peer.expected = 0;
  }
  if (header.sequence != peer.expected) {
    fail("member %u: number %llu from member %u, generation %u, where %llu is due", self_,
         static_cast<unsigned long long>(header.sequence), from, header.sender_generation,
         static_cast<unsigned long long>(peer.expected));
  }
  ++peer.expected;
  note_delay(from, header.sent_ns);
  row().heard[from].store(peer.expected, std::memory_order_release);
  row().received.fetch_add(1, std::memory_order_relaxed);
  if (!message.loan.is_there()) return;
  if (held_count_ >= hold_max_) release_one();
  if (hold_max_ == 0) return messenger_.release(message.loan);
  held_[held_count_++] = {header, message.loan};
}

// Notes the message's delay, unless a stop of its sender or receiver ended after the message was
// sent.
void Participant::note_delay(uint32_t from, uint64_t sent_ns) noexcept {
  for (const uint32_t end : {from, self_}) {
    if (board_->rows[end].stopped_until_ns.load(std::memory_order_acquire) >= sent_ns) return;
  }
  const uint64_t delay_ns = monotonic_ns() - sent_ns;
  if (delay_ns > row().longest_ns.load(std::memory_order_relaxed)) {
    row().longest_ns.store(delay_ns, std::memory_order_relaxed);
  }
}

// Verifies a loan once more before it is returned: nobody may write it while it is lent.
void Participant::release_one() {
  if (held_count_ == 0) return;
  const Held held = held_[0];
  std::move(held_.begin() + 1, held_.begin() + held_count_, held_.begin());
  --held_count_;
  if (held.header.checksum != checksum_of(held.header, held.loan.memory)) {
    fail("member %u: a loan from member %u was written while it was lent", self_,
         held.header.sender);
  }
  messenger_.release(held.loan);
}

void Participant::returned(Block& block) noexcept {
  if (!block.is_out) fail("member %u: a block was returned twice", self_);
  block.is_out = false;
  // A borrower that still reads the block notices this.
  std::memset(block.memory.data(), 0xee, block.memory.size());
  row().lent[block.peer].fetch_sub(1, std::memory_order_relaxed);
  row().loans_out.fetch_sub(1, std::memory_order_relaxed);
}

void Participant::learn(const PeerEvent& event) noexcept {
  switch (event.kind) {
    case PeerEventKind::kJoined: peers_[event.member].is_joined = true; return;
    case PeerEventKind::kLeft: return check_last_words(event);
    case PeerEventKind::kPoolGone: is_pool_gone_ = true; return;
    case PeerEventKind::kCutOff: fail("member %u: member %u has cut it off", self_, event.member);
  }
}

// Checks that no published message of the dead member is lost. The member counted after each send,
// so at most one message more than its count may have arrived.
void Participant::check_last_words(const PeerEvent& event) noexcept {
  Peer& peer = peers_[event.member];
  peer.is_joined = false;
  peer.endpoint = nullptr;
  const uint64_t counted = count_for(
      board_->rows[event.member].sent[self_].load(std::memory_order_acquire), generation_);
  const bool was_heard =
      static_cast<uint16_t>(peer.heard_generation) == static_cast<uint16_t>(event.generation);
  const uint64_t heard = was_heard ? peer.expected : 0;
  if (heard < counted || heard > counted + 1) {
    fail("member %u: of what member %u, generation %llu, had sent, %llu of %llu messages came",
         self_, event.member, static_cast<unsigned long long>(event.generation),
         static_cast<unsigned long long>(heard), static_cast<unsigned long long>(counted));
  }
}

// ---- Sending ----

void Participant::connect_to_new() {
  for (uint32_t i = 0; i < member_count_; ++i) {
    Peer& peer = peers_[i];
    if (!peer.is_joined || peer.endpoint != nullptr) continue;
    auto endpoint = messenger_.connect({i});
    if (!endpoint.ok()) continue;  // the member died in between
    peer.endpoint = endpoint.value();
    peer.generation = static_cast<ShmEndpoint*>(peer.endpoint)->generation();
    peer.next_sequence = 0;
  }
}

void Participant::send_burst() {
  // Sends mostly to one partner for a while: pairs that communicate often get boxes.
  if (partner_left_ == 0) {
    partner_ = static_cast<uint32_t>(below(member_count_));
    partner_left_ = static_cast<uint32_t>(1 + below(200));
  }
  for (uint64_t count = below(12); count > 0; --count) {
    if (partner_left_ > 0) --partner_left_;
    const auto to = below(8) == 0 ? static_cast<uint32_t>(below(member_count_)) : partner_;
    Peer& peer = peers_[to];
    if (peer.endpoint == nullptr) continue;
    const VerifiedHeader header = {0,
                                   static_cast<uint16_t>(self_),
                                   static_cast<uint16_t>(generation_),
                                   static_cast<uint16_t>(to),
                                   static_cast<uint16_t>(peer.generation),
                                   0,
                                   peer.next_sequence};
    const bool is_long = row().must_hurry.load(std::memory_order_relaxed) == 0;
    const SendStatus status =
        is_long && below(8) == 0 ? send_loan(to, header) : send_copy(to, header);
    if (status == SendStatus::kAgain || status == SendStatus::kGone) return;
    if (status != SendStatus::kDone && status != SendStatus::kPending) {
      fail("member %u: sending to member %u: %s", self_, to, to_text(status));
    }
    ++peer.next_sequence;
    row().sent[to].store(pack_count(peer.generation & 0xff'ffff, peer.next_sequence),
                         std::memory_order_release);
  }
}

SendStatus Participant::send_copy(uint32_t to, VerifiedHeader header) {
  const uint64_t room = peers_[to].endpoint->limits().am_bytes_max - sizeof header;
  // Mostly short messages. The sizes use a slot, a box's area, or the eager region.
  const uint64_t limits[] = {25, 25, 25, 200, 1000, room + 1};
  const bool is_short = row().must_hurry.load(std::memory_order_relaxed) != 0;
  const uint64_t limit = limits[is_short ? 0 : below(std::size(limits))];
  header.bytes = static_cast<uint32_t>(std::min(room, below(limit)));
  const std::span<std::byte> content = std::span(scratch_).subspan(sizeof header, header.bytes);
  fill(content, random_());
  header.sent_ns = monotonic_ns();
  header.checksum = checksum_of(header, content);
  std::memcpy(scratch_.data(), &header, sizeof header);
  const SendStatus status =
      peers_[to].endpoint->am_send(kCopyId, {scratch_.data(), sizeof header + header.bytes});
  if (status == SendStatus::kDone) {
    row().sent_bytes.fetch_add(header.bytes, std::memory_order_relaxed);
  }
  return status;
}

SendStatus Participant::send_loan(uint32_t to, VerifiedHeader header) {
  Block& block = blocks_[below(kBlockCount)];
  if (block.is_out) return SendStatus::kAgain;
  header.bytes = static_cast<uint32_t>(1 + below(below(4) == 0 ? kBlockBytes : 512));
  const std::span<std::byte> content = block.memory.first(header.bytes);
  fill(content, random_());
  header.sent_ns = monotonic_ns();
  header.checksum = checksum_of(header, content);
  block.peer = to;
  const auto header_bytes = std::as_bytes(std::span(&header, 1));
  // Like an impatient sender, retries at once after kAgain.
  SendStatus status = SendStatus::kAgain;
  for (int tries = 0; tries < 300 && status == SendStatus::kAgain; ++tries) {
    status = peers_[to].endpoint->am_send_loan(kLoanId, header_bytes, content, &block);
  }
  if (status != SendStatus::kPending) return status;
  block.is_out = true;
  row().lent[to].fetch_add(1, std::memory_order_relaxed);
  row().loans_out.fetch_add(1, std::memory_order_relaxed);
  row().sent_bytes.fetch_add(header.bytes, std::memory_order_relaxed);
  return status;
}

// ---- The loop ----

void Participant::step() {
  row().steps.fetch_add(1, std::memory_order_relaxed);
  const uint32_t got = messenger_.poll(static_cast<uint32_t>(1 + below(64)));
  connect_to_new();
  if (below(4) == 0) release_one();
  if (board_->command.load(std::memory_order_acquire) == Command::kRun && !is_pool_gone_) {
    row().has_stopped.store(0, std::memory_order_relaxed);
    send_burst();
    if (row().must_hurry.load(std::memory_order_relaxed) != 0) {
      for (int i = 0; i < 100; ++i) send_burst();
    } else if (below(64) == 0) messenger_.wait((1 + below(20)) * 100 * kNsPerUs);
    else if (got == 0) sched_yield();
    return;
  }
  row().has_stopped.store(1, std::memory_order_release);
  release_one();
  row().is_done.store(has_everything() ? 1 : 0, std::memory_order_release);
  if (got == 0) messenger_.wait(2 * kNsPerMs);
}

// Whether all messages have arrived and all loans are returned. False while a member may still
// send.
bool Participant::has_everything() noexcept {
  if (held_count_ > 0 || shm_.loans_out() > 0) return false;
  for (uint32_t i = 0; i < member_count_; ++i) {
    if (i == self_ || members_->state(i) != MemberState::kAlive) continue;
    const BoardRow& other = board_->rows[i];
    if (other.has_stopped.load(std::memory_order_acquire) == 0) return false;
    const Peer& peer = peers_[i];
    const bool was_heard = static_cast<uint16_t>(peer.heard_generation) ==
                           static_cast<uint16_t>(members_->generation(i));
    const uint64_t sent = count_for(other.sent[self_].load(std::memory_order_acquire), generation_);
    if ((was_heard ? peer.expected : 0) != sent) return false;
  }
  return true;
}

void Participant::run() {
  while (board_->command.load(std::memory_order_acquire) != Command::kEnd &&
         row().must_leave.load(std::memory_order_acquire) == 0 && !is_pool_gone_) {
    step();
    row().boxes_granted.store(counters_.boxes_granted.read(), std::memory_order_relaxed);
    row().boxes_returned.store(counters_.boxes_returned.read(), std::memory_order_relaxed);
    row().abandoned.store(counters_.abandoned.read(), std::memory_order_relaxed);
  }
  if (is_pool_gone_) drain_after_owner();
  if (counters_.cut_off.read() != 0) fail("member %u: an honest peer was cut off", self_);
  if (counters_.unhandled.read() != 0) fail("member %u: messages without a handler", self_);
}

// Receives the messages that the other members sent before they noticed the owner's death.
void Participant::drain_after_owner() {
  const uint64_t until = monotonic_ns() + kDrainNs;
  for (;;) {
    step();
    bool has_all = held_count_ == 0;
    for (uint32_t i = 0; i < member_count_ && has_all; ++i) {
      if (i == self_ || members_->state(i) != MemberState::kAlive) continue;
      const BoardRow& other = board_->rows[i];
      // Member 0 is the dead owner, which does not set has_stopped.
      if (i != 0 && other.has_stopped.load(std::memory_order_acquire) == 0) has_all = false;
      const uint64_t sent =
          count_for(other.sent[self_].load(std::memory_order_acquire), generation_);
      if (peers_[i].expected < sent) has_all = false;
    }
    if (has_all) return;
    if (monotonic_ns() > until) fail("member %u: not drained after the owner's death", self_);
  }
}

}  // namespace bedplate::strain
