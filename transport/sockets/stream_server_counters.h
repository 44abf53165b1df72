// The counters of a StreamServer (stream_server.h).
#pragma once

#include "platform/counter.h"

namespace bedplate {

class CounterTable;

// The loop of the server writes them; the service plans them. Those of a StreamAcceptor
// (stream_acceptor.h), which servers of any kind have:
struct AcceptorCounters {
  Counter connections_open;
  Counter connections_peak;  // the most that were open at once
  Counter connections_total;
  // Closed at once: all planned ones were open, the service drains, or attach() failed.
  Counter connections_refused;
};
// Called by the describe() of the struct that contains them. `key`: the key of the service's table
// that its connections are planned by (`bedplate plan --explain`); nullptr: none. `refused`: the
// help of connections_refused.
void describe_acceptor(CounterTable& table, const AcceptorCounters& counters, const char* key,
                       const char* refused);

struct StreamServerCounters : AcceptorCounters {
  Counter connections_replaced;   // idle ones, closed for new ones
  Counter connections_timed_out;  // closed: idle, or too slow
  Counter connections_foreign;    // closed: the peer speaks another protocol
  Counter received_bytes;
  Counter sent_bytes;       // of replies that were sent completely
  Counter answers_waiting;  // StreamSession::later, StreamStep::kWaits
  Counter answers_late;     // those of them that have waited for StreamServerOptions::answer_ns_max
};
// Called by the describe() of the struct that contains these counters. `key`: as above.
void describe(CounterTable& table, const StreamServerCounters& counters, const char* key = nullptr);

}  // namespace bedplate
