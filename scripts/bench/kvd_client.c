// The lean client of kvd_bench.py: one thread, io_uring. In each round one system call sends the
// next batch of every connection that has one to send, and receives the available replies.
//
//     kvd_client PORT get|set CONNECTIONS DEPTH SECONDS KEYS VALUE_BYTES
//     kvd_client PORT get|set CONNECTIONS 1 SECONDS KEYS VALUE_BYTES RATE
//     kvd_client PORT fill 1 32 0 KEYS VALUE_BYTES
//
// Each connection keeps DEPTH requests in flight: it sends a batch of that size, receives all
// replies, counts them by their length alone, which is the same for all, and sends the next batch.
// Requests are formatted beforehand. Prints: operations per second, and the share of time in which
// it found no reply to read: above 0 it waits for the server, so the client is not the bottleneck.
// It checks only the first reply of a run.
//
// With a RATE it is an open loop: RATE requests per second, over all connections in turn, each sent
// at its due time whether earlier ones are answered or not. Prints: operations per second, and the
// 50th and 99th percentile of the time from a request's due time until its whole reply has arrived,
// in microseconds.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  kBatches = 64,
  kBufferBytes = 1 << 18,
  kTimesMax = 1 << 22,
  kInFlightMax = 1 << 12,
  kRingEntries = 256,
  kPieces = 256,  // parts of memory that replies are received into
  kPieceBytes = 8192
};

static char* batches[kBatches];
static size_t batch_bytes[kBatches];
static char buffer[kBufferBytes];

