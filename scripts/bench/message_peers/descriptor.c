/* A pipe and a Unix socket: VARIANT pipe or unix_socket. latency, read_large. Neither side sleeps:
 * the descriptors are non-blocking, since polling is cheaper here than a wake-up. */
#define _GNU_SOURCE
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

static int input, output;
static uint64_t *buffer;

static void send_message(struct run *run, uint64_t number) {
  write_words(buffer, run->words, number);
  for (size_t done = 0; done < run->bytes;) {
    const ssize_t n = write(output, (char *)buffer + done, run->bytes - done);
    if (n < 0 && errno != EAGAIN) fail("sending", strerror(errno));
    if (n > 0) done += (size_t)n;
  }
}

static void receive_message(struct run *run, uint64_t number) {
  (void)number;
  for (size_t done = 0; done < run->bytes;) {
    const ssize_t n = read(input, (char *)buffer + done, run->bytes - done);
    if (n == 0) fail("receiving", "the other end is closed");
    if (n < 0 && errno != EAGAIN) fail("receiving", strerror(errno));
    if (n > 0) done += (size_t)n;
  }
  read_words(run, buffer);
}

int main(int argc, char **argv) {
  struct run run = parse_arguments(argc, argv);
  int there[2], back[2];
  if (strcmp(run.variant, "pipe") == 0) {
    if (pipe2(there, O_NONBLOCK) != 0 || pipe2(back, O_NONBLOCK) != 0) {
      fail("making pipes", strerror(errno));
    }
  } else if (strcmp(run.variant, "unix_socket") == 0) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, there) != 0) {
      fail("making sockets", strerror(errno));
    }
    back[0] = there[1], back[1] = there[0]; /* each end both reads and writes */
    there[0] = back[1], there[1] = back[0];
  } else {
    unknown_kind(&run);
  }
  run = start_pair(argc, argv);
  input = run.side == 0 ? back[0] : there[0];
  output = run.side == 0 ? there[1] : back[1];
  buffer = private_memory(run.bytes);
  if (!is_kind(&run, "latency") && !is_kind(&run, "read_large")) unknown_kind(&run);
  meet(&run);
  ping_pong(&run, send_message, receive_message);
  return finish(&run);
}
