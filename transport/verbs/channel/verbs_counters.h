// The counters of a verbs provider. They have a file of their own: programs that have no verbs
// linked in, or no headers of rdma-core, also describe counters files with it.
//
// Shapes and units: Counter is a word of 64 bits that only rises. It counts events or messages, or
// bytes if its name says so. Zeroed memory is a valid set. Ownership: the caller of
// VerbsProvider::create (VerbsProviderOptions::counters), for as long as the provider lives; an
// appliance's lie in the counters file. Threads: the shard that polls the provider writes, any
// thread or process reads; a reader may see one counter before another that was written first.
#pragma once

#include "platform/counter.h"

namespace bedplate {

// Counters of datagrams, which may be lost. Each that came is in received, strange or malformed.
struct DatagramCounters {
  Counter sent;       // given to the device
  Counter received;   // handed on, whether there was a handler or not
  Counter strange;    // dropped: its sender is not connected here now
  Counter malformed;  // dropped: from a peer, too short or with a header that is none
  Counter failed;     // sends that the device did not take, or could not end
  Counter renewed;    // times that the queue pair failed and was brought up again, without what
                      // lay in it
};

// docs/counters.md has them as `stats` shows them.
struct VerbsCounters {
  Counter sent;       // active messages and loans
  Counter received;   // the same, when they are delivered: each once
  Counter unhandled;  // received, or datagrams, for whose number there was no handler: dropped
  Counter resent;     // after a loss, to the same instance, which had not got them; not in `sent`
  Counter lost;       // accepted, and not consumed by an instance that is no more
  Counter connected;  // times that messages could be sent to a peer from then on
  Counter broken;     // of these, those that are over; equal: no peer is connected
  Counter cut_off;    // times that a peer broke the rules; those after `connected` are in `broken`
  Counter bounced_bytes;  // copied through the bounce buffers, in either direction
  Counter kicks;          // requests posted only because none had ended for a while
  DatagramCounters datagrams;
};

}  // namespace bedplate
