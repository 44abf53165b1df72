/* The floor of the queues: a textbook ring with one producer and one consumer in shared memory.
 * Each end reads the other's index only if its cached copy says full or empty.
 *
 * lane BURST: 8-byte items, BURST of them per publication. rate16 BYTES: 16 such rings from one
 * sender to one receiver, which polls all of them in turn.
 */
#define _GNU_SOURCE
#include "peer.h"

enum { kSlots = 1024, kSlotMaxBytes = 4096 };

struct ring {
  ON_OWN_LINE uint64_t tail; /* the producer's, and what it saw of head */
  ON_OWN_LINE uint64_t seen_head;
  ON_OWN_LINE uint64_t head; /* the consumer's, and what it saw of tail */
  ON_OWN_LINE uint64_t seen_tail;
  ON_OWN_LINE char slots[];
};

static struct ring *rings[kConnections];
static size_t slot_bytes;

ALWAYS_INLINE uint64_t room(struct ring *ring) {
  if (ring->tail - ring->seen_head == kSlots) {
    ring->seen_head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
  }
  return kSlots - (ring->tail - ring->seen_head);
}

ALWAYS_INLINE uint64_t filled(struct ring *ring) {
  if (ring->head == ring->seen_tail) {
    ring->seen_tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
  }
  return ring->seen_tail - ring->head;
}

ALWAYS_INLINE uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t push_items(struct run *run, uint64_t first, uint64_t count) {
  struct ring *ring = rings[0];
  const uint64_t n = least(least(run->bytes, count), room(ring));
  uint64_t *slots = (uint64_t *)ring->slots;
  for (uint64_t i = 0; i < n; ++i) slots[(ring->tail + i) % kSlots] = first + i;
  if (n != 0) __atomic_store_n(&ring->tail, ring->tail + n, __ATOMIC_RELEASE);
  return n;
}

static uint64_t pop_items(struct run *run) {
  struct ring *ring = rings[0];
  const uint64_t n = least(run->bytes, filled(ring));
  const uint64_t *slots = (const uint64_t *)ring->slots;
  for (uint64_t i = 0; i < n; ++i) run->sum += slots[(ring->head + i) % kSlots];
  if (n != 0) __atomic_store_n(&ring->head, ring->head + n, __ATOMIC_RELEASE);
  return n;
}

static uint64_t send_message(struct run *run, uint64_t first, uint64_t count) {
  struct ring *ring = rings[first % kConnections];
  (void)count;
  if (room(ring) == 0) return 0;
  write_words(&ring->slots[ring->tail % kSlots * slot_bytes], run->words, first);
  __atomic_store_n(&ring->tail, ring->tail + 1, __ATOMIC_RELEASE);
  return 1;
}

static uint64_t receive_messages(struct run *run) {
  uint64_t received = 0;
  for (int i = 0; i < kConnections; ++i) {
    struct ring *ring = rings[i];
    if (filled(ring) == 0) continue;
    read_words(run, &ring->slots[ring->head % kSlots * slot_bytes]);
    __atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
    ++received;
  }
  return received;
}

int main(int argc, char **argv) {
  const struct run asked = parse_arguments(argc, argv);
  const int is_lane = is_kind(&asked, "lane");
  struct run run;
  if (!is_lane && !is_kind(&asked, "rate16")) unknown_kind(&asked);
  slot_bytes = asked.words * sizeof(uint64_t);
  if (slot_bytes > kSlotMaxBytes) fail("making the rings", "the messages are too large");
  for (int i = 0; i < (is_lane ? 1 : kConnections); ++i) {
    rings[i] = shared_memory(sizeof(struct ring) + kSlots * slot_bytes);
  }
  run = start_pair(argc, argv);
  meet(&run);
  if (run.side == 1) {
    if (is_lane) send_stream(&run, push_items);
    else send_stream(&run, send_message);
  } else {
    if (is_lane) receive_stream(&run, pop_items);
    else receive_stream(&run, receive_messages);
  }
  return finish(&run);
}
