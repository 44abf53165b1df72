/* The third yardstick of the benchmark: the speed of a bare NBD server on this machine.
 *
 *     bare_server BYTES unix:PATH | tcp:PORT [spin]
 *
 * One process serves one connection: it receives the available requests, and answers all with one
 * writev from hugepages. A small write's payload is copied from the receive buffer to its
 * destination, a large one is received straight there. It waits in the call or, with `spin`,
 * retries at once, which saves a lone connection the wake-up time. The processes are forked early,
 * and touch every page before the first greeting, so no measurement includes page faults; a signal
 * to their process group ends them all. It supports only the clients' messages: EXPORT_NAME, GO,
 * READ, WRITE, FLUSH, DISC. The protocol: doc/proto.md of the NBD project.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { kWorkers = 20, kRequestMaxBytes = 32 << 20, kNoZeroes = 2, kEinval = 22 };
enum {
  kBufferBytes = 128 << 10,
  kSmallMaxBytes = 16 << 10,
  kRepliesMax = 64,
  kHeadersAhead = 64,
  kHugepageBytes = 2 << 20
};
enum { kOptExportName = 1, kOptAbort = 2, kOptGo = 7, kRepAck = 1, kRepInfo = 3 };
enum { kRead = 0, kWrite = 1, kDisc = 2, kFlush = 3 };
enum { kTransmissionFlags = 1 /* HAS_FLAGS */ | 4 /* SEND_FLUSH */ | 256 /* CAN_MULTI_CONN */ };
#define REP_ERR_UNSUP 0x80000001u
#define PACKED __attribute__((packed))

