#include "transport/sockets/socket_counters.h"

#include "platform/counter_table.h"
#include "platform/units.h"

namespace bedplate {

void describe(CounterTable& table, SocketCounters& c) {
  table.counter("system_calls", c.system_calls, "calls",
                "System calls of the sockets: io_uring_enter, recvmmsg and the like.");
  table.counter("accepts", c.accepts, "connections", "Accepted connections.");
  table.gauge("slow_clients", c.slow_clients, "connections",
              "Clients that have read nothing of an answer for a second or more.");
  table
      .gauge("slow_client_ns", c.slow_client_ns, "ns",
             "How long the slowest client has read nothing; 0: there is none.")
      .alert_from(5 * kNsPerSecond,
                  "the client {slow_client} has read nothing of its answer for {slow_client_ns} "
                  "({slow_clients} in all)");
  table.text("slow_client", c.slow_client, "The slowest client.");
  table.counter("received_bytes", c.received_bytes, "bytes", "Received from sockets.");
  table.counter("sent_bytes", c.sent_bytes, "bytes", "Sent to sockets.");
  table.counter("received_datagrams", c.received_datagrams, "datagrams",
                "Received datagrams; coalesced ones (GRO) are counted one by one.");
  table.counter("sent_datagrams", c.sent_datagrams, "datagrams", "Sent.");
  table
      .counter("dropped_datagrams", c.dropped_datagrams, "datagrams",
               "Datagrams dropped by the kernel because the receive buffer was full.")
      .alert_as_it_grows(
          "the kernel dropped {dropped_datagrams} datagrams so far, because the shard was too "
          "slow: raise receive_queue_bytes, or give it a core of its own");
  table
      .counter("truncated_datagrams", c.truncated_datagrams, "datagrams",
               "Received datagrams that were larger than the buffer.")
      .alert_as_it_grows(
          "{truncated_datagrams} datagrams were longer than their buffer so far: raise "
          "buffer_bytes, or have shorter ones sent");
  table
      .counter("cutting_refusals", c.cutting_refusals, "sockets",
               "Sockets whose datagrams the kernel refused to segment (GSO), so that each is sent "
               "by itself.")
      .alert_as_it_grows(
          "the kernel does not segment the datagrams of {cutting_refusals} sockets, which costs "
          "time: `ethtool -K DEVICE tx on`, or another device");
}

}  // namespace bedplate
