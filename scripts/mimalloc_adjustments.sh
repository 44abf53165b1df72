# The changes that scripts/mimalloc.sh makes to mimalloc 2.0.9, one function each: `adjust FILE SED`
# must change the file. Each comment names the change, its reason, the version of mimalloc that
# makes it unnecessary (as of 2.2.4 and 3.1.5), and the test that fails without it:
# tests/alloc/without_adjustments.py leaves them out one at a time, and expects that test to fail.

# Change: segments of 4 MiB instead of 32, in mimalloc-types.h.
# Why: many threads fit into a small heap.
# Until: for ever; 3.x has pages without segments.
# Test: a static_assert in alloc/confined_mimalloc.cc
small_segments() {
  adjust include/mimalloc-types.h \
    's/^\(#define MI_SEGMENT_SHIFT *( *\)9 \(+ MI_SEGMENT_SLICE_SHIFT\)/\16 \2/'
}

# Change: a bound in mi_heap_malloc_aligned (alloc-aligned.c).
# Why: posix_memalign with sizes of 256 to 1024 gave misaligned blocks.
# Until: 2.1.4, which asks mi_malloc_is_naturally_aligned.
# Test: Interception.PosixMemalignOfSmallPowersOfTwoIsAligned
aligned_small_blocks() {
  adjust src/alloc-aligned.c '/_mi_is_power_of_two(size) && size >= alignment/,+6'\
's/size <= MI_SMALL_SIZE_MAX/size <= MI_MAX_ALIGN_GUARANTEE/'
}

# Change: the first 16 KiB of a fresh page's blocks go on its list at once, not 4 KiB (page.c).
# Why: mimalloc defers this to save the system memory; here all memory is already taken.
# Until: for ever.
# Test: none; only timing shows it
long_lists() {
  adjust src/page.c 's/^\(#define MI_MAX_EXTEND_SIZE *\)(4\*1024)/\1(16*1024)/'
}

# Change: mi_free puts a block of its own thread on the list that malloc takes from, not on a second
# list that malloc takes over once the first is empty. Then a page's free blocks are no longer all
# zero, unless it has only one block (page.c).
# Why: a thread gets the block that it freed last, which is in its cache, and a block taken and
# freed repeatedly never leaves the fast path.
# Until: for ever.
# Test: ConfinedHeap.AThreadGetsTheBlockThatItFreedLast
last_freed_first() {
  adjust src/alloc.c '/^void mi_free(void\* p)/,/^}/s/page->local_free/page->free/g'
  adjust src/page.c 's/^\( *page->is_zero = page->is_zero_init\);/\1 \&\& page->reserved == 1;/'
}

# Change: mi_free does not call mimalloc for an empty page that stays because it is the only one of
# its size (bp_page_stays, alloc/confined_mimalloc.cc). The page's mark for this is cleared when it
# leaves its queue, or another page is put before it (page-queue.c).
# Why: a single block taken and freed repeatedly stays on the fast path.
# Until: for ever.
# Test: none; only timing shows it
empty_pages_stay() {
  adjust src/alloc.c '/^void mi_free(void\* p)/,/^}/'\
's/^ *_mi_page_retire(page);/        if (!bp_page_stays(page)) &/'
  adjust src/page.c 's/^\( *page->retire_expire = \)1 + (.*;/\1bp_retire_cycles(page);/'
  adjust src/page-queue.c '/^static void mi_page_queue_\(remove\|enqueue_from\)(/,/^}/'\
's/^  mi_heap_t\* heap = .*/&\n  page->retire_expire = 0;/'
  adjust src/page-queue.c '/^static void mi_page_queue_push(/,/^}/'\
's/^    queue->first->prev = page;/&\n    queue->first->retire_expire = 0;/'
}

# Change: a collection looks once at each segment that ended threads left (and at one more, which may
# be added meanwhile). A thread that ends looks at eight, like a thread that needs a segment
# (segment.c).
# Why: it looked at the same segments up to 16,384 times.
# Until: 2.1.7, for forced collections.
# Test: none; only timing shows it
one_look_at_each_segment() {
  adjust src/segment.c 's/^ *int max_tries = (force ? 16\*1024 : 1024);.*/  long max_tries = 1 +'\
' (long)(mi_atomic_load_relaxed(\&abandoned_count) +'\
' mi_atomic_load_relaxed(\&abandoned_visited_count));\n'\
'  if (!force \&\& max_tries > 8) max_tries = 8;/'
}

# Change: mi_free asks for the thread identity that alloc/thread_heaps can withdraw.
# Why: while the heaps of an idle thread are emptied, its free must take another thread's path.
# Until: for ever.
# Test: ThreadHeaps.AreEmptiedWhileTheirThreadWakesAtAnyMoment
own_identity() {
  adjust src/alloc.c 's/^\( *const bool *is_local *= (\)_mi_thread_id()/\1bp_heap_identity()/'
}

# Change: a page that is given up is no longer charged to its owner (bp_page_given_back, segment.c).
# Why: alloc/heap_owner counts pages.
# Until: for ever.
# Test: HeapOwner.OfManyThreadsHasOneLimit
pages_given_back() {
  adjust src/segment.c '/^static mi_slice_t\* mi_segment_page_clear/,/^}/'\
's/^  size_t inuse = /  bp_page_given_back(page);\n&/'
}

ADJUSTMENTS=(small_segments aligned_small_blocks long_lists last_freed_first empty_pages_stay
             one_look_at_each_segment own_identity pages_given_back)
