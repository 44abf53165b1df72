// The lean client of relay_bench.py: one thread that sends transport stream packets to a relay and
// receives the relay's output.
//
//     datagram_probe TO_ADDRESS TO_PORT OWN_ADDRESS OWN_PORT RATE SECONDS
//
// It sends RATE datagrams per second of 7 packets of 188 bytes. Each leaves at its due time or in
// the burst of all due datagrams, with one system call for up to 44 of them, cut by the kernel
// (UDP_SEGMENT). OWN_PORT 0: it receives nothing. A datagram carries its number and its send time.
// Prints: the numbers sent, received, and out of order or duplicated; the 50th, 99th and 99.9th
// percentile of the time from sending until the kernel has received it back (SO_TIMESTAMPNS), in
// microseconds; the share of time in which it was idle: above 0 it is faster than the relay; and
// the number sent per second if it could not reach RATE. These times exclude its own pauses before
// it sends and before it reads.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  kPacketBytes = 188,
  kPackets = 7,
  kDatagramBytes = kPacketBytes * kPackets,
  kSegmentsMax = 44,  // in one send: 64 KiB less headers
  kReceivedMax = 64,
  kBufferBytes = 2048,
  kPid = 0x100,
  kStampAt = 8,  // offset in a packet's payload
  kTimesMax = 1 << 22,
  kQueueBytes = 8 << 20,
  kLingerNs = 200000000  // for datagrams still in flight
};

struct stamp {
  uint64_t number;
  uint64_t sent_ns;
};

static uint8_t outgoing[kSegmentsMax * kDatagramBytes];
static uint8_t incoming[kReceivedMax][kBufferBytes];
static uint32_t times_ns[kTimesMax];

static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void fail(const char* doing) {
  fprintf(stderr, "datagram_probe: %s: %s\n", doing, strerror(errno));
  exit(1);
}

static struct sockaddr_in address(const char* host, const char* port) {
  struct sockaddr_in made = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  if (inet_pton(AF_INET, host, &made.sin_addr) != 1) {
    errno = EINVAL;
    fail(host);
  }
  return made;
}

