/* A datagram relay in C: it forwards datagrams to another address, with unchanged boundaries. Once
 * a second it reports their number to a collector, over TCP. docs/services.md explains it.
 *
 *     [relay]
 *     from = "0.0.0.0:5004"
 *     to = "192.0.2.1:5004"
 *     collector = "tcp:192.0.2.2:9000"
 */
#define _GNU_SOURCE /* timerfd */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "bedplate_service.h"

enum { kBuffers = 256, kBufferBytes = 65536, kBatch = 32 };

static struct {
  const char *from_text, *to_text, *collector;
  bp_datagram_socket* socket;
  bp_datagram_address to;
  bp_stream* stream;
  bp_context* context;
  bp_counter *relayed, *lost;
  uint64_t count;
  bp_watch second;
  int is_connected, is_sending;
  char line[64];
} relay = {.from_text = "0.0.0.0:5004", .to_text = "", .collector = ""};

/* Sends all datagrams before it returns, so it keeps no buffer. Live streams do not wait: if the
 * send queue is full, a datagram is lost. */
static void on_received(void* self, bp_received* in, size_t count) {
  bp_outgoing out[kBatch];
  size_t sent = 0;
  (void)self;
  for (size_t begin = 0; begin < count; begin += kBatch) {
    const size_t some = count - begin < kBatch ? count - begin : kBatch;
    for (size_t i = 0; i < some; ++i) {
      const bp_received* one = &in[begin + i];
      out[i] = (bp_outgoing){.bytes = one->bytes,
                             .byte_count = one->byte_count,
                             .segment_bytes = one->segment_bytes,
                             .to = relay.to,
                             .ecn = one->ecn};
    }
    bp_datagram_send(relay.socket, out, some, &sent);
    relay.count += sent;
    bp_counter_add(relay.relayed, sent);
    bp_counter_add(relay.lost, some - sent);
  }
}

static void on_reported(void* self, int64_t result) {
  (void)self;
  relay.is_sending = 0;
  if (result > 0) return;
  relay.is_connected = 0;
  bp_stream_close(relay.stream);
}

static void on_second(void* self, unsigned events) {
  uint64_t ticks;
  (void)self, (void)events;
  if (read(relay.second.fd, &ticks, sizeof ticks) < 0 || !relay.is_connected || relay.is_sending) {
    return;
  }
  snprintf(relay.line, sizeof relay.line, "relayed %llu\n", (unsigned long long)relay.count);
  relay.is_sending = 1;
  bp_stream_send(relay.stream, relay.line, strlen(relay.line), on_reported, NULL);
}

static void on_connected(void* self, int result) {
  (void)self;
  relay.is_connected = result == 0;
}

static void describe(void* self, bp_table* table) {
  (void)self;
  bp_table_text(table, "from", &relay.from_text, 63, "The address that receives datagrams.");
  bp_table_text(table, "to", &relay.to_text, 63, "Where they go.");
  bp_table_text(table, "collector", &relay.collector, 100,
                "The address that gets the number of datagrams.");
}

static int plan(void* self, bp_plan* p) {
  (void)self;
  if (bp_datagram_address_of(relay.to_text, &relay.to) != 0) return -1;
  bp_plan_datagram_socket(p, 0, "relay", kBuffers, kBufferBytes);
  bp_plan_connections(p, 0, 1, NULL);
  bp_plan_watches(p, 0, 2); /* the timer, and connecting */
  bp_plan_counter(p, "relayed", "datagrams", "Forwarded datagrams; coalesced ones count as one.");
  bp_plan_at_a_glance(p, "relayed", "datagrams");
  bp_plan_counter(p, "lost", "datagrams", "Datagrams dropped: the queue was full.");
  return 0;
}

static int create(void* self, bp_context* context) {
  bp_datagram_options options = {
      .receive_queue_bytes = 128 << 10, .joins_received = 1, .received = on_received};
  (void)self;
  relay.context = context;
  relay.relayed = bp_counter_of(context, "relayed");
  relay.lost = bp_counter_of(context, "lost");
  relay.stream = bp_stream_create(context, 0);
  relay.socket = bp_datagram_create(context, "relay");
  if (relay.socket == NULL) return -1;
  if (bp_datagram_address_of(relay.from_text, &options.local) != 0) return -1;
  return bp_datagram_open(relay.socket, &options);
}

static void start(void* self, unsigned shard) {
  const struct itimerspec each_second = {{1, 0}, {1, 0}};
  if (shard != 0) return;
  bp_datagram_start(relay.socket);
  if (relay.collector[0] == '\0') return;
  relay.second.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  relay.second.events = POLLIN;
  relay.second.ready = on_second;
  timerfd_settime(relay.second.fd, 0, &each_second, NULL);
  bp_watch_start(bp_loop_of(relay.context, 0), &relay.second);
  bp_stream_connect(relay.stream, relay.collector, 5000000000u, on_connected, self);
}

/* No work is pending here: the drain is complete as soon as no more datagrams are received. */
static void drain(void* self, unsigned shard) {
  (void)self;
  if (shard != 0) return;
  bp_datagram_close(relay.socket);
  bp_watch_stop(bp_loop_of(relay.context, 0), &relay.second);
  bp_drained(relay.context);
}

int main(int count, char** words) {
  const bp_service service = {.name = "relay",
                              .self = &relay,
                              .describe = describe,
                              .plan = plan,
                              .create = create,
                              .start = start,
                              .drain = drain};
  return bp_main(count, words, &service, 1);
}
