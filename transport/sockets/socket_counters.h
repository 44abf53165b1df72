// The counters of a shard's sockets, streams and datagrams. Written by the shard, read by `bedplate
// stats`.
#pragma once

#include "platform/counter.h"
#include "platform/shared_text.h"

namespace bedplate {

class CounterTable;

struct SocketCounters {
  Counter system_calls;  // io_uring_enter; or epoll_wait, recvmsg, sendmsg; recvmmsg, sendmmsg
  Counter accepts;
  Counter received_bytes;  // with those of datagrams
  Counter sent_bytes;
  Counter received_datagrams;  // each of those that were joined
  Counter sent_datagrams;
  Counter dropped_datagrams;  // by the system, which held as many as it may
  Counter truncated_datagrams;
  // Peers that have taken nothing of the data sent to them for a second, as of the last look.
  Counter slow_clients;
  Counter slow_client_ns;    // the slowest: since when
  SharedText slow_client;    // its address, and that which it is connected to
  Counter cutting_refusals;  // sockets whose datagrams the kernel would not cut (udp/udp_socket.h)
};

void describe(CounterTable& table, SocketCounters& counters);

}  // namespace bedplate