// In the clock of the kernel's timestamps.
static uint64_t stamp_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t arrival_ns(struct msghdr* message) {
  struct cmsghdr* one = CMSG_FIRSTHDR(message);
  struct timespec time = {0, 0};
  if (one != NULL && one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_TIMESTAMPNS) {
    memcpy(&time, CMSG_DATA(one), sizeof time);
  }
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void prepare(uint8_t* datagram, uint64_t number, uint64_t sent_ns) {
  const struct stamp stamp = {number, sent_ns};
  for (uint64_t i = 0; i < kPackets; ++i) {
    uint8_t* packet = datagram + i * kPacketBytes;
    packet[0] = 0x47;
    packet[1] = kPid >> 8;
    packet[2] = kPid & 0xff;
    packet[3] = (uint8_t)(0x10 | ((number * kPackets + i) & 15));  // the continuity counter
  }
  memcpy(datagram + kStampAt, &stamp, sizeof stamp);
}

static void send_burst(int fd, uint64_t first, uint64_t count) {
  union {
    char bytes[CMSG_SPACE(sizeof(uint16_t))];
    struct cmsghdr header;
  } control = {.bytes = {0}};
  struct iovec piece = {outgoing, count * kDatagramBytes};
  struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
  const uint64_t sent_ns = stamp_ns();
  for (uint64_t i = 0; i < count; ++i) {
    prepare(outgoing + i * kDatagramBytes, first + i, sent_ns);
  }
  if (count > 1) {
    const uint16_t segment_bytes = kDatagramBytes;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    control.header.cmsg_level = SOL_UDP;
    control.header.cmsg_type = UDP_SEGMENT;
    control.header.cmsg_len = CMSG_LEN(sizeof segment_bytes);
    memcpy(CMSG_DATA(&control.header), &segment_bytes, sizeof segment_bytes);
  }
  // The error belongs to an earlier datagram; this one was not sent, and counts as lost.
  if (sendmsg(fd, &message, 0) < 0 && errno != ECONNREFUSED) fail("sending");
}

static int is_before(const void* a, const void* b) {
  const uint32_t x = *(const uint32_t*)a, y = *(const uint32_t*)b;
  return (x > y) - (x < y);
}

static double percentile_us(uint64_t count, double part) {
  return count == 0 ? 0 : times_ns[(uint64_t)((double)(count - 1) * part)] / 1e3;
}

int main(int argc, char** argv) {
  if (argc != 7) {
    fprintf(stderr, "usage: datagram_probe TO PORT OWN PORT RATE SECONDS\n");
    return 2;
  }
  const struct sockaddr_in to = address(argv[1], argv[2]), own = address(argv[3], argv[4]);
  const int receives = own.sin_port != 0, queue_bytes = kQueueBytes, one = 1;
  const double period_ns = 1e9 / atof(argv[5]);
  const uint64_t total = (uint64_t)(atof(argv[5]) * atof(argv[6]));
  const int out = socket(AF_INET, SOCK_DGRAM, 0);
  const int in = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
  if (out < 0 || in < 0) fail("making a socket");
  setsockopt(in, SOL_SOCKET, SO_RCVBUFFORCE, &queue_bytes, sizeof queue_bytes);
  setsockopt(out, SOL_SOCKET, SO_SNDBUFFORCE, &queue_bytes, sizeof queue_bytes);
  if (setsockopt(in, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) != 0) fail("asking for times");
  if (receives && bind(in, (const struct sockaddr*)&own, sizeof own) != 0) fail("binding");
  // The same in each run: a relay takes packets of one sender, and waits before it accepts another.
  const struct sockaddr_in from = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)(ntohs(to.sin_port) + 1))};
  if (bind(out, (const struct sockaddr*)&from, sizeof from) != 0) fail("binding to send");
  if (connect(out, (const struct sockaddr*)&to, sizeof to) != 0) fail("connecting");

  struct mmsghdr messages[kReceivedMax];
  struct iovec pieces[kReceivedMax];
  _Alignas(struct cmsghdr) char controls[kReceivedMax][CMSG_SPACE(sizeof(struct timespec))];
  memset(messages, 0, sizeof messages);
  for (int i = 0; i < kReceivedMax; ++i) {
    pieces[i] = (struct iovec){incoming[i], kBufferBytes};
    messages[i].msg_hdr.msg_iov = &pieces[i];
    messages[i].msg_hdr.msg_iovlen = 1;
    messages[i].msg_hdr.msg_control = controls[i];
  }

  uint64_t sent = 0, received = 0, misplaced = 0, next = 0, rounds = 0, idle_rounds = 0;
  const uint64_t began_ns = now_ns();
  uint64_t seen_ns = began_ns, sent_all_ns = began_ns;
  for (;;) {
    const uint64_t at_ns = now_ns();
    int is_idle = 1;
    if (sent < total) {
      uint64_t due = (uint64_t)((double)(at_ns - began_ns) / period_ns) + 1;
      if (due > total) due = total;
      if (due > sent) {
        const uint64_t count = due - sent < kSegmentsMax ? due - sent : kSegmentsMax;
        send_burst(out, sent, count);
        sent += count;
        is_idle = 0;
        sent_all_ns = now_ns();
      }
      seen_ns = at_ns;
    } else if (!receives || received >= total || at_ns - seen_ns > kLingerNs) {
      break;
    }
    for (int i = 0; i < kReceivedMax; ++i) messages[i].msg_hdr.msg_controllen = sizeof controls[i];
    const int got = receives ? recvmmsg(in, messages, kReceivedMax, 0, NULL) : 0;
    if (got > 0) {
      is_idle = 0;
      seen_ns = now_ns();
      for (int i = 0; i < got; ++i) {
        struct stamp stamp;
        if (messages[i].msg_len != kDatagramBytes) continue;
        memcpy(&stamp, incoming[i] + kStampAt, sizeof stamp);
        misplaced += stamp.number < next;
        next = stamp.number + 1;
        const uint64_t here_ns = arrival_ns(&messages[i].msg_hdr);
        if (received < kTimesMax) times_ns[received] = (uint32_t)(here_ns - stamp.sent_ns);
        ++received;
      }
    }
    if (sent < total) {
      ++rounds;
      idle_rounds += (uint64_t)is_idle;
    }
  }
  const uint64_t timed = received < kTimesMax ? received : kTimesMax;
  qsort(times_ns, timed, sizeof *times_ns, is_before);
  printf("%llu %llu %llu %.1f %.1f %.1f %.2f %.0f\n", (unsigned long long)sent,
         (unsigned long long)received, (unsigned long long)misplaced, percentile_us(timed, 0.5),
         percentile_us(timed, 0.99), percentile_us(timed, 0.999),
         rounds == 0 ? 0 : (double)idle_rounds / (double)rounds,
         (double)sent * 1e9 / (double)(sent_all_ns - began_ns));
  return 0;
}
