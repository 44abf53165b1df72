/* Open MPI's shared-memory transport, vader, started by `mpirun -np 2`; the driver's --mca options
 * select CMA.
 *
 * latency, read_large, cma: MPI_Send and MPI_Recv. bandwidth: VARIANT put (MPI_Put into a window
 * that MPI allocated, its fastest path) or send. rate16: MPI has no further connections between two
 * processes; the nearest equivalent is 16 communicators, used in turn. The receiver posts its
 * receives before the messages come, which is cheapest for MPI. After every kAhead messages it
 * releases the sender by an empty message, since unexpected messages would otherwise pile up.
 */
#define _GNU_SOURCE
#include "peer.h"

#include <mpi.h>

enum { kWindow = 64, kAhead = 1024 };

static uint64_t *buffer;
static MPI_Win window;
static MPI_Comm connections[kConnections];
static MPI_Request requests[kWindow];

static void send_message(struct run *run, uint64_t number) {
  write_words(buffer, run->words, number);
  MPI_Send(buffer, (int)run->bytes, MPI_BYTE, !run->side, 0, MPI_COMM_WORLD);
}

/* Receives into another buffer than the send buffer, as the floor does. */
static void receive_message(struct run *run, uint64_t number) {
  char *into = (char *)buffer + run->bytes;
  (void)number;
  MPI_Recv(into, (int)run->bytes, MPI_BYTE, !run->side, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  read_words(run, into);
}

static void put(struct run *run, uint64_t number) {
  write_words(buffer, run->words, number);
  MPI_Put(buffer, (int)run->bytes, MPI_BYTE, 1, 0, (int)run->bytes, MPI_BYTE, window);
}

static void flush_puts(void) { MPI_Win_flush(1, window); }

static void flush_sends(void) {
  MPI_Recv(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void measure_puts(struct run *run) {
  void *target;
  MPI_Win_allocate((MPI_Aint)run->bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &target, &window);
  memset(target, 0, run->bytes);
  MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (run->side == 0) put_stream(run, put, flush_puts);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_sync(window);
  if (run->side == 1) check_last_put(run, target);
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
}

static void measure_sends(struct run *run) {
  if (run->side == 0) {
    put_stream(run, send_message, flush_sends);
    return;
  }
  for (int batch = 0; batch < kBatches + kWarmupBatches; ++batch) {
    for (uint64_t i = 0; i < run->batch; ++i) receive_message(run, 0);
    MPI_Send(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
  }
  check_sum(run);
}

/* The ring of messages in flight; a message is checked at the end of its window. */
static char *message_at(const struct run *run, uint64_t index) {
  return (char *)buffer + index % kWindow * run->bytes;
}

static void post_receive(const struct run *run, uint64_t index) {
  MPI_Irecv(message_at(run, index), (int)run->bytes, MPI_BYTE, 1, 0,
            connections[index % kConnections], &requests[index % kWindow]);
}

static uint64_t offer(struct run *run, uint64_t first, uint64_t count) {
  (void)count;
  write_words(buffer, run->words, first);
  MPI_Send(buffer, (int)run->bytes, MPI_BYTE, 0, 0, connections[(first - 1) % kConnections]);
  if (first % kAhead == 0 && first > kAhead) {
    MPI_Recv(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  return 1;
}

static uint64_t handle_next(struct run *run) {
  static uint64_t index;
  MPI_Wait(&requests[index % kWindow], MPI_STATUS_IGNORE);
  read_words(run, message_at(run, index));
  if (index + kWindow < total_operations(run)) post_receive(run, index + kWindow);
  if (++index % kAhead == 0 && index + kAhead <= total_operations(run)) {
    MPI_Send(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
  }
  return 1;
}

static void measure_connections(struct run *run) {
  for (int i = 0; i < kConnections; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &connections[i]);
  for (uint64_t i = 0; run->side == 0 && i < kWindow; ++i) post_receive(run, i);
  MPI_Barrier(MPI_COMM_WORLD);
  if (run->side == 1) send_stream(run, offer);
  else receive_stream(run, handle_next);
}

int main(int argc, char **argv) {
  struct run run = parse_arguments(argc, argv);
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (rank == NULL) fail("finding this process's rank", "none; start it with mpirun -np 2");
  become_side(&run, atoi(rank)); /* before MPI allocates */
  MPI_Init(&argc, &argv);
  buffer = private_memory((run.bytes > 4096 ? 2 : kWindow) * run.bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  if (is_kind(&run, "latency") || is_kind(&run, "read_large") || is_kind(&run, "cma")) {
    ping_pong(&run, send_message, receive_message);
  } else if (is_kind(&run, "bandwidth") && strcmp(run.variant, "put") == 0) {
    measure_puts(&run);
  } else if (is_kind(&run, "bandwidth") && strcmp(run.variant, "send") == 0) {
    measure_sends(&run);
  } else if (is_kind(&run, "rate16") && run.bytes <= 4096) {
    measure_connections(&run);
  } else {
    unknown_kind(&run);
  }
  MPI_Finalize();
  return 0;
}
