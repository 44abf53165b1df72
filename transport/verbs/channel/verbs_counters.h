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
#include "platform/counter_table.h"

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

inline void describe(CounterTable& table, DatagramCounters& c) {
  table.counter("datagrams_sent", c.sent, "datagrams", "Given to the device.");
  table.counter("datagrams_received", c.received, "datagrams", "Came, and were good.");
  table
      .counter("datagrams_unknown", c.strange, "datagrams",
               "Dropped: of nobody who is connected here now.")
      .sign_as_it_grows(
          "datagrams come of nobody who is connected, {datagrams_unknown} dropped by now: look "
          "for a peer that was given up, or who else sends to this queue");
  table
      .counter("datagrams_malformed", c.malformed, "datagrams",
               "Dropped: from a peer, too short or with a header that is none.")
      .sign_as_it_grows(
          "peers send datagrams of no sense, {datagrams_malformed} dropped by now: have all peers "
          "be of builds that agree");
  table
      .counter("datagrams_failed", c.failed, "datagrams",
               "Sends that the device did not take, or could not end.")
      .sign_as_it_grows(
          "the device does not send, {datagrams_failed} datagrams by now: look at its port "
          "(`rdma link`), and at the kernel's log");
  table
      .counter("datagram_resets", c.renewed, "resets",
               "The queue pair failed and was brought up again; what lay in it is lost.")
      .sign_as_it_grows(
          "its queue of datagrams fails, {datagram_resets} times by now, and loses what lies in "
          "it: look at the device in the kernel's log");
}

inline void describe(CounterTable& table, VerbsCounters& c) {
  table.counter("sent", c.sent, "messages", "Active messages and loans.");
  table.counter("received", c.received, "messages", "Messages that came.");
  table
      .counter("unhandled", c.unhandled, "messages",
               "Messages and datagrams that no handler was set for.")
      .sign_as_it_grows(
          "messages come that nothing here handles, {unhandled} by now: have their senders be of "
          "a build that agrees with this one");
  table
      .counter("resent", c.resent, "messages",
               "After a loss, to the same instance, which had not got them.")
      .no_sign("nothing of it is lost, and broken has its cause");
  table
      .counter("lost", c.lost, "messages",
               "Accepted, and not consumed by an instance that is no more.")
      .sign_as_it_grows("a peer has ended before it had all, and {lost} messages are lost by now: "
                        "its log says why it did, those who sent them must do so again");
  table.counter("connected", c.connected, "connections", "Connections that were made.");
  table.counter("broken", c.broken, "connections", "Connections that broke.")
      .sign_as_it_grows(
          "connections to peers break, {broken} by now: look at the cable, the switch and the "
          "peer's log");
  table.counter("cut_off", c.cut_off, "peers", "Peers that broke the rules.")
      .sign_as_it_grows(
          "peers that broke the rules are cut off, {cut_off} by now: the log names them; have "
          "both be of builds that agree");
  table.counter("bounced_bytes", c.bounced_bytes, "bytes", "Copied through bounce buffers.");
  table.counter("kicks", c.kicks, "requests", "Posted only because none had ended for a while.");
  describe(table, c.datagrams);
}

}  // namespace bedplate