struct connection {
  int fd;
  int next;           // batch
  size_t left_bytes;  // of the replies that it waits for; paced: of a partly received reply
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void fail(const char* doing) {
  fprintf(stderr, "kvd_client: %s: %s\n", doing, strerror(errno));
  exit(1);
}

static void write_batches(int is_get, int depth, int keys, int value_bytes) {
  char* value = malloc((size_t)value_bytes + 1);
  memset(value, 'v', (size_t)value_bytes);
  value[value_bytes] = 0;
  unsigned random = 1;
  for (int batch = 0; batch < kBatches; ++batch) {
    char* to = batches[batch] = malloc((size_t)depth * ((size_t)value_bytes + 64));
    for (int i = 0; i < depth; ++i) {
      random = random * 1664525 + 1013904223;
      const int key = (int)((random >> 8) % (unsigned)keys);
      to += is_get ? sprintf(to, "get key%07d\r\n", key)
                   : sprintf(to, "set key%07d 0 0 %d\r\n%s\r\n", key, value_bytes, value);
    }
    batch_bytes[batch] = (size_t)(to - batches[batch]);
  }
  free(value);
}

static int open_connection(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons((unsigned short)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (connect(fd, (struct sockaddr*)&address, sizeof address) != 0) fail("connecting");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

static struct io_uring ring;
static struct io_uring_buf_ring* pieces;
static char* piece_memory;

// The socket takes a whole batch: it is empty, and its buffer is larger. Only errors complete.
static void send_batch(struct connection* to) {
  struct io_uring_sqe* entry = io_uring_get_sqe(&ring);
  io_uring_prep_send(entry, to->fd, batches[to->next], batch_bytes[to->next], MSG_WAITALL);
  entry->flags |= IOSQE_CQE_SKIP_SUCCESS;
  io_uring_sqe_set_data(entry, NULL);
  to->next = (to->next + 1) % kBatches;
}

// Receives into any free part, repeatedly until the kernel ends the multishot.
static void receive(struct connection* from) {
  struct io_uring_sqe* entry = io_uring_get_sqe(&ring);
  io_uring_prep_recv_multishot(entry, from->fd, NULL, 0, 0);
  entry->flags |= IOSQE_BUFFER_SELECT;
  io_uring_sqe_set_data(entry, from);
}

static void set_up_ring(void) {
  struct io_uring_params parameters = {
      .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
      .cq_entries = 4 * kRingEntries};
  pieces = aligned_alloc(4096, kPieces * sizeof(struct io_uring_buf));
  io_uring_buf_ring_init(pieces);
  struct io_uring_buf_reg described = {.ring_addr = (unsigned long)pieces, .ring_entries = kPieces};
  int status = io_uring_queue_init_params(kRingEntries, &ring, &parameters);
  if (status == 0) status = io_uring_register_buf_ring(&ring, &described, 0);
  if (status != 0) errno = -status, fail("making an io_uring");
  piece_memory = malloc((size_t)kPieces * kPieceBytes);
  for (int i = 0; i < kPieces; ++i) {
    io_uring_buf_ring_add(pieces, piece_memory + (size_t)i * kPieceBytes, kPieceBytes,
                          (unsigned short)i, kPieces - 1, i);
  }
  io_uring_buf_ring_advance(pieces, kPieces);
}

// Returns the bytes of replies in `event`, and frees their buffer.
static size_t take(const struct io_uring_cqe* event, int is_first, int is_get) {
  if (event->res <= 0 && event->res != -ENOBUFS) errno = -event->res, fail("receiving");
  if (event->res <= 0) return 0;
  const unsigned short piece = (unsigned short)(event->flags >> IORING_CQE_BUFFER_SHIFT);
  char* memory = piece_memory + (size_t)piece * kPieceBytes;
  if (is_first && memcmp(memory, is_get ? "VALUE key" : "STORED\r\n", 8) != 0) {
    fail("the first reply");
  }
  io_uring_buf_ring_add(pieces, memory, kPieceBytes, piece, kPieces - 1, 0);
  io_uring_buf_ring_advance(pieces, 1);
  return (size_t)event->res;
}

static void fill(int fd, int keys, int value_bytes) {
  char* value = malloc((size_t)value_bytes + 1);
  memset(value, 'v', (size_t)value_bytes);
  value[value_bytes] = 0;
  for (int key = 0; key < keys;) {
    int bytes = 0, batch = 0;
    for (; batch < 64 && key < keys; ++batch, ++key) {
      bytes += sprintf(buffer + bytes, "set key%07d 0 0 %d\r\n%s\r\n", key, value_bytes, value);
    }
    if (send(fd, buffer, (size_t)bytes, 0) != bytes) fail("sending");
    if (recv(fd, buffer, 8 * (size_t)batch, MSG_WAITALL) != 8 * batch) fail("receiving");
    if (memcmp(buffer, "STORED\r\n", 8) != 0) fail("a set was not stored");
  }
  free(value);
}

static int compare(const void* a, const void* b) {
  const float x = *(const float*)a, y = *(const float*)b;
  return (x > y) - (x < y);
}

// Request number i is due i / rate after the start, on connection i % connections.
static void run_paced(struct connection* all, int connections, double seconds, double rate,
                      size_t reply_bytes) {
  float* times_us = malloc(kTimesMax * sizeof *times_us);
  unsigned long *answered = calloc((size_t)connections, sizeof *answered), sent = 0, done = 0;
  const double begin = now();
  const unsigned long total = (unsigned long)(seconds * rate);
  if (total > kTimesMax) fail("too many requests");
  while (done < total) {
    const double time = now();
    // Half of the ring's entries are reserved for receives.
    for (int burst = 0; burst < kRingEntries / 2 && sent < total && sent - done < kInFlightMax &&
                        begin + (double)sent / rate <= time;
         ++burst, ++sent) {
      send_batch(&all[sent % (unsigned long)connections]);
    }
    if (io_uring_submit_and_get_events(&ring) < 0) fail("sending");
    const double there = now();
    struct io_uring_cqe* event;
    unsigned head_index, ready = 0;
    io_uring_for_each_cqe(&ring, head_index, event) {
      ++ready;
      struct connection* from = io_uring_cqe_get_data(event);
      if (from == NULL) errno = -event->res, fail("sending");
      from->left_bytes += take(event, done == 0, 1);
      if ((event->flags & IORING_CQE_F_MORE) == 0) receive(from);
      unsigned long* count = &answered[from - all];
      for (; from->left_bytes >= reply_bytes; from->left_bytes -= reply_bytes, ++*count) {
        const double index = (double)(*count * (unsigned long)connections) + (double)(from - all);
        times_us[done++] = (float)((there - begin - index / rate) * 1e6);
      }
    }
    io_uring_cq_advance(&ring, ready);
  }
  const double spent = now() - begin;
  qsort(times_us, done, sizeof *times_us, compare);
  printf("%.0f %.1f %.1f\n", (double)done / spent, times_us[done / 2], times_us[done * 99 / 100]);
}

int main(int count, char** words) {
  if (count != 8 && count != 9) return fprintf(stderr, "usage: see the source\n"), 2;
  const int port = atoi(words[1]), connections = atoi(words[3]), depth = atoi(words[4]);
  const int is_get = strcmp(words[2], "get") == 0;
  const int keys = atoi(words[6]), value_bytes = atoi(words[7]);
  if (strcmp(words[2], "fill") == 0) return fill(open_connection(port), keys, value_bytes), 0;
  write_batches(is_get, depth, keys, value_bytes);
  char head[64];
  const size_t one = !is_get ? 8
                             : (size_t)sprintf(head, "VALUE key0000000 0 %d\r\n", value_bytes) +
                                   (size_t)value_bytes + 7;
  const size_t reply_bytes = one * (size_t)depth;
  struct connection* all = calloc((size_t)connections, sizeof *all);
  for (int i = 0; i < connections; ++i) {
    all[i].fd = open_connection(port);
    all[i].next = i % kBatches;
  }
  set_up_ring();
  for (int i = 0; i < connections; ++i) receive(&all[i]);
  if (count == 9) {
    return run_paced(all, connections, atof(words[5]), atof(words[8]), reply_bytes), 0;
  }
  const double begin = now(), end = begin + atof(words[5]);
  for (int i = 0; i < connections; ++i) all[i].left_bytes = reply_bytes, send_batch(&all[i]);
  unsigned long done = 0;
  double time = begin, idle = 0, idle_since = 0;
  while (time < end) {
    for (int round = 0; round < 64; ++round) {
      if (io_uring_submit_and_get_events(&ring) < 0) fail("sending");
      struct io_uring_cqe* event;
      unsigned head_index, ready = 0;
      io_uring_for_each_cqe(&ring, head_index, event) {
        ++ready;
        struct connection* from = io_uring_cqe_get_data(event);
        if (from == NULL) errno = -event->res, fail("sending");
        const size_t received = take(event, done == 0, is_get);
        if ((event->flags & IORING_CQE_F_MORE) == 0) receive(from);
        if (received > from->left_bytes) fail("receiving");
        from->left_bytes -= received;
        if (from->left_bytes > 0 || received == 0) continue;
        done += (unsigned long)depth;
        from->left_bytes = reply_bytes;
        send_batch(from);
      }
      io_uring_cq_advance(&ring, ready);
      if (ready == 0 && idle_since == 0) idle_since = now();
      if (ready > 0 && idle_since > 0) idle += now() - idle_since, idle_since = 0;
    }
    time = now();
  }
  printf("%.0f %.3f\n", (double)done / (time - begin), idle / (time - begin));
  return 0;
}
