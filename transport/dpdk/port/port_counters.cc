#include "transport/dpdk/port/port_counters.h"

#include "platform/counter_table.h"

namespace bedplate {

void describe(CounterTable& table, PortCounters& c) {
  table.state("state", c.state, kPortStateWords,
              "The state of the link, or that the device is gone.");
  table.gauge("speed_mbps", c.speed_mbps, "Mbit/s",
              "The speed of the link, as the device reports it.");
  table.counter("link_downs", c.link_downs, "times",
                "Times that the link went down, or the device away.");
  table.counter("link_ups", c.link_ups, "times", "Times that the link came up.");
  table.flags("offloads", c.offloads, kPortOffloadWords,
              "The offloads of the device; all other work is done in software.");
  table
      .counter(
          "missed_frames", c.missed_frames, "frames",
          "Received frames dropped by the device: its queue was full, as the shard was too slow.")
      .alert_as_it_grows(
          "its shards are too slow, and {missed_frames} frames were lost so far: give each "
          "shard a core of its own, lengthen the queues, or add shards");
  table
      .counter("receive_errors", c.receive_errors, "frames",
               "Damaged frames received, as the device reports.")
      .alert_as_it_grows(
          "{receive_errors} frames were damaged so far: check the cable, the module and the "
          "other end of the link");
  table.counter("send_errors", c.send_errors, "frames", "Frames that the device could not send.")
      .alert_as_it_grows(
          "the device failed to send {send_errors} frames so far: check its link, and its "
          "driver's log");
  table
      .counter("no_buffer_frames", c.no_buffer_frames, "frames",
               "Received frames dropped by the device: all buffers were in use.")
      .refusals_of("buffers")
      .alert_as_it_grows(
          "{no_buffer_frames} frames found no buffer and were lost so far: give the port more "
          "buffers");
  table.gauge("free_buffers", c.free_buffers, "buffers", "Free buffers.");
  table
      .gauge("used_peak_buffers", c.used_peak_buffers, "buffers",
             "The most buffers in use, sampled twice a second.")
      .peak_of("buffers",
               "Frames to receive or send find no buffer. Bursts between two samples are not seen.",
               "buffers");
  table.gauge("buffers", c.buffers, "buffers", "All of its buffers.");
}

void describe(CounterTable& table, PortQueueCounters& c) {
  table.counter("received_frames", c.received_frames, "frames", "Frames that came.")
      .at_a_glance("frames in");
  table.counter("received_bytes", c.received_bytes, "bytes", "Their bytes.")
      .at_a_glance("received");
  table.counter("received_bursts", c.received_bursts, "bursts", "Bursts of received frames.");
  table.counter("sent_frames", c.sent_frames, "frames", "Frames given to the device.")
      .at_a_glance("frames out");
  table.counter("sent_bytes", c.sent_bytes, "bytes", "Their bytes.").at_a_glance("sent");
  table
      .counter("refused_frames", c.refused_frames, "frames",
               "Frames that the queue did not take, at each offer: it was full, a memif had no "
               "peer, or the device is gone.")
      .no_alert("their senders offer them again, or count them as dropped");
  table.counter("no_buffer", c.no_buffer, "times", "Sends without a free buffer.")
      .alert_as_it_grows("{no_buffer} sends found no buffer so far: give the port more buffers");
  table
      .counter("unforwarded_frames", c.unforwarded_frames, "frames",
               "Frames dropped: the queue of the port that forwards them was full.")
      .alert_as_it_grows(
          "the port that forwards its frames is full, and {unforwarded_frames} were dropped so "
          "far: give that port longer queues, or less to send");
  table.counter("wakes", c.wakes, "times",
                "Times that the device's descriptor woke the sleeping shard.");
}

}  // namespace bedplate
