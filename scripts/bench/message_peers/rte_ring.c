/* DPDK's ring with one producer and one consumer, in shared memory, without EAL. lane BURST. */
#define _GNU_SOURCE
#include "peer.h"

#include <rte_ring.h>

enum { kSlots = 1024 };

static struct rte_ring *ring;

static uint64_t push_items(struct run *run, uint64_t first, uint64_t count) {
  void *items[64];
  const unsigned n = (unsigned)(count < run->bytes ? count : run->bytes);
  if (n == 1) return rte_ring_sp_enqueue(ring, (void *)first) == 0;
  for (unsigned i = 0; i < n; ++i) items[i] = (void *)(first + i);
  for (unsigned done = 0; done < n;) {
    done += rte_ring_sp_enqueue_burst(ring, items + done, n - done, NULL);
  }
  return n;
}

static uint64_t pop_items(struct run *run) {
  void *items[64];
  unsigned n;
  if (run->bytes == 1) {
    if (rte_ring_sc_dequeue(ring, items) != 0) return 0;
    run->sum += (uint64_t)items[0];
    return 1;
  }
  n = rte_ring_sc_dequeue_burst(ring, items, (unsigned)run->bytes, NULL);
  for (unsigned i = 0; i < n; ++i) run->sum += (uint64_t)items[i];
  return n;
}

int main(int argc, char **argv) {
  struct run run;
  ring = shared_memory((size_t)rte_ring_get_memsize(kSlots));
  if (rte_ring_init(ring, "lane", kSlots, RING_F_SP_ENQ | RING_F_SC_DEQ) != 0) {
    fail("making the ring", "rte_ring_init refused");
  }
  run = start_pair(argc, argv);
  if (!is_kind(&run, "lane") || run.bytes > 64) unknown_kind(&run);
  meet(&run);
  if (run.side == 1) send_stream(&run, push_items);
  else receive_stream(&run, pop_items);
  return finish(&run);
}
