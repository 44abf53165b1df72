// The relay's counters by stream, leg, output and recording, and of a stream's readers. The
// stream's shard writes them; `bedplate stats` reads them.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>

#include "platform/counter_table.h"

namespace bedplate::relay {

struct alignas(kCacheLineBytes) StreamCounters {
  Counter packets;
  Counter bytes;
  Counter rate_peak_bytes;
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
  table.counter("packets", c.packets, "packets", "Datagrams forwarded to the outputs.")
      .at_a_glance("packets");
  table.counter("bytes", c.bytes, "bytes", "Bytes of transport stream in them.")
      .at_a_glance("bytes");
  table
      .gauge("rate_peak_bytes", c.rate_peak_bytes, "bytes",
             "The most of these bytes in one second.")
      .peak_of("stream.rate_bytes", "Its shard may get more streams than it can serve.");
  table.counter("lost", c.lost, "packets", "Packets missing on all legs and not recovered in time.")
      .at_a_glance("lost")
      .alert_as_it_grows(
          "{lost} packets were lost so far: check the sender and the network; a second leg or "
          "FEC would recover them");
  table.counter("duplicates", c.duplicates, "packets",
                "Packets received again, such as on the other leg.");
  table.counter("late", c.late, "packets", "Packets received after they had been given up.")
      .alert_as_it_grows(
          "{late} packets arrived too late so far: raise window_ms, or find what delays them in "
          "the network");
  table.counter("restarts", c.restarts, "restarts",
                "Times that sequence numbers began anew: of the sender, of another one, or for "
                "the drain.");
  table.counter("rtp_added", c.rtp_added, "packets",
                "Packets that arrived without RTP headers and got some.");
  table.gauge("held", c.held, "packets",
              "Packets held: in the window, for FEC, or for outputs, recordings or readers.");
  table
      .gauge("window_peak", c.window_peak, "packets",
             "The largest distance of a received packet from the first missing one, in packets.")
      .peak_of("stream.window_packets", "Late packets are given up as lost sooner.");
  table
      .gauge("queue_peak", c.queue_peak, "packets",
             "The most packets that waited at once for outputs, recordings, readers or their pace.")
      .peak_of("stream.queue_packets", "Outputs that are behind lose their oldest packets.");
  table.counter("fec_packets", c.fec_packets, "packets", "Received FEC packets.");
  table.counter("fec_recovered", c.fec_recovered, "packets", "Packets recovered by FEC.");
  table
      .counter("fec_unrecoverable", c.fec_unrecoverable, "sets",
               "FEC sets dropped: more than one packet stayed missing, or no buffer was free.")
      .alert_as_it_grows(
          "FEC could not recover {fec_unrecoverable} sets so far: use FEC with columns and "
          "rows, or a second leg");
  table
      .counter("fec_malformed", c.fec_malformed, "packets",
               "FEC packets that are malformed, or whose sum yields no packet.")
      .alert_as_it_grows(
          "{fec_malformed} packets at a leg's FEC ports were malformed so far: check what sends "
          "to its port + 2 and + 4, and with which FEC");
  table
      .counter("fec_unprotected", c.fec_unprotected, "sets",
               "Rows and columns sent without FEC: because of a gap, too few buffers, or too long "
               "packets.")
      .alert_as_it_grows(
          "{fec_unprotected} rows and columns were sent without FEC so far: packets are missing "
          "in the input, outputs hold its buffers, or buffer_bytes is too low");
  table.counter("fec_sent", c.fec_sent, "packets", "FEC packets made for outputs.");
  table.counter("ts_packets", c.ts_packets, "packets", "TS packets.");
  table.counter("ts_null_packets", c.ts_null_packets, "packets", "TS null packets.");
  table.gauge("ts_programs", c.ts_programs, "programs", "Programs in the PATs.");
  table.gauge("ts_bit_rate", c.ts_bit_rate, "bits/s", "The bit rate by the last two PCRs.");
  table.counter("ts_sync_losses", c.ts_sync_losses, "losses", "TR 101 290, 1.1.")
      .alert_as_it_grows(
          "the transport stream lost its sync {ts_sync_losses} times so far: check the encoder "
          "or multiplexer");
  table.counter("ts_sync_byte_errors", c.ts_sync_byte_errors, "errors", "TR 101 290, 1.2.")
      .alert_as_it_grows(
          "{ts_sync_byte_errors} packets had no sync byte so far: check the encoder or "
          "multiplexer");
  table.counter("ts_pat_errors", c.ts_pat_errors, "errors", "TR 101 290, 1.3.")
      .alert_as_it_grows(
          "its PAT was missing or wrong {ts_pat_errors} times so far: check the multiplexer");
  table.counter("ts_continuity_errors", c.ts_continuity_errors, "errors", "TR 101 290, 1.4.")
      .alert_as_it_grows(
          "packets within it were missing {ts_continuity_errors} times so far: if no leg lost "
          "any, check what comes before the sender");
  table.counter("ts_pmt_errors", c.ts_pmt_errors, "errors", "TR 101 290, 1.5.")
      .alert_as_it_grows(
          "a PMT was missing or wrong {ts_pmt_errors} times so far: check the multiplexer");
  table.counter("ts_pid_errors", c.ts_pid_errors, "errors", "TR 101 290, 1.6.")
      .alert_as_it_grows(
          "a PID that its PMT names was missing {ts_pid_errors} times so far: check its encoder");
  table.counter("ts_transport_errors", c.ts_transport_errors, "errors", "TR 101 290, 2.1.")
      .alert_as_it_grows(
          "{ts_transport_errors} packets were marked as damaged so far: check the receiver or "
          "link that they come from");
  table.counter("ts_crc_errors", c.ts_crc_errors, "errors", "TR 101 290, 2.2, of PAT and PMT.")
      .alert_as_it_grows(
          "{ts_crc_errors} tables were damaged so far: check the multiplexer, and the link "
          "before the sender");
  table.counter("pcrs", c.pcrs, "PCRs", "Program clock references.");
  table
      .counter("pcr_discontinuities", c.pcr_discontinuities, "errors",
               "PCRs over 100 ms apart that were not announced: TR 101 290, 2.3b.")
      .alert_as_it_grows(
          "its clock jumped {pcr_discontinuities} times so far: check the encoder, or for lost "
          "packets");
  table.gauge("pcr_interval_max_ns", c.pcr_interval_max_ns, "ns",
              "The longest between two PCRs: TR 101 290, 2.3a.");
  table.gauge("pcr_accuracy_max_ns", c.pcr_accuracy_max_ns, "ns",
              "The largest error of a PCR, at a constant rate: TR 101 290, 2.4.");
  table.counter("pace_restarts", c.pace_restarts, "restarts",
                "Restarts of the pace, at a jump of the PCRs or of their arrival.");
  table.gauge("readers", c.readers, "processes", "Processes that read the stream by messages.");
  table
      .counter("questions_dropped", c.questions_dropped, "messages",
               "Refused requests to read: all planned readers were there.")
      .alert_as_it_grows(
          "{questions_dropped} requests to read it were refused so far: raise readers, or end "
          "readers that are not needed");
}

// The state of a leg's reception: packets are accepted, or the reason why none are.
enum class LegArrival : uint8_t {
  kPackets,
  kNothing,
  kNoRtp,
  kNoTransportStream,
  kForeign,
  kTruncated,
  kOtherType,
  kNoSync,
  kUnnumbered,
  kNoInterface,
  kCount
};

// The texts for one LegArrival: the word of the counter `comes`, and the log's answer and cure.
struct LegArrivalText {
  const char* word;
  const char* says;
  const char* cure;
};
inline constexpr LegArrivalText kLegArrivals[] = {
    {"packets", "", ""},
    {"nothing", "nothing has arrived", "check its sender, and whether the network brings it here"},
    {"no RTP", "only data that is neither RTP nor whole TS packets has arrived",
     "make the sender fill datagrams with whole packets of 188 bytes (ffmpeg: pkt_size=1316), or "
     "use RTP"},
    {"no whole TS", "only datagrams without whole TS packets have arrived",
     "make the sender fill them with whole packets of 188 bytes (ffmpeg: pkt_size=1316)"},
    {"foreign", "only packets of a sender other than the stream's have arrived",
     "stop one of the two senders, or give it another address"},
    {"too long", "only datagrams longer than a buffer have arrived",
     "raise buffer_bytes, or send shorter ones"},
    {"other RTP", "only RTP of a payload type other than 33 has arrived",
     "make its sender use type 33, a transport stream"},
    {"no sync", "only datagrams without sync bytes have arrived",
     "check what sends to its address: it does not send a transport stream"},
    {"no numbers",
     "only datagrams without RTP have arrived, and two legs need its sequence numbers",
     "make its sender use RTP"},
    {"no interface", "there has been no interface to receive packets",
     "restore the interface, or the route to the group: the group is joined again automatically"}};
static_assert(std::size(kLegArrivals) == static_cast<size_t>(LegArrival::kCount));

struct alignas(kCacheLineBytes) LegCounters {
  Counter packets;
  Counter bytes;
  Counter lost;
  Counter reordered;
  Counter jitter_ns;
  Counter senders;
  Counter is_silent;
  Counter silences;
  Counter comes;  // LegArrival
  Counter foreign;
  Counter outside;
  Counter truncated;
  Counter rtp_malformed;
  Counter ts_malformed;
  Counter other_type;
  Counter no_sync;
  Counter unnumbered;
  Counter empty;
};

inline void describe(CounterTable& table, LegCounters& c) {
  table.counter("packets", c.packets, "packets", "Valid datagrams received.");
  table.counter("bytes", c.bytes, "bytes", "Bytes in these.");
  table.gauge("lost", c.lost, "packets", "Packets missing on this leg, by RTP sequence numbers.")
      .no_alert(
          "it falls again as late packets arrive: the stream's lost counts packets that no leg "
          "brought");
  table.counter("reordered", c.reordered, "packets", "Packets received after a later one.")
      .no_alert("they are put in order: the stream's late counts those that came too late");
  table.gauge("jitter_ns", c.jitter_ns, "ns", "Interarrival jitter, RFC 3550.");
  table.counter("senders", c.senders, "senders", "Senders of this leg, one after the other.");
  table
      .boolean("is_silent", c.is_silent,
               "No packet that it can forward has arrived for sender_timeout_ms.")
      .no_alert("the alert of comes says so, with the cause");
  table.counter("silences", c.silences, "silences", "Times that the leg fell silent.");
  std::string words;
  for (const LegArrivalText& each : kLegArrivals) {
    words += (words.empty() ? "" : "|") + std::string(each.word);
  }
  table
      .state("comes", c.comes, words.c_str(),
             "The kind of received packets, or the reason why none is accepted.")
      .alert_unless(
          static_cast<uint64_t>(LegArrival::kPackets),
          "it receives nothing that it can forward; received: {comes}. Check its sender, the "
          "network, and its counters of drops");
  table
      .counter("foreign", c.foreign, "packets",
               "Packets dropped: from another sender than the leg's, or empty before it has one.")
      .alert_as_it_grows(
          "a second sender sends to it, and {foreign} packets were dropped so far: stop one of "
          "the two, or give it another address");
  table
      .counter("outside", c.outside, "packets",
               "Packets dropped: the sequence number is far from the others.")
      .alert_as_it_grows(
          "{outside} packets with unexpected RTP numbers were dropped so far: check whether two "
          "senders use one SSRC");
  table.counter("truncated", c.truncated, "packets", "Packets dropped: too long for a buffer.")
      .alert_as_it_grows(
          "{truncated} datagrams were too long and dropped so far: raise buffer_bytes, or have "
          "shorter ones sent");
  table
      .counter("rtp_malformed", c.rtp_malformed, "packets",
               "Packets dropped: neither RTP nor a transport stream, or RTP with invalid lengths.")
      .alert_as_it_grows(
          "{rtp_malformed} datagrams were neither RTP nor whole TS packets, and dropped so far: "
          "have whole 188-byte packets sent (ffmpeg: pkt_size=1316), or RTP");
  table
      .counter("ts_malformed", c.ts_malformed, "packets",
               "Packets dropped: not a whole number of TS packets of 188 bytes.")
      .alert_as_it_grows(
          "{ts_malformed} datagrams did not consist of whole TS packets, and were dropped so "
          "far: have whole 188-byte packets sent (ffmpeg: pkt_size=1316)");
  table
      .counter("other_type", c.other_type, "packets",
               "Packets dropped: RTP of another payload type.")
      .alert_as_it_grows(
          "{other_type} RTP packets were no transport stream by their payload type so far: have "
          "its sender use type 33");
  table
      .counter("no_sync", c.no_sync, "packets",
               "Packets dropped: the length of whole TS packets, but no sync bytes.")
      .alert_as_it_grows(
          "{no_sync} packets had the length of a transport stream, but no sync bytes, so far: "
          "check what sends to its address");
  table
      .counter(
          "unnumbered", c.unnumbered, "packets",
          "Packets dropped: without RTP, on the second leg; they would duplicate the first leg's.")
      .alert_as_it_grows(
          "{unnumbered} packets came without RTP, whose numbers two legs need, so far: have its "
          "sender send RTP");
  table.counter("empty", c.empty, "packets", "RTP packets without payload, forwarded unchanged.");
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
  table.counter("packets", c.packets, "packets", "Packets handed to the network, including FEC.")
      .at_a_glance("packets");
  table.counter("bytes", c.bytes, "bytes", "Bytes in these.").at_a_glance("bytes");
  table
      .counter("dropped", c.dropped, "packets",
               "Packets dropped, oldest first, because the output was too slow.")
      .at_a_glance("dropped")
      .refusals_of("stream.queue_packets")
      .alert_as_it_grows(
          "the network is too slow for it, and {dropped} packets were dropped so far: check the "
          "interface, and what else sends through it");
  table.counter("refused", c.refused, "packets", "Packets that the kernel refused to send.")
      .alert_as_it_grows(
          "the kernel refused to send {refused} packets so far: check the route, the MTU and "
          "the firewall");
  table.counter("unreachable", c.unreachable, "errors", "Packets reported as undeliverable (ICMP).")
      .alert_as_it_grows(
          "the network reported {unreachable} times so far that it is unreachable: check that "
          "its receiver runs, and listens at that port");
  table.boolean("is_aside", c.is_aside,
                "It has a separate socket, because nobody answered for its address.");
  table.boolean("is_muted", c.is_muted, "Nothing is sent to it, because of tsrelay.mute.");
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
  table.counter("packets", c.packets, "packets", "Packets written.").at_a_glance("packets");
  table.counter("bytes", c.bytes, "bytes", "Bytes written.").at_a_glance("bytes");
  table
      .counter("dropped", c.dropped, "packets",
               "Packets dropped because the disk was too slow, or no file was available.")
      .at_a_glance("dropped")
      .refusals_of("stream.queue_packets")
      .alert_as_it_grows(
          "{dropped} packets are missing in it: the disk was too slow, or no file was available: "
          "check the drive, what else writes to it, and the log");
  table.counter("errors", c.errors, "packets", "Writes that failed.")
      .alert_as_it_grows(
          "{errors} writes failed so far: check whether the disk is full, and what the kernel's "
          "log says about it");
  table
      .counter("foreign", c.foreign, "packets",
               "Datagrams with a TS packet without its sync byte, which are not recorded.")
      .alert_as_it_grows(
          "{foreign} datagrams had a TS packet without its sync byte, and are not in it: check "
          "what the sender sends");
  table.counter("files", c.files, "files", "Files begun, or continued after a start.");
  table.gauge("file", c.file, "number", "The number in the name of the current file.");
  table.boolean("is_next_ready", c.is_next_ready, "The next file, if there is one, is empty.");
  table
      .boolean(
          "is_stuck", c.is_stuck,
          "No next file is available: packets that do not fit into the current one are dropped.")
      .alert_from(1, "its next file cannot be emptied, and packets will be missing in it: the "
                     "log says which file, and why");
}

struct alignas(kCacheLineBytes) ReaderCounters {
  Counter packets;
  Counter dropped;
  Counter lent;
  Counter gone;
};

inline void describe(CounterTable& table, ReaderCounters& c) {
  table.counter("packets", c.packets, "packets", "Packets lent to processes.");
  table
      .counter("dropped", c.dropped, "packets",
               "Packets dropped, oldest first, because a reader held too many or read too slowly.")
      .refusals_of("stream.queue_packets")
      .alert_as_it_grows(
          "a reader is too slow, and {dropped} packets were dropped so far: it must return "
          "loans sooner");
  table.gauge("lent", c.lent, "packets", "Packets that readers hold now.");
  table
      .counter("gone", c.gone, "processes", "Readers that left, died, or may not read the buffers.")
      .no_alert("readers come and go; the alert of its [[process]] names one that died");
}

}  // namespace bedplate::relay
