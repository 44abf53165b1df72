// boost::lockfree::spsc_queue of fixed capacity, in shared memory. lane BURST.
#include <boost/lockfree/policies.hpp>
#include <boost/lockfree/spsc_queue.hpp>
#include <new>

#include "peer.h"

namespace {

using Queue = boost::lockfree::spsc_queue<uint64_t, boost::lockfree::capacity<1023>>;
constexpr size_t kBurstMax = 64;

Queue *queue;

uint64_t push_items(struct run *run, uint64_t first, uint64_t count) {
  uint64_t items[kBurstMax];
  const uint64_t n = count < run->bytes ? count : run->bytes;
  if (n == 1) return queue->push(first);
  for (uint64_t i = 0; i < n; ++i) items[i] = first + i;
  for (uint64_t done = 0; done < n;) done += queue->push(items + done, n - done);
  return n;
}

uint64_t pop_items(struct run *run) {
  uint64_t items[kBurstMax];
  if (run->bytes == 1) {
    uint64_t item;
    if (!queue->pop(item)) return 0;
    run->sum += item;
    return 1;
  }
  const uint64_t n = queue->pop(items, run->bytes);
  for (uint64_t i = 0; i < n; ++i) run->sum += items[i];
  return n;
}

}  // namespace

int main(int argc, char **argv) {
  queue = new (shared_memory(sizeof(Queue))) Queue;
  struct run run = start_pair(argc, argv);
  if (!is_kind(&run, "lane") || run.bytes > kBurstMax) unknown_kind(&run);
  meet(&run);
  if (run.side == 1) send_stream(&run, push_items);
  else receive_stream(&run, pop_items);
  return finish(&run);
}
