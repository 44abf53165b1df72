// The client of scale_bench.py: one thread, io_uring. It replays prepared bytes over many
// connections, of any protocol whose replies have a known length.
//
//     replay_client unix:PATH|tcp:PORT FIRST CONNECTIONS SECONDS FILE
//
// FILE has a head, the first bytes of a reply, hellos, and batches to its end. Each connection
// sends a hello and receives its answer; then it sends a batch of requests, receives all replies,
// counts them by their length alone, and sends the next batch, with no work between. FIRST is the
// number of the first connection: connections take the hellos in turn, by their numbers. The client
// sleeps in the kernel while there is no reply: a server on the same core gets the core, and the
// processor time of the client is that of its work. It checks only the first reply of a run.
//
// Prints: requests that were answered, seconds, and its processor seconds in them.
#define _GNU_SOURCE
#include <arpa/inet.h>
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

enum {
  kConnectionsMax = 1024,
  kRingEntries = 256,
  kPieces = 256,  // parts of memory that replies are received into
  kPieceBytes = 1 << 15,
  kHelloReplyMaxBytes = 4096
};

struct head {  // of replay_file() in scaling.py, little-endian
  uint32_t prefix_bytes, hello_count, hello_bytes, hello_reply_bytes;
  uint32_t batch_bytes, reply_bytes, request_count;  // of one batch
};

struct connection {
  int fd;
  size_t next;        // batch
  size_t left_bytes;  // of the replies that it waits for
};

static struct head head;
static const char* prefix;
static const char* hellos;
static const char* batches;
static size_t batch_count;
static struct connection all[kConnectionsMax];
static struct io_uring ring;
static struct io_uring_buf_ring* pieces;
static char* piece_memory;

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void fail(const char* doing) {
  fprintf(stderr, "replay_client: %s: %s\n", doing, errno ? strerror(errno) : "unexpected content");
  exit(1);
}

