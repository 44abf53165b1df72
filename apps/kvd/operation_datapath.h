// The work of a command on the item of a key, apart from its answer: so the shard that owns the
// key executes it, and the shard of the client answers it.
//
//     the client's shard           fills an Operation, whose texts lie in the session's input
//     the owner's shard            execute(): the work of Items; what came of it
//     the client's shard           answers it
//
// The text of an item that is found is copied if it is short: a copy moves its lines between the
// cores twice, but a pin moves the item's first line once more, and takes one more crossing to end.
// A longer text stays where it is: its item is pinned, and the owner unpins it when the text is
// sent. The client's shard reads the text alone, never the item, which is the owner's.
//
// Threads: the shards', in turn (wave_datapath.h). Nothing is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "apps/kvd/items_datapath.h"
#include "apps/kvd/meta_commands_datapath.h"
#include "apps/kvd/meta_request_datapath.h"
#include "platform/cache_line.h"

namespace bedplate::kvd {

enum class Work : uint8_t {
  kSay,     // none: its answer, a static text, waits for its turn
  kGet,     // a key of a get
  kStore,   // a value that is there
  kMake,    // an item that a long value is received into
  kFinish,  // stores this item
  kDrop,    // gives it up
  kCount,
  kTouch,
  kDelete,
  kFlush,  // of all items; several shards read this operation at a time, and change nothing of it
  kMeta,
};

// The first line has all that a get needs.
struct alignas(kCacheLineBytes) Operation {
  Work work = Work::kSay;
  Outcome outcome = Outcome::kDone;
  uint8_t get = 0;            // bits of Form::Get
  bool is_quiet : 1 = false;  // its answer is not wanted
  bool is_incr : 1 = false;
  bool ends_get : 1 = false;  // kSay: the get before it is answered
  uint16_t owner = 0;         // the number of the shard
  uint16_t head_bytes = 0;    // of the item that was found
  std::string_view key;
  std::string_view text;      // the answer of kSay and kMeta; of kGet the item's text, or nothing
  CacheItem* item = nullptr;  // pinned: it has `text`, or the value of kMeta; of kMake, the new one
  uint64_t number = 0;        // of a count, the difference, then the result; of a get, the version
  int64_t expiry_s = 0;       // as the client sent it

  std::string_view value;  // of kStore; of kMeta, what is sent behind `text` from `item`
  uint32_t flags = 0;
  uint32_t value_bytes = 0;
  Items::StoreTerms terms;
  MetaCommand* meta = nullptr;           // kMeta
  const MetaRequest* request = nullptr;  // of kMeta, and of kStore and kFinish if it is an ms
};
static_assert(sizeof(Operation) == 2 * kCacheLineBytes);

// Executes `operation` on the shard of `environment`, at its cache's time. `copy`: short texts are
// copied to it, and answers of meta commands, which take kMetaReplyBytesMax. Empty: texts of items
// are pinned. Requires: the operation is no kSay; no meta command without a `copy`.
void execute(const Environment& environment, Operation& operation, std::span<char> copy) noexcept;

}  // namespace bedplate::kvd
