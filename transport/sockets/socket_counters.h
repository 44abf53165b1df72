// The counters of a shard's sockets, streams and datagrams. The shard writes them, `bedplate stats`
// reads them.
#pragma once

#include "platform/counter.h"
#include "platform/shared_text.h"

namespace bedplate {

class CounterTable;

struct SocketCounters {
  Counter system_calls;  // io_uring_enter; or epoll_wait, recvmsg, sendmsg; recvmmsg, sendmmsg
  Counter accepts;
  Counter received_bytes;      // includes those of datagrams
  Counter sent_bytes;          // includes those of datagrams
  Counter received_datagrams;  // counts each datagram of a joined one
  Counter sent_datagrams;
  Counter dropped_datagrams;  // by the system, because its queue was full
  Counter truncated_datagrams;
  // Peers that had taken nothing of the data sent to them for a second, at the last look.
  Counter slow_clients;
  Counter slow_client_ns;    // how long the slowest has taken nothing
  SharedText slow_client;    // the slowest one's address, and the address that it is connected to
  Counter cutting_refusals;  // sockets whose datagrams the kernel would not cut (udp/udp_socket.h)
};

void describe(CounterTable& table, SocketCounters& counters);

}  // namespace bedplate
