// The relay's counters by stream, leg, and output. The stream's shard writes them; `bedplate stats`
// reads them.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>

#include "platform/counter_table.h"

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
  table.counter("packets", c.packets, "packets", "Datagrams that went on to the outputs.")
      .at_a_glance("packets");
  table.counter("bytes", c.bytes, "bytes", "Bytes of transport stream in them.")
      .at_a_glance("bytes");
  table.counter("lost", c.lost, "packets", "Missing on all legs, and not brought back in time.")
      .at_a_glance("lost")
      .sign_as_it_grows(
          "packets are lost on the way here, {lost} by now: look at the sender and the "
          "network; a second leg or FEC would bring them back");
  table.counter("duplicates", c.duplicates, "packets", "Came once more, as by the other leg.");
  table.counter("late", c.late, "packets", "Came after they had been given up.")
      .sign_as_it_grows("packets come too late, {late} by now: raise window_ms, or look at what "
                        "holds them up on the way");
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
  table
      .counter("fec_unrecoverable", c.fec_unrecoverable, "sets",
               "Sets of FEC packets of which more than one packet stayed missing.")
      .sign_as_it_grows("more is lost than FEC brings back, {fec_unrecoverable} sets by now: have "
                        "FEC of columns and rows sent, or a second leg");
  table.counter("fec_malformed", c.fec_malformed, "packets", "FEC packets that make no sense.")
      .sign_as_it_grows("what comes at a leg's ports of FEC is none, {fec_malformed} dropped by "
                        "now: look who sends to its port + 2 and + 4, and by which FEC");
  table
      .counter("fec_unprotected", c.fec_unprotected, "sets",
               "Rows and columns that were sent without FEC, for a gap or want of buffers.")
      .sign_as_it_grows("FEC lacks for {fec_unprotected} rows and columns by now: packets are "
                        "missing as they come, or outputs keep its buffers");
  table.counter("fec_sent", c.fec_sent, "packets", "FEC packets that were made.");
  table.counter("ts_packets", c.ts_packets, "packets", "Packets of transport stream.");
  table.counter("ts_null_packets", c.ts_null_packets, "packets", "Packets of stuffing.");
  table.gauge("ts_programs", c.ts_programs, "programs", "As PATs have them.");
  table.gauge("ts_bit_rate", c.ts_bit_rate, "bits/s", "By the last two PCRs.");
  table.counter("ts_sync_losses", c.ts_sync_losses, "losses", "TR 101 290, 1.1.")
      .sign_as_it_grows("what comes is no transport stream for a while, {ts_sync_losses} times by "
                        "now: look at the encoder or multiplexer");
  table.counter("ts_sync_byte_errors", c.ts_sync_byte_errors, "errors", "TR 101 290, 1.2.")
      .sign_as_it_grows("packets lack their sync byte, {ts_sync_byte_errors} by now: look at the "
                        "encoder or multiplexer");
  table.counter("ts_pat_errors", c.ts_pat_errors, "errors", "TR 101 290, 1.3.")
      .sign_as_it_grows("its PAT lacks or is wrong, {ts_pat_errors} times by now: look at the "
                        "multiplexer");
  table.counter("ts_continuity_errors", c.ts_continuity_errors, "errors", "TR 101 290, 1.4.")
      .sign_as_it_grows("packets within it are missing, {ts_continuity_errors} times by now: where "
                        "no leg loses any, look before the sender");
  table.counter("ts_pmt_errors", c.ts_pmt_errors, "errors", "TR 101 290, 1.5.")
      .sign_as_it_grows("a PMT lacks or is wrong, {ts_pmt_errors} times by now: look at the "
                        "multiplexer");
  table.counter("ts_pid_errors", c.ts_pid_errors, "errors", "TR 101 290, 1.6.")
      .sign_as_it_grows("a part that its PMT names does not come, {ts_pid_errors} times by now: "
                        "look at the encoder of it");
  table.counter("ts_transport_errors", c.ts_transport_errors, "errors", "TR 101 290, 2.1.")
      .sign_as_it_grows("packets are marked as damaged, {ts_transport_errors} by now: look at the "
                        "receiver or link that they come from");
  table.counter("ts_crc_errors", c.ts_crc_errors, "errors", "TR 101 290, 2.2, of PAT and PMT.")
      .sign_as_it_grows("tables come damaged, {ts_crc_errors} by now: look at the multiplexer, and "
                        "at the link before the sender");
  table.counter("pcrs", c.pcrs, "PCRs", "Program clock references.");
  table
      .counter("pcr_discontinuities", c.pcr_discontinuities, "errors",
               "PCRs over 100 ms apart that were not announced: TR 101 290, 2.3b.")
      .sign_as_it_grows("its clock jumps, {pcr_discontinuities} times by now: look at the encoder, "
                        "or at what is lost on the way");
  table.gauge("pcr_interval_max_ns", c.pcr_interval_max_ns, "ns",
              "The longest between two PCRs: TR 101 290, 2.3a.");
  table.gauge("pcr_accuracy_max_ns", c.pcr_accuracy_max_ns, "ns",
              "The most that a PCR was off, at a constant rate: TR 101 290, 2.4.");
  table.counter("pace_restarts", c.pace_restarts, "restarts",
                "The pace began anew: at a jump of the PCRs, or of their arrival.");
  table.gauge("readers", c.readers, "processes", "That get the stream by messages.");
  table
      .counter("questions_dropped", c.questions_dropped, "messages",
               "Messages of would-be readers that made no sense, or came when all places were "
               "taken.")
      .sign_as_it_grows("processes that would read it are sent away, {questions_dropped} by now: "
                        "raise readers, or end those that are not needed");
}

