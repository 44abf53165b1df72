// The minimum work of a relay in relay_bench.py: one thread receives datagrams in batches from one
// socket and sends them through another, without inspecting them.
//
//     bare_relay OWN_ADDRESS OWN_PORT TO_ADDRESS TO_PORT [OUTPUTS]
//
// With OUTPUTS each datagram goes to that many ports, from TO_PORT upwards.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { kBatch = 64, kBufferBytes = 2048, kOutputsMax = 512, kQueueBytes = 8 << 20 };

static char buffers[kBatch][kBufferBytes];
static struct mmsghdr received[kBatch], outgoing[kBatch];
static struct iovec pieces[kBatch], out_pieces[kBatch];
static struct sockaddr_in outputs[kOutputsMax];

static void fail(const char* doing) {
  fprintf(stderr, "bare_relay: %s: %s\n", doing, strerror(errno));
  exit(1);
}

static struct sockaddr_in address(const char* host, int port) {
  struct sockaddr_in made = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  if (inet_pton(AF_INET, host, &made.sin_addr) != 1) {
    errno = EINVAL;
    fail(host);
  }
  return made;
}

static unsigned send_all(int fd, unsigned count) {
  for (unsigned sent = 0; sent < count;) {
    const int n = sendmmsg(fd, outgoing + sent, count - sent, 0);
    if (n > 0) sent += (unsigned)n;
    else if (errno != ECONNREFUSED && errno != EINTR && errno != ENOBUFS) fail("sending");
  }
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: bare_relay OWN PORT TO PORT [OUTPUTS]\n");
    return 2;
  }
  const struct sockaddr_in own = address(argv[1], atoi(argv[2]));
  const int output_count = argc > 5 ? atoi(argv[5]) : 1, queue_bytes = kQueueBytes;
  if (output_count < 1 || output_count > kOutputsMax) {
    errno = EINVAL;
    fail("counting the outputs");
  }
  const int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
  if (in < 0 || out < 0) fail("making a socket");
  setsockopt(in, SOL_SOCKET, SO_RCVBUFFORCE, &queue_bytes, sizeof queue_bytes);
  setsockopt(out, SOL_SOCKET, SO_SNDBUFFORCE, &queue_bytes, sizeof queue_bytes);
  if (bind(in, (const struct sockaddr*)&own, sizeof own) != 0) fail("binding");
  for (int i = 0; i < output_count; ++i) outputs[i] = address(argv[3], atoi(argv[4]) + i);
  for (int i = 0; i < kBatch; ++i) {
    pieces[i] = (struct iovec){buffers[i], kBufferBytes};
    received[i].msg_hdr.msg_iov = &pieces[i];
    received[i].msg_hdr.msg_iovlen = 1;
    outgoing[i].msg_hdr.msg_iov = &out_pieces[i];
    outgoing[i].msg_hdr.msg_iovlen = 1;
    outgoing[i].msg_hdr.msg_namelen = sizeof *outputs;
  }
  for (;;) {
    const int got = recvmmsg(in, received, kBatch, MSG_WAITFORONE, NULL);
    if (got < 0) {
      if (errno == EINTR) continue;
      fail("receiving");
    }
    unsigned waiting = 0;
    for (int i = 0; i < got; ++i) {
      for (int k = 0; k < output_count; ++k) {
        outgoing[waiting].msg_hdr.msg_name = &outputs[k];
        out_pieces[waiting] = (struct iovec){buffers[i], received[i].msg_len};
        if (++waiting == kBatch) waiting = send_all(out, waiting);
      }
    }
    send_all(out, waiting);
  }
}
