// The lean client of nbd_bench.py: one thread, one connection, io_uring. One system call sends the
// next batch of requests and receives the available replies.
//
//     nbd_client unix:PATH|tcp:PORT read|write BYTES DEPTH SECONDS
//
// It keeps DEPTH requests in flight, each of BYTES at a random offset of its own, in two batches:
// while it takes the replies to one, the server has the other to work on. So the wake-up time of a
// server that sleeps when idle is not measured. Each batch is one send. Replies are counted by
// their length alone, which is the same for all. The written data stay in the client's cache.
// Prints: requests per second, and the share of time in which it found no reply to read: above 0 it
// waits for the server, so the client is not the bottleneck. It checks only the first reply, and
// reads back the last block that it wrote. The protocol: doc/proto.md of the NBD project.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { kDepthMax = 256, kBlockMaxBytes = 1 << 20, kRingEntries = 4 };
enum { kOptGo = 7, kRepAck = 1, kRepInfo = 3, kRead = 0, kWrite = 1 };
#define PACKED __attribute__((packed))

struct PACKED go {  // the client's flags, then the option for the default export
  uint32_t flags;
  uint64_t magic;
  uint32_t option, bytes, name_bytes;
  uint16_t information_count;
};
struct PACKED option_reply {
  uint64_t magic;
  uint32_t option, type, bytes;
};
struct PACKED request {
  uint32_t magic;
  uint16_t flags, type;
  uint64_t cookie, offset;
  uint32_t bytes;
};
struct PACKED reply {
  uint32_t magic, error;
  uint64_t cookie;
};

static struct request requests[kDepthMax];
static struct iovec send_pieces[2 * kDepthMax];  // of a write: its request and the block
static struct msghdr message = {.msg_iov = send_pieces};
static char block[kBlockMaxBytes];
static struct io_uring ring;
static char replies[1 << 18];

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void fail(const char* doing) {
  fprintf(stderr, "nbd_client: %s: %s\n", doing, errno ? strerror(errno) : "unexpected content");
  exit(1);
}

static void hear(int fd, void* to, size_t bytes) {
  errno = 0;
  if (recv(fd, to, bytes, MSG_WAITALL) != (ssize_t)bytes) fail("receiving");
}

