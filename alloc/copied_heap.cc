#include "alloc/copied_heap.h"

#include <pthread.h>

#include "alloc/confined_heap.h"
#include "alloc/heap_owner.h"
#include "alloc/metadata_zone.h"
#include "alloc/thread_heaps.h"
#include "platform/assert.h"

namespace bedplate {
namespace {

// hold_thread_heaps() comes first: it blocks this thread's signals, because handlers may call
// fork().
void hold_heaps() noexcept {
  hold_thread_heaps();
  hold_owner_names();
  hold_metadata_zone();
}

void release_heaps() noexcept {
  release_metadata_zone();
  release_owner_names();
  release_thread_heaps();
}

void release_in_child() noexcept {
  forget_other_threads();
  forget_segment_readers();
  release_heaps();
}

}  // namespace

void keep_copies_whole() noexcept {
  const int outcome = pthread_atfork(&hold_heaps, &release_heaps, &release_in_child);
  BP_ASSERT(outcome == 0);
}

}  // namespace bedplate
