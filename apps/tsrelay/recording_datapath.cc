#include "apps/tsrelay/recording_datapath.h"

#include "apps/tsrelay/ts_packet_datapath.h"

namespace bedplate::relay {

bool Recording::is_valid() const noexcept {
  const size_t current = current_.load(std::memory_order_relaxed);
  uint32_t writing = 0;
  for (size_t i = 0; i < targets_.size(); ++i) {
    // The other thread may meanwhile change kFull to kEmpty.
    const uint32_t state = targets_[i].state.load(std::memory_order_relaxed);
    if ((state == kWritten) != (i == current)) return false;
    const uint32_t its = targets_[i].writing_count.load(std::memory_order_relaxed);
    if (state == kEmpty && its != 0) return false;
    writing += its;
  }
  return writing == writing_count_ && writing_count_ <= kWritesMax &&
         free_.has_just(kWritesMax - writing_count_,
                        [this](const Write& write) { return write.self == this; });
}

Recording::Target* Recording::next_target(size_t current) noexcept {
  for (size_t i = 1; i < targets_.size(); ++i) {
    Target& next = targets_[(current + i) % targets_.size()];
    if (next.state.load(std::memory_order_acquire) != kGivenUp) return &next;
  }
  return nullptr;
}

// Returns kIsThere if the present file has space and time left for the packet. If not, it switches
// to the next file, if that is empty.
Recording::Room Recording::room_for(uint32_t bytes, uint64_t now_ns) noexcept {
  if (begun_ns_ == 0) begun_ns_ = now_ns;
  if (options_.rotate_bytes != 0 && bytes > options_.rotate_bytes) return Room::kIsNot;
  const bool is_long = options_.rotate_bytes != 0 && offset_ + bytes > options_.rotate_bytes;
  const bool is_old = options_.rotate_ns != 0 && now_ns >= begun_ns_ + options_.rotate_ns;
  if (!is_long && !is_old) return Room::kIsThere;
  Target* next = next_target(current_.load(std::memory_order_relaxed));
  // Acquire pairs with prepare(): the file is empty, and the thread has finished with it.
  if (next == nullptr || next->state.load(std::memory_order_acquire) != kEmpty) {
    return is_stuck_.load(std::memory_order_acquire) ? Room::kIsNot : Room::kWillBe;
  }
  go_on_with(*next, now_ns);
  return Room::kIsThere;
}

void Recording::go_on_with(Target& next, uint64_t now_ns) noexcept {
  const size_t current = current_.load(std::memory_order_relaxed);
  BP_DCHECK(&next != &targets_[current]);
  targets_[current].state.store(kFull, std::memory_order_release);
  next.state.store(kWritten, std::memory_order_relaxed);
  current_.store(static_cast<size_t>(&next - targets_.data()), std::memory_order_release);
  BP_DCHECK(next.writing_count.load(std::memory_order_relaxed) == 0);
  offset_ = 0;
  begun_ns_ = now_ns;
  options_.counters->files.add(1);
  options_.counters->file.set(next.number);
  BP_DCHECK_SLOW(is_valid());
  tell();
  options_.preparer->ring();
}

void Recording::tell() noexcept {
  const Target* next = next_target(current_.load(std::memory_order_relaxed));
  const bool is_ready = next != nullptr && next->state.load(std::memory_order_acquire) == kEmpty;
  options_.counters->is_next_ready.set(is_ready ? 1 : 0);
  options_.counters->is_stuck.set(is_stuck_.load(std::memory_order_relaxed) ? 1 : 0);
}

uint32_t Recording::pump(uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  const uint64_t begun_at = next_;
  for (; next_ < ring_->ready_end(); ++next_) {
    const Packet& packet = ring_->at(next_);
    if (packet.kind != PacketKind::kMedia) continue;
    // Only whole packets are written, so that a later start can continue the file.
    if (!are_ts_packets(packet.payload())) {
      options_.counters->foreign.add(1);
      continue;
    }
    if (free_.is_empty()) break;
    const Room room = room_for(packet.payload_bytes, now_ns);
    if (room == Room::kWillBe) break;
    if (room == Room::kIsNot) {
      options_.counters->dropped.add(1);
      continue;
    }
    Write& write = free_.pop();
    write.packet = ring_->index_at(next_);
    write.target = &targets_[current_.load(std::memory_order_relaxed)];
    ring_->table().hold(write.packet);
    ++writing_count_;
    write.target->writing_count.fetch_add(1, std::memory_order_relaxed);
    FileOperation& operation = write.operation;
    operation.action = FileAction::kWrite;
    operation.memory = const_cast<std::byte*>(packet.payload().data());
    operation.bytes = packet.payload_bytes;
    operation.offset = offset_;
    offset_ += packet.payload_bytes;
    write.target->file->begin(operation);
  }
  return static_cast<uint32_t>(next_ - begun_at);
}

void Recording::missed(const Packet& packet) noexcept {
  if (packet.kind == PacketKind::kMedia) options_.counters->dropped.add(1);
}

void Recording::written(Write& write, int64_t result) noexcept {
  BP_ASSERT(write.self == this && writing_count_ > 0);
  BP_ASSERT(write.target->writing_count.load(std::memory_order_relaxed) > 0);
  const uint64_t bytes = write.operation.bytes;
  if (result == static_cast<int64_t>(bytes)) {
    options_.counters->packets.add(1);
    options_.counters->bytes.add(bytes);
  } else {
    options_.counters->errors.add(1);
  }
  ring_->table().let_go(write.packet);
  // Release pairs with prepare(): all writes are in the file before it is emptied.
  const bool is_last = write.target->writing_count.fetch_sub(1, std::memory_order_release) == 1;
  --writing_count_;
  if (is_last && write.target->state.load(std::memory_order_relaxed) == kFull) {
    options_.preparer->ring();
  }
  free_.push(write);
  BP_DCHECK_SLOW(is_valid());
}

}  // namespace bedplate::relay
