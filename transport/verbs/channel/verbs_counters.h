// The counters of a verbs provider. They have a header of their own, because programs without verbs
// or the headers of rdma-core describe counters files with it.
//
// Shapes and units: Counter is a word of 64 bits that only rises. It counts events or messages, or
// bytes if its name says so. Zeroed memory is a valid set. Ownership: the caller of
// VerbsProvider::create (VerbsProviderOptions::counters), for as long as the provider lives; an
// appliance's lie in the counters file. Threads: the shard that polls the provider writes, any
// thread or process reads. A reader may see counters in another order than they were written.
#pragma once

#include "platform/counter.h"
#include "platform/counter_table.h"

namespace bedplate {

// Counters of datagrams, which may be lost. Each arrival counts as received, strange or malformed.
struct DatagramCounters {
  Counter sent;       // given to the device
  Counter received;   // delivered, with or without a handler
  Counter strange;    // dropped: its sender is not connected now
  Counter malformed;  // dropped: too short, or from a peer and with an invalid header
  Counter failed;     // sends that the device refused or ended with an error
  Counter renewed;    // times that the queue pair failed and was brought up again;
                      // datagrams in it are lost
};

// docs/counters.md has them as `stats` shows them.
struct VerbsCounters {
  Counter sent;       // active messages and loans
  Counter received;   // the same, at delivery: each once
  Counter unhandled;  // received, or datagrams, without a handler for their number: dropped
  Counter resent;     // sent again to the same instance, which lacked them; not in `sent`
  // Accepted, but the peer's instance ended before it said that it had consumed them. Counted when
  // the peer's next instance connects.
  Counter lost;
  Counter connected;  // times that a connection became ready for messages
  Counter broken;   // times that such a connection ended; equals `connected`: no peer is connected
  Counter cut_off;  // times that a peer broke the protocol; also in `broken` if it was connected
  Counter bounced_bytes;  // copied through the bounce buffers, in either direction
  Counter kicks;          // requests posted only because no request had ended for a while
  DatagramCounters datagrams;
};

inline void describe(CounterTable& table, DatagramCounters& c) {
  table.counter("datagrams_sent", c.sent, "datagrams", "Datagrams given to the device.");
  table.counter("datagrams_received", c.received, "datagrams", "Valid datagrams received.");
  table
      .counter("datagrams_unknown", c.strange, "datagrams",
               "Datagrams dropped: their sender is not connected.")
      .alert_as_it_grows(
          "{datagrams_unknown} datagrams came from no connected peer, and were dropped so far: "
          "look for a peer that was given up, or another sender to this queue");
  table
      .counter("datagrams_malformed", c.malformed, "datagrams",
               "Datagrams dropped: too short, or of a peer and with an invalid header.")
      .alert_as_it_grows(
          "{datagrams_malformed} datagrams were malformed, and dropped so far: all peers must be "
          "of builds that agree, or another sender has this queue's number");
  table
      .counter("datagrams_failed", c.failed, "datagrams",
               "Datagrams that the device refused or failed to send.")
      .alert_as_it_grows(
          "the device did not send {datagrams_failed} datagrams so far: check its port (`rdma "
          "link`), and the kernel's log");
  table
      .counter("datagram_resets", c.renewed, "resets",
               "Restarts of the failed queue pair; datagrams in it were lost.")
      .alert_as_it_grows(
          "its datagram queue failed {datagram_resets} times so far, and lost the datagrams in "
          "it: check the kernel's log for the device");
}

inline void describe(CounterTable& table, VerbsCounters& c) {
  table.counter("sent", c.sent, "messages", "Sent messages and loans.");
  table.counter("received", c.received, "messages", "Received messages.");
  table.counter("unhandled", c.unhandled, "messages", "Messages and datagrams without a handler.")
      .alert_as_it_grows(
          "{unhandled} messages found no handler so far: their senders must be of a build that "
          "agrees with this one");
  table
      .counter("resent", c.resent, "messages",
               "Messages sent again after a lost connection, to the same instance of the peer.")
      .no_alert("nothing is lost, and broken counts the cause");
  table
      .counter(
          "lost", c.lost, "messages",
          "Accepted messages that the peer's instance had not confirmed when it ended, counted "
          "when its next instance connects. It may have consumed some.")
      .alert_as_it_grows(
          "a peer ended before it had confirmed all messages; up to {lost} were lost so far: its "
          "log says why; their senders must send them again");
  table.counter("connected", c.connected, "connections", "Established connections.");
  table.counter("broken", c.broken, "connections", "Broken connections.")
      .alert_as_it_grows(
          "{broken} connections to peers broke so far: check the cable, the switch and the "
          "peer's log");
  table
      .counter("cut_off", c.cut_off, "peers",
               "Times that a peer was cut off because it violated the protocol.")
      .alert_as_it_grows(
          "peers violated the protocol and were cut off {cut_off} times so far: the log names "
          "them; both must be of builds that agree");
  table.counter("bounced_bytes", c.bounced_bytes, "bytes", "Bytes copied through bounce buffers.");
  table.counter("kicks", c.kicks, "requests",
                "Requests posted only because none had completed for a while.");
  describe(table, c.datagrams);
}

}  // namespace bedplate
