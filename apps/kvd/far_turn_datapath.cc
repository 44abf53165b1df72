#include "apps/kvd/far_turn_datapath.h"

#include <algorithm>
#include <utility>

#include "apps/kvd/wave_datapath.h"
#include "platform/assert.h"
#include "transport/loop/token_bucket.h"

namespace bedplate::kvd {
namespace {

// As much of *owed as a limit takes at once.
uint64_t take_part(uint64_t* owed) noexcept {
  const uint64_t part = std::min<uint64_t>(*owed, TokenBucket::kCostMax);
  *owed -= part;
  return part;
}

}  // namespace

FarTurn::FarTurn(Crossing& crossing) noexcept : crossing_(crossing) {
  turn_.asked = &FarTurn::arrived;
  turn_.came = &FarTurn::came;
  turn_.far = this;
  note_.asked = &FarTurn::told;
  note_.far = this;
}

// ---- On the shard of the session ----------------------------------------------------------------

void FarTurn::ask(RequestLimit& limit, bool is_write) noexcept {
  BP_DCHECK(!is_awaited() && !must_give_up_);
  limit_ = &limit;
  turn_.rate = is_write ? &limit.writes() : &limit.reads();
  is_turn_out_ = true;
  crossing_.asker->ask(limit.loop(), turn_, &FarTurn::took_turn_back);
}

void FarTurn::owe(RequestLimit& limit, bool is_write, uint64_t bytes) noexcept {
  BP_DCHECK(is_idle() || limit_ == &limit);
  limit_ = &limit;
  (is_write ? owed_write_bytes_ : owed_read_bytes_) += bytes;
  if (!is_note_out_) tell();
}

void FarTurn::give_up() noexcept {
  must_give_up_ = is_awaited();
  if (must_give_up_ && !is_note_out_) tell();
}

void FarTurn::tell() noexcept {
  note_.limit = limit_;
  note_.read_bytes = take_part(&owed_read_bytes_);
  note_.write_bytes = take_part(&owed_write_bytes_);
  note_.gives_up = std::exchange(must_give_up_, false);
  is_note_out_ = true;
  crossing_.asker->ask(limit_->loop(), note_, &FarTurn::took_note_back);
}

void FarTurn::took_turn_back(ShardQuestion& self) noexcept {
  FarTurn& far = *static_cast<Turn&>(self).far;
  far.is_turn_out_ = false;
  far.changed_(far.context_);
}

void FarTurn::took_note_back(ShardQuestion& self) noexcept {
  FarTurn& far = *static_cast<Note&>(self).far;
  far.is_note_out_ = false;
  if (far.must_give_up_ || far.owed_read_bytes_ > 0 || far.owed_write_bytes_ > 0) far.tell();
  far.changed_(far.context_);
}

// ---- On the shard of the limit ------------------------------------------------------------------

void FarTurn::arrived(ShardQuestion& self) noexcept {
  auto& turn = static_cast<Turn&>(self);
  BP_DCHECK(!turn.is_queued);
  turn.is_queued = !turn.rate->try_pass(turn, 0);
  if (!turn.is_queued) turn.answer();
}

void FarTurn::came(TurnWaiter& self, uint64_t /*now_ns*/) noexcept {
  auto& turn = static_cast<Turn&>(self);
  BP_DCHECK(turn.is_queued);
  turn.is_queued = false;
  turn.answer();
}

void FarTurn::told(ShardQuestion& self) noexcept {
  auto& note = static_cast<Note&>(self);
  Turn& turn = note.far->turn_;
  note.limit->reads().charge(note.read_bytes);
  note.limit->writes().charge(note.write_bytes);
  if (note.gives_up && turn.is_queued) {
    (void)turn.rate->remove([&turn](const RateWaiter& each) { return &each == &turn; });
    turn.is_queued = false;
    turn.answer();
  }
  note.answer();
}

}  // namespace bedplate::kvd