struct PACKED option {
  uint64_t magic;
  uint32_t option, bytes;
};
struct PACKED option_reply {
  uint64_t magic;
  uint32_t option, type, bytes;
};
struct PACKED info_export {
  uint16_t type;
  uint64_t bytes;
  uint16_t flags;
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

static char *volume;
static uint64_t volume_bytes;
static int receive_flags;

static int fail(const char *doing) {
  perror(doing);
  return 1;
}

static int receive(int fd, void *to, size_t bytes) {
  return bytes == 0 || recv(fd, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* Sends all parts, with one writev unless the socket takes only a part of them. */
static int transmit_all(int fd, struct iovec *parts, int count) {
  for (int i = 0; i < count;) {
    ssize_t sent = writev(fd, parts + i, count - i);
    if (sent < 0) return 0;
    for (; i < count && (size_t)sent >= parts[i].iov_len; ++i) sent -= (ssize_t)parts[i].iov_len;
    if (i == count) break;
    parts[i].iov_base = (char *)parts[i].iov_base + sent;
    parts[i].iov_len -= (size_t)sent;
  }
  return 1;
}

static int transmit(int fd, void *head, size_t head_bytes, void *body, size_t body_bytes) {
  struct iovec parts[2] = {{head, head_bytes}, {body, body_bytes}};
  return transmit_all(fd, parts, 2);
}

static int answer(int fd, uint32_t option, uint32_t type, void *body, size_t bytes) {
  struct option_reply head = {htobe64(0x3e889045565a9), htobe32(option), htobe32(type),
                              htobe32((uint32_t)bytes)};
  return transmit(fd, &head, sizeof head, body, bytes);
}

/* Returns 1 when the connection has entered transmission. */
static int negotiate(int fd) {
  char data[4096];
  struct option option;
  struct info_export info = {0, htobe64(volume_bytes), htobe16(kTransmissionFlags)};
  if (!transmit(fd, "NBDMAGICIHAVEOPT\0\3", 18, NULL, 0) || !receive(fd, data, 4)) return 0;
  const size_t padding_bytes = (data[3] & kNoZeroes) ? 0 : 124;
  while (receive(fd, &option, sizeof option)) {
    const uint32_t kind = be32toh(option.option), bytes = be32toh(option.bytes);
    if (bytes > sizeof data || !receive(fd, data, bytes)) return 0;
    if (kind == kOptExportName) {
      memset(data, 0, padding_bytes);
      return transmit(fd, &info.bytes, sizeof info - sizeof info.type, data, padding_bytes);
    }
    if (kind == kOptGo && !answer(fd, kind, kRepInfo, &info, sizeof info)) return 0;
    const int known = kind == kOptGo || kind == kOptAbort;
    if (!answer(fd, kind, known ? kRepAck : REP_ERR_UNSUP, NULL, 0)) return 0;
    if (known) return kind == kOptGo;
  }
  return 0;
}

static char buffer[kBufferBytes];
static size_t buffer_begin, buffer_end;
static struct reply replies[kRepliesMax];
static struct iovec reply_parts[2 * kRepliesMax];

/* Executes the request at the front of the buffer and appends its reply. Returns the number of
 * parts so far; 0: the connection is over. */
static int carry_out(int fd, struct reply *reply, int parts, size_t *read_ahead_bytes) {
  struct request request;
  memcpy(&request, buffer + buffer_begin, sizeof request);
  buffer_begin += sizeof request;
  const uint64_t offset = be64toh(request.offset), bytes = be32toh(request.bytes);
  const int type = be16toh(request.type);
  const int inside =
      bytes <= kRequestMaxBytes && bytes <= volume_bytes && offset <= volume_bytes - bytes;
  const int good = type == kFlush || (inside && (type == kRead || type == kWrite));
  if (be32toh(request.magic) != 0x25609513 || type == kDisc || (type == kWrite && !good)) return 0;
  if (type == kWrite) {
    const size_t there = buffer_end - buffer_begin < bytes ? buffer_end - buffer_begin : bytes;
    memcpy(volume + offset, buffer + buffer_begin, there);
    buffer_begin += there;
    if (!receive(fd, volume + offset + there, bytes - there)) return 0;
    *read_ahead_bytes = bytes <= kSmallMaxBytes ? sizeof buffer : sizeof request;
  }
  *reply = (struct reply){htobe32(0x67446698), htobe32(good ? 0 : kEinval), request.cookie};
  reply_parts[parts++] = (struct iovec){reply, sizeof *reply};
  if (good && type == kRead) reply_parts[parts++] = (struct iovec){volume + offset, bytes};
  return parts;
}

static void serve(int fd) {
  size_t read_ahead_bytes = kHeadersAhead * sizeof(struct request);
  buffer_begin = buffer_end = 0;
  for (;;) {
    int parts = 0;
    for (int i = 0; i < kRepliesMax && buffer_end - buffer_begin >= sizeof(struct request); ++i) {
      parts = carry_out(fd, &replies[i], parts, &read_ahead_bytes);
      if (parts == 0) return;
    }
    if (parts > 0 && !transmit_all(fd, reply_parts, parts)) return;
    if (buffer_end - buffer_begin >= sizeof(struct request)) continue;
    memmove(buffer, buffer + buffer_begin, buffer_end - buffer_begin);
    buffer_end -= buffer_begin;
    buffer_begin = 0;
    ssize_t received;
    do received = recv(fd, buffer + buffer_end, read_ahead_bytes - buffer_end, receive_flags);
    while (received < 0 && errno == EAGAIN);
    if (received <= 0) return;
    buffer_end += (size_t)received;
  }
}

static int listen_on(const char *where) {
  struct sockaddr_un path = {.sun_family = AF_UNIX};
  struct sockaddr_in port = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int tcp = strncmp(where, "tcp:", 4) == 0, on = 1;
  if (tcp) port.sin_port = htons((uint16_t)atoi(where + 4));
  else strncpy(path.sun_path, where + 5, sizeof path.sun_path - 1);
  const int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int bad = bind(fd, tcp ? (void *)&port : (void *)&path, tcp ? sizeof port : sizeof path);
  return bad || listen(fd, 64) ? -1 : fd;
}

static void work(int listener, pthread_barrier_t *all_ready) {
  const int on = 1;
  madvise(volume, volume_bytes, MADV_POPULATE_WRITE); /* an older kernel faults them in later */
  pthread_barrier_wait(all_ready);
  for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; close(fd)) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* a Unix socket needs none */
    if (negotiate(fd)) serve(fd);
  }
}

int main(int argc, char **argv) {
  if (argc < 3) return fprintf(stderr, "usage: bare_server BYTES unix:PATH|tcp:PORT [spin]\n"), 2;
  if (argc > 3) receive_flags = MSG_DONTWAIT;
  volume_bytes = strtoull(argv[1], NULL, 10);
  volume = mmap(NULL, volume_bytes + kHugepageBytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (volume == MAP_FAILED) return fail("bare_server: mmap");
  const int listener = listen_on(argv[2]);
  if (listener < 0) return fail(argv[2]);
  signal(SIGPIPE, SIG_IGN);
  for (uint64_t i = 0; i < volume_bytes / 8; ++i) {
    ((uint64_t *)(void *)volume)[i] = (i + 1) * 0x9e3779b97f4a7c15; /* no zeros to read */
  }
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_t *all_ready = (void *)(volume + volume_bytes);
  pthread_barrier_init(all_ready, &shared, kWorkers);
  for (int i = 0; i < kWorkers; ++i) {
    if (fork() != 0) continue;
    work(listener, all_ready);
    return 1;
  }
  pause();
}
