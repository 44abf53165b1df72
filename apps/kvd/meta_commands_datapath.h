// memcached's meta commands: what mg, md, ma, me and the end of an ms do to the items, and their
// replies. The session parses them, and stores the value of an ms as that of a set.
//
// Flags in replies: W, the client won and should store another value; X, the value is stale; Z, a
// client has won already. An item is won by N (it was made because there was none), by R (it
// expires soon), or by the first read after md I made it stale; until then nobody else is told to.
//
// Threads: the shard's. Nothing is allocated.
#pragma once

#include "apps/kvd/items_datapath.h"
#include "apps/kvd/meta_request_datapath.h"
#include "platform/text_writer.h"

namespace bedplate::kvd {

// The longest reply without a value from the cache.
inline constexpr size_t kMetaReplyBytesMax = 640;

// Writes the reply to a meta command, or nothing if its client wants none. Returns the item whose
// value, with its line end, follows the reply; nullptr: none does.
using MetaCommand = CacheItem*(const Environment& environment, const MetaRequest& request,
                               TextWriter& reply) noexcept;
MetaCommand meta_get, meta_delete, meta_count, meta_debug;

// How an ms stores its value. Returns false if there is no such mode.
bool meta_store_terms(const MetaRequest& request, Items::StoreTerms* terms) noexcept;
// Writes the reply to an ms. `value_bytes`: of the value that the client sent.
void meta_stored(const MetaRequest& request, const Items::Changed& changed, uint64_t value_bytes,
                 TextWriter& reply) noexcept;

}  // namespace bedplate::kvd
