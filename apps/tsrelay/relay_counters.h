// What the relay counts, by stream, leg, and output: written by the stream's shard, read by
// `bedplate stats`.
//
// Tested by tests/apps/tsrelay/relay_stream_test.cc, tests/system/tsrelay_test.py.
#pragma once

#include "apps/boot/counter_table.h"

namespace bedplate::relay {

struct alignas(kCacheLineBytes) StreamCounters {
  Counter packets;
  Counter bytes;
  Counter lost;
  Counter duplicates;
  Counter late;
  Counter restarts;
  Counter rtp_added;
  Counter held;
  Counter window_peak;
  Counter queue_peak;
  Counter fec_packets;
  Counter fec_recovered;
  Counter fec_unrecoverable;
  Counter fec_malformed;
  Counter fec_unprotected;
  Counter fec_sent;
  Counter ts_packets;
  Counter ts_null_packets;
  Counter ts_programs;
  Counter ts_bit_rate;
  Counter ts_sync_losses;
  Counter ts_sync_byte_errors;
  Counter ts_pat_errors;
  Counter ts_continuity_errors;
  Counter ts_pmt_errors;
  Counter ts_pid_errors;
  Counter ts_transport_errors;
  Counter ts_crc_errors;
  Counter pcrs;
  Counter pcr_discontinuities;
  Counter pcr_interval_max_ns;
  Counter pcr_accuracy_max_ns;
  Counter pace_restarts;
  Counter readers;
  Counter questions_dropped;
};

inline void describe(CounterTable& table, StreamCounters& c) {
  table.counter("packets", c.packets, "packets", "Datagrams that went on to the outputs.");
  table.counter("bytes", c.bytes, "bytes", "Of transport stream in them.");
  table.counter("lost", c.lost, "packets", "Missing on all legs, and not brought back in time.")
      .sign_as_it_grows(
          "packets are lost on the way here, {lost} by now: look at the sender and the "
          "network; a second leg or FEC would bring them back");
  table.counter("duplicates", c.duplicates, "packets", "Came once more, as by the other leg.");
  table.counter("late", c.late, "packets", "Came after they had been given up.");
  table.counter("restarts", c.restarts, "restarts", "A sender began its numbers anew.");
  table.counter("rtp_added", c.rtp_added, "packets", "Given RTP, since they came without.");
  table.gauge("held", c.held, "packets", "Received, and not let go by all yet.");
  table
      .gauge("window_peak", c.window_peak, "packets",
             "The most by which a packet came ahead of the first that was missing, with itself.")
      .peak_of("stream.window_packets", "A packet that comes late is given up for lost sooner.");
  table
      .gauge("queue_peak", c.queue_peak, "packets",
             "The most that waited at once for outputs, recordings, readers or their time.")
      .peak_of("stream.queue_packets", "The oldest packets are dropped for those that are behind.");
  table.counter("fec_packets", c.fec_packets, "packets", "FEC packets that came.");
  table.counter("fec_recovered", c.fec_recovered, "packets", "Brought back by FEC.");
  table.counter("fec_unrecoverable", c.fec_unrecoverable, "sets",
                "Of FEC packets of which more than one packet stayed missing.");
  table.counter("fec_malformed", c.fec_malformed, "packets", "FEC packets that make no sense.");
  table.counter("fec_unprotected", c.fec_unprotected, "sets",
                "Rows and columns that were sent without FEC, for a gap or want of buffers.");
  table.counter("fec_sent", c.fec_sent, "packets", "FEC packets that were made.");
  table.counter("ts_packets", c.ts_packets, "packets", "Packets of transport stream.");
  table.counter("ts_null_packets", c.ts_null_packets, "packets", "Of them, stuffing.");
  table.gauge("ts_programs", c.ts_programs, "programs", "As PATs have them.");
  table.gauge("ts_bit_rate", c.ts_bit_rate, "bits/s", "By the last two PCRs.");
  table.counter("ts_sync_losses", c.ts_sync_losses, "losses", "TR 101 290, 1.1.");
  table.counter("ts_sync_byte_errors", c.ts_sync_byte_errors, "errors", "TR 101 290, 1.2.");
  table.counter("ts_pat_errors", c.ts_pat_errors, "errors", "TR 101 290, 1.3.");
  table.counter("ts_continuity_errors", c.ts_continuity_errors, "errors", "TR 101 290, 1.4.");
  table.counter("ts_pmt_errors", c.ts_pmt_errors, "errors", "TR 101 290, 1.5.");
  table.counter("ts_pid_errors", c.ts_pid_errors, "errors", "TR 101 290, 1.6.");
  table.counter("ts_transport_errors", c.ts_transport_errors, "errors", "TR 101 290, 2.1.");
  table.counter("ts_crc_errors", c.ts_crc_errors, "errors", "TR 101 290, 2.2, of PAT and PMT.");
  table.counter("pcrs", c.pcrs, "PCRs", "Program clock references.");
  table.counter("pcr_discontinuities", c.pcr_discontinuities, "errors",
                "PCRs over 100 ms apart that were not announced: TR 101 290, 2.3b.");
  table.gauge("pcr_interval_max_ns", c.pcr_interval_max_ns, "ns",
              "The longest between two PCRs: TR 101 290, 2.3a.");
  table.gauge("pcr_accuracy_max_ns", c.pcr_accuracy_max_ns, "ns",
              "The most that a PCR was off, at a constant rate: TR 101 290, 2.4.");
  table.counter("pace_restarts", c.pace_restarts, "restarts",
                "The pace began anew: at a jump of the PCRs, or of their arrival.");
  table.gauge("readers", c.readers, "processes", "That get the stream by messages.");
  table.counter("questions_dropped", c.questions_dropped, "messages",
                "Of processes that would read it: they made no sense, or all places were taken.");
}

struct alignas(kCacheLineBytes) LegCounters {
  Counter packets;
  Counter bytes;
  Counter lost;
  Counter reordered;
  Counter jitter_ns;
  Counter senders;
  Counter is_silent;
  Counter silences;
  Counter foreign;
  Counter outside;
  Counter truncated;
  Counter rtp_malformed;
  Counter ts_malformed;
};

inline void describe(CounterTable& table, LegCounters& c) {
  table.counter("packets", c.packets, "packets", "Datagrams that came and made sense.");
  table.counter("bytes", c.bytes, "bytes", "In them.");
  table.gauge("lost", c.lost, "packets", "Missing on this leg, by its RTP numbers.");
  table.counter("reordered", c.reordered, "packets", "Came behind a later one.");
  table.gauge("jitter_ns", c.jitter_ns, "ns", "Interarrival jitter, RFC 3550.");
  table.counter("senders", c.senders, "senders", "That had this leg, one after the other.");
  table.boolean("is_silent", c.is_silent,
                "Whether nothing has come of a sender for sender_timeout_ms.");
  table.counter("silences", c.silences, "silences", "How often that began.");
  table.counter("foreign", c.foreign, "packets", "Dropped: of a second sender at the same time.");
  table.counter("outside", c.outside, "packets", "Dropped: numbers that make no sense.");
  table.counter("truncated", c.truncated, "packets", "Dropped: too long for a buffer.");
  table.counter("rtp_malformed", c.rtp_malformed, "packets", "Dropped: no RTP.");
  table.counter("ts_malformed", c.ts_malformed, "packets", "Dropped: no whole TS packets.");
}

struct alignas(kCacheLineBytes) OutputCounters {
  Counter packets;
  Counter bytes;
  Counter dropped;
  Counter refused;
  Counter unreachable;
  Counter is_aside;
  Counter is_muted;
};

inline void describe(CounterTable& table, OutputCounters& c) {
  table.counter("packets", c.packets, "packets", "Handed to the network, FEC included.");
  table.counter("bytes", c.bytes, "bytes", "In them.");
  table.counter("dropped", c.dropped, "packets", "Oldest first, since it did not take them.")
      .refusals_of("stream.queue_packets")
      .sign_as_it_grows("the network does not take its packets, and {dropped} are dropped by now: "
                        "look at the interface, and at what else sends by it");
  table.counter("refused", c.refused, "packets", "That the system would not send.")
      .sign_as_it_grows("the system refuses to send, {refused} packets by now: look at the route, "
                        "the MTU and the firewall");
  table.counter("unreachable", c.unreachable, "errors", "Told by the network afterwards (ICMP).");
  table.boolean("is_aside", c.is_aside,
                "Whether it is sent to by a socket of its own kind: nobody answered for it.");
  table.boolean("is_muted", c.is_muted, "Whether nothing is sent to it, as tsrelay.mute has said.");
}

struct alignas(kCacheLineBytes) RecordingCounters {
  Counter packets;
  Counter bytes;
  Counter dropped;
  Counter errors;
  Counter foreign;
  Counter files;
  Counter file;
  Counter is_next_ready;
  Counter is_stuck;
};

inline void describe(CounterTable& table, RecordingCounters& c) {
  table.counter("packets", c.packets, "packets", "Written.");
  table.counter("bytes", c.bytes, "bytes", "Written.");
  table
      .counter("dropped", c.dropped, "packets",
               "Oldest first, since the disk did not follow, or no file could be had.")
      .refusals_of("stream.queue_packets")
      .sign_as_it_grows(
          "the disk is too slow, and {dropped} packets are missing in it: look at the "
          "drive, and at what else writes to it");
  table.counter("errors", c.errors, "packets", "That could not be written.")
      .sign_as_it_grows(
          "packets cannot be written, {errors} by now: look whether the disk is full, "
          "and what the kernel's log says of it");
  table
      .counter("foreign", c.foreign, "packets",
               "That are no packets of a transport stream, and are not recorded.")
      .sign_as_it_grows("{foreign} of its packets by now are no transport stream, and are not in "
                        "it: look at what the sender sends");
  table.counter("files", c.files, "files", "That were begun, or gone on with.");
  table.gauge("file", c.file, "number", "Of the file that is written now, in its name.");
  table.boolean("is_next_ready", c.is_next_ready,
                "Whether the next file is empty, where there is one.");
  table
      .boolean("is_stuck", c.is_stuck,
               "Whether no file can be had behind the present one: what does not fit is dropped.")
      .sign_from(1, "the next file of it cannot be emptied, and packets will be missing in it: the "
                    "log says which file, and why");
}

struct alignas(kCacheLineBytes) ReaderCounters {
  Counter packets;
  Counter dropped;
  Counter lent;
  Counter gone;
};

inline void describe(CounterTable& table, ReaderCounters& c) {
  table.counter("packets", c.packets, "packets", "Lent to processes.");
  table.counter("dropped", c.dropped, "packets", "Oldest first, since their reader kept too many.")
      .refusals_of("stream.queue_packets")
      .sign_as_it_grows("a reader is too slow, and {dropped} packets are dropped by now: it must "
                        "give back what is lent to it sooner");
  table.gauge("lent", c.lent, "packets", "That readers have now.");
  table.counter("gone", c.gone, "processes", "That have left, died, or may not read the buffers.");
}

}  // namespace bedplate::relay
