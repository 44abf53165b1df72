/* ping.cc in C: `ping-c SOCKET ann bob` joins the pool of two.toml as ann and greets bob, who is
 * started as `ping-c SOCKET bob ann`, or as ping.cc. */
#include <stdio.h>

#include "bedplate.h"

enum { kHello = 1, kRounds = 3, kWaitMs = 100 };

static int peer = -1;
static int is_over = 0; /* the peer has left, or the pool is gone */
static int heard = 0;

/* Both callbacks run within bp_poll and bp_wait, on this thread. */
static void print(void* context, const bp_message* message) {
  (void)context;
  printf("heard: %.*s\n", (int)message->bytes, (const char*)message->payload);
  ++heard;
}

static void on_peer(void* context, bp_peer_event event, unsigned number) {
  (void)context;
  if (event == BP_POOL_GONE || (event == BP_PEER_LEFT && (int)number == peer)) is_over = 1;
}

static int fail(void) {
  fprintf(stderr, "ping: %s\n", bp_error_text());
  return 1;
}

int main(int count, char** words) {
  if (count != 4) return fputs("usage: ping-c SOCKET NAME PEER\n", stderr), 2;
  bp_on_peer(on_peer, NULL);
  if (bp_join(words[1], words[2], 1, 5000) != 0) return fail();
  bp_member* self = bp_own_member(0);
  bp_set_handler(self, kHello, print, NULL);
  while (!is_over && (peer = bp_find_member(words[3])) < 0) bp_wait(self, kWaitMs);
  bp_endpoint* endpoint = bp_connect(self, (unsigned)peer);
  if (endpoint == NULL) return fail();
  printf("connected to %s\n", words[3]);
  fflush(stdout);
  for (int sent = 0; (sent < kRounds || heard < kRounds) && !is_over;) {
    char text[64];
    const int bytes = snprintf(text, sizeof text, "%s says hello %d", words[2], sent);
    if (sent < kRounds && bp_am_send(endpoint, kHello, text, (size_t)bytes) == BP_DONE) ++sent;
    if (bp_poll(self, 16) == 0) bp_wait(self, kWaitMs);
  }
  bp_leave();
  return heard == kRounds ? 0 : 1;
}
