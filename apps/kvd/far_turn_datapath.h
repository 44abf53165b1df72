// The turn of a session at the limit of its listener, if that limit is another shard's.
//
// All limits of listeners are on one shard: so the clients of all shards share one budget, to the
// request, and take turns in one queue. The sessions of other shards ask that shard:
//
//     the session         ask(): a question to the shard of the limit; the session waits
//     that shard          try_pass(); or the question is in the queue, among its own sessions
//                         its turn has come: the answer
//     the session         changed(): it goes on
//     the session         owe(): the bytes of a value, once they are known, by a note of their own
//     the client leaves   give_up(): another note takes its question out of the queue
//                         changed(): is_idle()
//
// A request that waits for its turn costs two questions at most; without limits there are none.
//
// Threads: the session's; a question that is on its way belongs to the shard of the limit. Nothing
// is allocated.
#pragma once

#include <cstdint>

#include "transport/loop/request_limit_datapath.h"
#include "transport/loop/shard_question_datapath.h"

namespace bedplate::kvd {

struct Crossing;

// A place in the queue of a limit. came(): the turn has come; it is called on the limit's shard.
struct TurnWaiter : RateWaiter {
  void (*came)(TurnWaiter& self, uint64_t now_ns) noexcept = nullptr;
};

// Invariants: 1. While a turn is awaited it is queued at most once, and only the shard of the limit
// says so. (arrived, told) 2. Bytes that are owed are told by the present note, or by the next one,
// which follows at once. (took_note_back)
class FarTurn {
 public:
  static constexpr uint32_t kQuestionCount = 2;  // in flight at once

  // Ownership: `crossing`, with its asker, outlives this.
  explicit FarTurn(Crossing& crossing) noexcept;
  FarTurn(const FarTurn&) = delete;
  FarTurn& operator=(const FarTurn&) = delete;

  // `changed` is called when the turn has come, or was given up, and when this is idle again; not
  // from within the calls below.
  void serve(void (*changed)(void* context) noexcept, void* context) noexcept {
    changed_ = changed;
    context_ = context;
  }

  bool is_awaited() const noexcept { return is_turn_out_; }
  // Whether nothing is on its way.
  bool is_idle() const noexcept { return !is_turn_out_ && !is_note_out_; }

  // Asks for a turn, of writes or of reads. Requires: is_idle(), or only owe() was called since: a
  // client has one limit. Ownership: `limit` outlives this.
  void ask(RequestLimit& limit, bool is_write) noexcept;
  // Charges the bytes of a request that went on. Requires: as ask().
  void owe(RequestLimit& limit, bool is_write, uint64_t bytes) noexcept;
  // Nobody wants the turn any more. Bytes that are owed are paid.
  void give_up() noexcept;

 private:
  struct Turn : ShardQuestion, TurnWaiter {
    FarTurn* far = nullptr;
    RateLimit* rate = nullptr;
    bool is_queued = false;  // the shard of the limit reads and writes it
  };
  struct Note : ShardQuestion {
    FarTurn* far = nullptr;
    RequestLimit* limit = nullptr;
    uint64_t read_bytes = 0;
    uint64_t write_bytes = 0;
    bool gives_up = false;  // the turn
  };

  void tell() noexcept;
  static void arrived(ShardQuestion& self) noexcept;
  static void came(TurnWaiter& self, uint64_t now_ns) noexcept;
  static void told(ShardQuestion& self) noexcept;
  static void took_turn_back(ShardQuestion& self) noexcept;
  static void took_note_back(ShardQuestion& self) noexcept;

  Crossing& crossing_;
  void (*changed_)(void* context) noexcept = nullptr;
  void* context_ = nullptr;
  RequestLimit* limit_ = nullptr;  // the last one
  uint64_t owed_read_bytes_ = 0;   // that no note has
  uint64_t owed_write_bytes_ = 0;
  bool is_turn_out_ = false;
  bool is_note_out_ = false;
  bool must_give_up_ = false;  // by the next note
  Turn turn_;
  Note note_;
};

}  // namespace bedplate::kvd
