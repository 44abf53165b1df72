/* The physical floor: the bare cost of moving bytes from core to core.
 *
 * line: one word on one line goes back and forth. latency, read_large: a bare message: the payload
 * is written, then a flag, then read; flag and payload are adjacent, so up to 56 bytes lie on the
 * flag's own line. bandwidth: a copy from page to page, and a flag. cma: a flag, and one
 * process_vm_readv by the receiver from the sender's private memory. put_copied, put_asleep: one
 * process_vm_writev into the other's memory.
 */
#define _GNU_SOURCE
#include "peer.h"

#include <sys/uio.h>

enum { kPieceBytes = 64 << 10 };

struct box {
  ON_OWN_LINE uint64_t flag;
  char payload[];
};

static struct box *boxes[2]; /* by the side that writes */
static void *target;         /* of puts: shared, and aligned as the buffer is */
static uint64_t *own_buffer, *other_buffer;
static pid_t other_process;

ALWAYS_INLINE void await(const uint64_t *flag, uint64_t value) {
  while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != value) {
  }
}

static void send_line(struct run *run, uint64_t number) {
  __atomic_store_n(&boxes[0]->flag, 2 * number + (uint64_t)run->side, __ATOMIC_RELEASE);
}

static void receive_line(struct run *run, uint64_t number) {
  await(&boxes[0]->flag, 2 * number + (uint64_t)!run->side);
}

static void send_bare(struct run *run, uint64_t number) {
  struct box *box = boxes[run->side];
  write_words(box->payload, run->words, number);
  __atomic_store_n(&box->flag, number, __ATOMIC_RELEASE);
}

static void receive_bare(struct run *run, uint64_t number) {
  const struct box *box = boxes[!run->side];
  await(&box->flag, number);
  read_words(run, box->payload);
}

static void send_private(struct run *run, uint64_t number) {
  write_words(own_buffer, run->words, number);
  __atomic_store_n(&boxes[run->side]->flag, number, __ATOMIC_RELEASE);
}

/* Receives into another buffer than the send buffer: a receiver keeps both. */
static void receive_private(struct run *run, uint64_t number) {
  char *into = (char *)own_buffer + run->bytes;
  struct iovec to = {into, run->bytes}, from = {other_buffer, run->bytes};
  await(&boxes[!run->side]->flag, number);
  if (process_vm_readv(other_process, &to, 1, &from, 1, 0) != (ssize_t)run->bytes) {
    fail("reading the other process's memory", "process_vm_readv refused; allow ptrace");
  }
  read_words(run, into);
}

/* In parts: one memcpy of 1 MiB took a sixth longer here, by glibc's path for large copies. */
static void put(struct run *run, uint64_t number) {
  write_words(own_buffer, run->words, number);
  for (size_t at = 0; at < run->bytes; at += kPieceBytes) {
    const size_t left = run->bytes - at;
    memcpy((char *)target + at, (char *)own_buffer + at, left < kPieceBytes ? left : kPieceBytes);
  }
  __atomic_store_n(&boxes[0]->flag, number, __ATOMIC_RELEASE);
}

static void put_copied(struct run *run, uint64_t number) {
  struct iovec from = {own_buffer, run->bytes}, to = {target, run->bytes};
  write_words(own_buffer, run->words, number);
  if (process_vm_writev(other_process, &from, 1, &to, 1, 0) != (ssize_t)run->bytes) {
    fail("writing the other process's memory", "process_vm_writev refused; allow ptrace");
  }
}

static void flush(void) {} /* a store is seen without more ado */

static void find_other(struct run *run) {
  struct {
    pid_t pid;
    uint64_t *buffer;
  } mine = {getpid(), own_buffer}, theirs;
  exchange(run, &mine, &theirs, sizeof mine);
  other_process = theirs.pid;
  other_buffer = theirs.buffer;
}

int main(int argc, char **argv) {
  const struct run asked = parse_arguments(argc, argv);
  struct run run;
  for (int i = 0; i < 2; ++i) boxes[i] = shared_memory(sizeof(struct box) + asked.bytes);
  target = shared_memory(asked.bytes + 1);
  run = start_pair(argc, argv);
  own_buffer = private_memory(2 * run.bytes);
  find_other(&run);
  if (is_kind(&run, "line")) {
    run.words = 0;
    ping_pong(&run, send_line, receive_line);
  } else if (is_kind(&run, "latency") || is_kind(&run, "read_large")) {
    ping_pong(&run, send_bare, receive_bare);
  } else if (is_kind(&run, "cma")) {
    ping_pong(&run, send_private, receive_private);
  } else if (is_kind(&run, "bandwidth")) {
    if (run.side == 0) put_stream(&run, put, flush);
    meet(&run);
    check_last_put(&run, target);
  } else if (is_kind(&run, "put_copied") || is_kind(&run, "put_asleep")) {
    if (run.side == 0) put_stream(&run, put_copied, flush);
    (is_kind(&run, "put_asleep") ? meet_asleep : meet)(&run);
    check_last_put(&run, target);
  } else {
    unknown_kind(&run);
  }
  return finish(&run);
}