// The state of a leg's reception: packets arrive, or the reason why none do.
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
    {"nothing", "nothing has come", "its sender is silent, or the network does not bring it here"},
    {"no RTP", "only what is neither RTP nor whole packets of transport stream has come",
     "have the sender fill datagrams with whole packets of 188 bytes (ffmpeg: pkt_size=1316), or "
     "use RTP"},
    {"no whole TS", "only datagrams of no whole packets of transport stream have come",
     "have the sender fill them with whole packets of 188 bytes (ffmpeg: pkt_size=1316)"},
    {"foreign", "only another sender's packets than the stream's have come",
     "stop one of the two senders, or give it another address"},
    {"too long", "only datagrams that are longer than a buffer have come",
     "raise buffer_bytes, or have shorter ones sent"},
    {"other RTP", "only RTP of another payload type than 33 has come",
     "have its sender send type 33, a transport stream"},
    {"no sync", "only datagrams without sync bytes have come",
     "look at what sends to its address: it sends no transport stream"},
    {"no numbers", "only datagrams without RTP have come, whose numbers put two legs together",
     "have its sender send RTP"},
    {"no interface", "there was no interface by which something comes",
     "bring back the interface, or the route to the group: it is joined again by itself"}};
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
  table.counter("packets", c.packets, "packets", "Datagrams that came and made sense.");
  table.counter("bytes", c.bytes, "bytes", "In them.");
  table.gauge("lost", c.lost, "packets", "Missing on this leg, by its RTP numbers.")
      .no_sign("it falls again as late ones come: what no leg brings is the stream's lost");
  table.counter("reordered", c.reordered, "packets", "Came behind a later one.")
      .no_sign("they are put in order: those that come too late are the stream's late");
  table.gauge("jitter_ns", c.jitter_ns, "ns", "Interarrival jitter, RFC 3550.");
  table.counter("senders", c.senders, "senders", "That had this leg, one after the other.");
  table.boolean("is_silent", c.is_silent, "No packet of a sender has come for sender_timeout_ms.")
      .no_sign("comes says so, with the cause");
  table.counter("silences", c.silences, "silences", "How often that began.");
  std::string words;
  for (const LegArrivalText& each : kLegArrivals) {
    words += (words.empty() ? "" : "|") + std::string(each.word);
  }
  table
      .state("comes", c.comes, words.c_str(),
             "The kind of packets that come, or the reason why none is taken.")
      .sign_unless(static_cast<uint64_t>(LegArrival::kPackets),
                   "it has nothing to hand on; what comes: {comes}. Look at its sender, at the "
                   "network, and at what it drops");
  table.counter("foreign", c.foreign, "packets", "Dropped: of a second sender at the same time.")
      .sign_as_it_grows(
          "a second sender sends to it, {foreign} packets dropped by now: stop one of "
          "the two, or give it another address");
  table.counter("outside", c.outside, "packets", "Dropped: numbers that make no sense.")
      .sign_as_it_grows("RTP numbers make no sense, {outside} packets dropped by now: look whether "
                        "two senders use one SSRC");
  table.counter("truncated", c.truncated, "packets", "Dropped: too long for a buffer.")
      .sign_as_it_grows(
          "datagrams are too long, {truncated} dropped by now: raise buffer_bytes, or "
          "have shorter ones sent");
  table
      .counter("rtp_malformed", c.rtp_malformed, "packets",
               "Dropped: neither RTP nor a transport stream, or RTP whose lengths make no sense.")
      .sign_as_it_grows("neither RTP nor whole TS packets, {rtp_malformed} dropped by now: have "
                        "188-byte packets sent whole (ffmpeg: pkt_size=1316), or RTP");
  table
      .counter("ts_malformed", c.ts_malformed, "packets",
               "Dropped: no whole number of TS packets of 188 bytes.")
      .sign_as_it_grows("no whole packets of transport stream, {ts_malformed} dropped by now: have "
                        "188-byte packets sent whole (ffmpeg: pkt_size=1316)");
  table.counter("other_type", c.other_type, "packets", "Dropped: RTP of another payload type.")
      .sign_as_it_grows(
          "RTP comes to it that is no transport stream by its type, {other_type} packets by now: "
          "have its sender send type 33");
  table
      .counter("no_sync", c.no_sync, "packets",
               "Dropped: as long as whole TS packets, without their sync bytes.")
      .sign_as_it_grows(
          "what comes to it is no transport stream but by its length, {no_sync} packets by now: "
          "look at what sends to its address");
  table
      .counter("unnumbered", c.unnumbered, "packets",
               "Dropped: without RTP, on the second leg, which would double the first.")
      .sign_as_it_grows(
          "what comes to it has no RTP, whose numbers put two legs together, {unnumbered} packets "
          "by now: have its sender send RTP");
  table.counter("empty", c.empty, "packets", "RTP without payload, which goes on as it is.");
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
  table.counter("packets", c.packets, "packets", "Handed to the network, FEC included.")
      .at_a_glance("packets");
  table.counter("bytes", c.bytes, "bytes", "In them.").at_a_glance("bytes");
  table.counter("dropped", c.dropped, "packets", "Oldest first, since it did not take them.")
      .at_a_glance("dropped")
      .refusals_of("stream.queue_packets")
      .sign_as_it_grows("the network does not take its packets, and {dropped} are dropped by now: "
                        "look at the interface, and at what else sends by it");
  table.counter("refused", c.refused, "packets", "That the system would not send.")
      .sign_as_it_grows("the system refuses to send, {refused} packets by now: look at the route, "
                        "the MTU and the firewall");
  table.counter("unreachable", c.unreachable, "errors", "Told by the network afterwards (ICMP).")
      .sign_as_it_grows("the network says that nobody gets it, {unreachable} times by now: look "
                        "whether its receiver runs, and listens at that port");
  table.boolean("is_aside", c.is_aside,
                "It is sent to by a socket of its own kind: nobody answered for it.");
  table.boolean("is_muted", c.is_muted, "Nothing is sent to it, as tsrelay.mute has said.");
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
  table.counter("packets", c.packets, "packets", "Written.").at_a_glance("packets");
  table.counter("bytes", c.bytes, "bytes", "Written.").at_a_glance("bytes");
  table
      .counter("dropped", c.dropped, "packets",
               "Oldest first, since the disk did not follow, or no file could be had.")
      .at_a_glance("dropped")
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
  table.counter("files", c.files, "files", "Begun, or continued at a start.");
  table.gauge("file", c.file, "number", "The number in the name of the file that is written now.");
  table.boolean("is_next_ready", c.is_next_ready, "The next file is empty, where there is one.");
  table
      .boolean("is_stuck", c.is_stuck,
               "No file can be had behind the present one: packets that do not fit are dropped.")
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
  table.counter("gone", c.gone, "processes", "That have left, died, or may not read the buffers.")
      .no_sign("readers come and go; [[process]] tells of one that has died");
}

}  // namespace bedplate::relay