static int open_connection(const char* where) {
  struct sockaddr_un path = {.sun_family = AF_UNIX};
  struct sockaddr_in port = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int tcp = strncmp(where, "tcp:", 4) == 0, on = 1;
  if (tcp) port.sin_port = htons((uint16_t)atoi(where + 4));
  else strncpy(path.sun_path, where + 5, sizeof path.sun_path - 1);
  const int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
  if (connect(fd, tcp ? (void*)&port : (void*)&path, tcp ? sizeof port : sizeof path) != 0) {
    fail("connecting");
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // a Unix socket needs none
  return fd;
}

// Returns the export's size in bytes.
static uint64_t negotiate(int fd) {
  const struct go go = {htobe32(3), htobe64(0x49484156454F5054), htobe32(kOptGo), htobe32(6), 0, 0};
  char greeting[18], data[4096];
  hear(fd, greeting, sizeof greeting);
  if (send(fd, &go, sizeof go, MSG_NOSIGNAL) != sizeof go) fail("sending");
  for (uint64_t volume_bytes = 0;;) {
    struct option_reply reply;
    hear(fd, &reply, sizeof reply);
    const uint32_t type = be32toh(reply.type), bytes = be32toh(reply.bytes);
    if (bytes > sizeof data) fail("negotiating");
    if (bytes > 0) hear(fd, data, bytes);
    if (type == kRepAck && volume_bytes > 0) return volume_bytes;
    if (type != kRepInfo) fail("negotiating");
    if (data[0] == 0 && data[1] == 0) {  // information type EXPORT
      memcpy(&volume_bytes, data + 2, sizeof volume_bytes);
      volume_bytes = be64toh(volume_bytes);
    }
  }
}

static void set_up_ring(void) {
  struct io_uring_params parameters = {.flags =
                                           IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
  const int status = io_uring_queue_init_params(kRingEntries, &ring, &parameters);
  if (status != 0) errno = -status, fail("making an io_uring");
}

static void set_up_requests(int type, uint32_t bytes, int batch) {
  for (size_t i = 0; i < sizeof block; ++i) block[i] = (char)(1 + i * 7 % 251);
  for (int i = 0; i < batch; ++i) {
    requests[i] = (struct request){.magic = htobe32(0x25609513),
                                   .type = htobe16((uint16_t)type),
                                   .cookie = (uint64_t)i,
                                   .bytes = htobe32(bytes)};
    send_pieces[message.msg_iovlen++] = (struct iovec){&requests[i], sizeof requests[i]};
    if (type == kWrite) send_pieces[message.msg_iovlen++] = (struct iovec){block, bytes};
  }
}

static void send_batch(int fd, int batch, uint64_t volume_bytes, uint32_t bytes) {
  static uint64_t random = 1;
  const uint64_t block_count = volume_bytes / bytes;
  for (int i = 0; i < batch; ++i) {
    random = random * 6364136223846793005 + 1442695040888963407;
    requests[i].offset = htobe64(((random >> 32) * block_count >> 32) * bytes);
  }
  struct io_uring_sqe* entry = io_uring_get_sqe(&ring);
  io_uring_prep_sendmsg(entry, fd, &message, MSG_WAITALL | MSG_NOSIGNAL);
  io_uring_sqe_set_data(entry, &message);
}

// Tries once: if a receive waited, each of the server's sends would call back into this ring.
static void try_receive(int fd) {
  struct io_uring_sqe* entry = io_uring_get_sqe(&ring);
  io_uring_prep_recv(entry, fd, replies, sizeof replies, MSG_DONTWAIT);
  io_uring_sqe_set_data(entry, replies);
}

static void check_first_reply(void) {
  struct reply reply;
  memcpy(&reply, replies, sizeof reply);
  errno = 0;
  if (be32toh(reply.magic) != 0x67446698 || reply.error != 0) fail("the first reply");
}

// Reads the last write back, over a new connection.
static void check_last_block(const char* where, uint32_t bytes, int batch) {
  static char back[kBlockMaxBytes];
  const int fd = open_connection(where);
  negotiate(fd);
  struct request request = requests[batch - 1];
  struct reply reply;
  request.type = htobe16(kRead);
  if (send(fd, &request, sizeof request, MSG_NOSIGNAL) != sizeof request) fail("sending");
  hear(fd, &reply, sizeof reply);
  hear(fd, back, bytes);
  if (memcmp(block, back, bytes) != 0) fail("reading the last block back");
  close(fd);
}

int main(int count, char** words) {
  if (count != 6) return fprintf(stderr, "usage: see the source\n"), 2;
  const int type = strcmp(words[2], "write") == 0 ? kWrite : kRead, depth = atoi(words[4]);
  const uint32_t bytes = (uint32_t)atoi(words[3]);
  if (depth < 1 || depth > kDepthMax || bytes < 1 || bytes > kBlockMaxBytes) {
    return fprintf(stderr, "usage: see the source\n"), 2;
  }
  const int fd = open_connection(words[1]);
  const uint64_t volume_bytes = negotiate(fd);
  const int batch_count = depth > 1 ? 2 : 1, batch = depth / batch_count;
  const size_t reply_bytes = sizeof(struct reply) + (type == kRead ? bytes : 0);
  set_up_ring();
  set_up_requests(type, bytes, batch);
  const double begin = now(), end = begin + atof(words[5]);
  double time = begin, idle = 0, idle_since = 0;
  unsigned long sent = 0, done = 0;  // requests
  size_t received = 0;               // bytes of replies
  int is_sending = 0;
  while (time < end || done < sent) {
    if (!is_sending && time < end && sent + (unsigned)batch <= done + (unsigned)depth) {
      send_batch(fd, batch, volume_bytes, bytes);
      sent += (unsigned)batch;
      is_sending = 1;
    }
    try_receive(fd);
    if (io_uring_submit_and_get_events(&ring) < 0) fail("exchanging requests and replies");
    const size_t received_before = received;
    struct io_uring_cqe* event;
    unsigned head_index, event_count = 0;
    io_uring_for_each_cqe(&ring, head_index, event) {
      ++event_count;
      if (event->res == -EAGAIN) continue;
      if (event->res <= 0) errno = -event->res, fail("exchanging requests and replies");
      if (io_uring_cqe_get_data(event) == replies) received += (size_t)event->res;
      else is_sending = 0;
    }
    io_uring_cq_advance(&ring, event_count);
    if (received_before == 0 && received > 0) check_first_reply();
    const int is_idle = received == received_before;
    if (is_idle && idle_since == 0) idle_since = now();
    if (!is_idle && idle_since > 0) idle += now() - idle_since, idle_since = 0;
    done = received / reply_bytes;
    if (!is_idle) time = now();
  }
  if (type == kWrite) check_last_block(words[1], bytes, batch);
  printf("%.0f %.3f\n", (double)done / (time - begin), idle / (time - begin));
  return 0;
}
