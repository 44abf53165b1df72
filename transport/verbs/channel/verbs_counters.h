// What a provider over verbs counts. A file of its own: counters files are described with it also
// in programs that have no verbs linked in, and where the headers of rdma-core are not.
#pragma once

#include "platform/counter.h"

namespace bedplate {

// Written by the shard that polls.
struct DatagramCounters {
  Counter sent;  // given to the device
  Counter received;
  Counter strange;    // dropped: of nobody who is connected here now
  Counter malformed;  // dropped: from a peer, too short or with a header that is none
  Counter failed;     // sends that the device did not take, or could not end
  Counter renewed;    // the queue pair failed and was brought up again; what lay in it is lost
};

// Written by the shard that polls. docs/counters.md has them as `stats` shows them.
struct VerbsCounters {
  Counter sent;  // active messages and loans
  Counter received;
  Counter unhandled;
  Counter resent;  // after a loss, to the same instance, which had not got them
  Counter lost;    // accepted, and not consumed by an instance that is no more
  Counter connected;
  Counter broken;
  Counter cut_off;
  Counter bounced_bytes;  // copied through the bounce buffers
  Counter kicks;          // requests posted only because none had ended for a while
  DatagramCounters datagrams;
};

}  // namespace bedplate