static void read_file(const char* path) {
  FILE* file = fopen(path, "rb");
  if (file == NULL || fread(&head, sizeof head, 1, file) != 1) fail(path);
  fseek(file, 0, SEEK_END);
  const size_t bytes = (size_t)ftell(file) - sizeof head;
  char* text = malloc(bytes);
  fseek(file, sizeof head, SEEK_SET);
  if (text == NULL || fread(text, 1, bytes, file) != bytes) fail(path);
  fclose(file);
  const size_t before = head.prefix_bytes + (size_t)head.hello_count * head.hello_bytes;
  errno = 0;
  if (bytes <= before || head.batch_bytes == 0 || (bytes - before) % head.batch_bytes != 0 ||
      head.hello_reply_bytes > kHelloReplyMaxBytes || head.reply_bytes < head.prefix_bytes) {
    fail(path);
  }
  prefix = text;
  hellos = text + head.prefix_bytes;
  batches = text + before;
  batch_count = (bytes - before) / head.batch_bytes;
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

static void say_hello(int fd, size_t index) {
  static char answer[kHelloReplyMaxBytes];
  if (head.hello_count == 0) return;
  const char* hello = hellos + index % head.hello_count * head.hello_bytes;
  if (send(fd, hello, head.hello_bytes, MSG_NOSIGNAL) != (ssize_t)head.hello_bytes) fail("sending");
  errno = 0;
  if (recv(fd, answer, head.hello_reply_bytes, MSG_WAITALL) != (ssize_t)head.hello_reply_bytes) {
    fail("receiving the answer to a hello");
  }
}

static void set_up_ring(void) {
  struct io_uring_params parameters = {
      .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
      .cq_entries = 4 * kRingEntries};
  pieces = aligned_alloc(4096, 4096);  // kPieces descriptions of 16 bytes, in a page
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

static struct io_uring_sqe* next_entry(void) {
  struct io_uring_sqe* entry = io_uring_get_sqe(&ring);
  if (entry != NULL) return entry;
  if (io_uring_submit(&ring) < 0) fail("submitting");
  return io_uring_get_sqe(&ring);
}

// The socket takes a whole batch: it is empty, and its buffer is larger. Only errors complete.
static void send_batch(struct connection* to) {
  struct io_uring_sqe* entry = next_entry();
  io_uring_prep_send(entry, to->fd, batches + to->next * head.batch_bytes, head.batch_bytes,
                     MSG_WAITALL | MSG_NOSIGNAL);
  entry->flags |= IOSQE_CQE_SKIP_SUCCESS;
  io_uring_sqe_set_data(entry, NULL);
  to->next = (to->next + 1) % batch_count;
  to->left_bytes = head.reply_bytes;
}

// Receives into any free part, repeatedly until the kernel ends the multishot.
static void receive(struct connection* from) {
  struct io_uring_sqe* entry = next_entry();
  io_uring_prep_recv_multishot(entry, from->fd, NULL, 0, 0);
  entry->flags |= IOSQE_BUFFER_SELECT;
  io_uring_sqe_set_data(entry, from);
}

// Returns the bytes of replies in `event`, and frees their part of memory.
static size_t take(const struct io_uring_cqe* event, int is_first) {
  errno = -event->res;
  if (event->res <= 0 && event->res != -ENOBUFS) fail("receiving");
  if (event->res <= 0) return 0;
  errno = 0;
  const unsigned short piece = (unsigned short)(event->flags >> IORING_CQE_BUFFER_SHIFT);
  char* memory = piece_memory + (size_t)piece * kPieceBytes;
  if (is_first &&
      ((size_t)event->res < head.prefix_bytes || memcmp(memory, prefix, head.prefix_bytes) != 0)) {
    fail("the first reply");
  }
  io_uring_buf_ring_add(pieces, memory, kPieceBytes, piece, kPieces - 1, 0);
  io_uring_buf_ring_advance(pieces, 1);
  return (size_t)event->res;
}

int main(int count, char** words) {
  if (count != 6) return fprintf(stderr, "usage: see the source\n"), 2;
  const size_t first = (size_t)atoi(words[2]), connections = (size_t)atoi(words[3]);
  if (connections < 1 || connections > kConnectionsMax) {
    return fprintf(stderr, "usage: see the source\n"), 2;
  }
  read_file(words[5]);
  for (size_t i = 0; i < connections; ++i) {
    all[i].fd = open_connection(words[1]);
    all[i].next = (first + i) % batch_count;
    say_hello(all[i].fd, first + i);
  }
  set_up_ring();
  for (size_t i = 0; i < connections; ++i) receive(&all[i]);
  const double begin = now(CLOCK_MONOTONIC), end = begin + atof(words[4]);
  const double spent_before = now(CLOCK_PROCESS_CPUTIME_ID);
  for (size_t i = 0; i < connections; ++i) send_batch(&all[i]);
  unsigned long done = 0;
  size_t received_all = 0;
  double time = begin;
  while (time < end) {
    if (io_uring_submit_and_wait(&ring, 1) < 0) fail("waiting for replies");
    struct io_uring_cqe* event;
    unsigned head_index, ready = 0;
    io_uring_for_each_cqe(&ring, head_index, event) {
      ++ready;
      struct connection* from = io_uring_cqe_get_data(event);
      if (from == NULL) errno = -event->res, fail("sending");
      const size_t received = take(event, received_all == 0);
      received_all += received;
      if ((event->flags & IORING_CQE_F_MORE) == 0) receive(from);
      if (received > from->left_bytes) fail("more than the replies");
      from->left_bytes -= received;
      if (from->left_bytes > 0 || received == 0) continue;
      done += head.request_count;
      send_batch(from);
    }
    io_uring_cq_advance(&ring, ready);
    time = now(CLOCK_MONOTONIC);
  }
  printf("%lu %.6f %.6f\n", done, time - begin, now(CLOCK_PROCESS_CPUTIME_ID) - spent_before);
  return 0;
}
