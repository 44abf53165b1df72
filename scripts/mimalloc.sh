#!/usr/bin/env bash
# Fetches the source package of mimalloc into a directory and adjusts it. Usage: mimalloc.sh DIR
#
# Debian ships mimalloc as a shared object only; the runtime includes its sources in one of its own
# translation units (alloc/confined_mimalloc.cc). The adjustments at the end are each checked to
# have happened.
set -euo pipefail

directory=${1:?usage: mimalloc.sh DIR}
# Sources that another version of this script adjusted are fetched anew.
version=$(cksum < "${BASH_SOURCE[0]}")
[ "$(cat "$directory/.adjusted" 2>/dev/null)" = "$version" ] && exit 0

fail() { echo "mimalloc.sh: $1" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$(dirname "${BASH_SOURCE[0]}")/debian_source.sh" mimalloc "$work/mimalloc"
source=$work/mimalloc

adjust() { # FILE SED-EXPRESSION: must change the file
  cp "$1" "$1.before"
  sed -i "$2" "$1"
  ! cmp -s "$1" "$1.before" || fail "$1 is not the version this project knows: nothing to adjust"
  rm "$1.before"
}
# Smaller segments: many threads fit into a small heap.
adjust "$source/include/mimalloc-types.h" \
  's/^\(#define MI_SEGMENT_SHIFT *( *\)9 \(+ MI_SEGMENT_SLICE_SHIFT\)/\16 \2/'
# A bound: posix_memalign with sizes 256 to 1024 gave misaligned blocks in 2.0.9.
adjust "$source/src/alloc-aligned.c" \
  '/_mi_is_power_of_two(size) && size >= alignment/,+6s/size <= MI_SMALL_SIZE_MAX/size <= MI_MAX_ALIGN_GUARANTEE/'
# Blocks of a fresh page are threaded 16 KiB at a time: unlike mimalloc's 4 KiB this would have the
# system commit more memory, and here all of it is committed.
adjust "$source/src/page.c" 's/^\(#define MI_MAX_EXTEND_SIZE *\)(4\*1024)/\1(16*1024)/'
# A thread gets the block next that it freed last: one block taken and freed again and again never
# leaves the fast path. Then a page's free blocks are not all zero any more, unless it has only
# one block.
adjust "$source/src/alloc.c" '/^void mi_free(void\* p)/,/^}/s/page->local_free/page->free/g'
adjust "$source/src/page.c" \
  's/^\( *page->is_zero = page->is_zero_init\);/\1 \&\& page->reserved == 1;/'
# An empty page that is kept as the only one of its size stays without a call that finds its queue,
# as when one block is taken and freed again and again. The page's mark of that is cleared when it
# leaves its queue, or another page goes before it.
adjust "$source/src/alloc.c" \
  '/^void mi_free(void\* p)/,/^}/s/^ *_mi_page_retire(page);/        if (!bp_page_stays(page)) &/'
adjust "$source/src/page.c" 's/^\( *page->retire_expire = \)1 + (.*;/\1bp_retire_cycles(page);/'
adjust "$source/src/page-queue.c" '/^static void mi_page_queue_\(remove\|enqueue_from\)(/,/^}/'\
's/^  mi_heap_t\* heap = .*/&\n  page->retire_expire = 0;/'
adjust "$source/src/page-queue.c" '/^static void mi_page_queue_push(/,/^}/'\
's/^    queue->first->prev = page;/&\n    queue->first->retire_expire = 0;/'
# A collection looks once at each segment that ended threads left, not at the same ones thousands of
# times (and at one more, which may come meanwhile); a thread that ends looks at eight, as one that
# needs a segment does.
adjust "$source/src/segment.c" \
  's/^ *int max_tries = (force ? 16\*1024 : 1024);.*/  long max_tries = 1 +'\
' (long)(mi_atomic_load_relaxed(\&abandoned_count) +'\
' mi_atomic_load_relaxed(\&abandoned_visited_count));\n'\
'  if (!force \&\& max_tries > 8) max_tries = 8;/'
# Pages of small blocks may have four times mimalloc's size (confined_mimalloc.cc).
adjust "$source/src/heap.c" 's/^\( *#define MI_MAX_BLOCKS *(\)MI_SMALL_PAGE_SIZE/\14*MI_SMALL_PAGE_SIZE/'
# free asks for the identity that alloc/thread_heaps can take away.
adjust "$source/src/alloc.c" \
  's/^\( *const bool *is_local *= (\)_mi_thread_id()/\1bp_heap_identity()/'
# A page that is given up is no longer charged to its owner (alloc/heap_owner).
adjust "$source/src/segment.c" \
  '/^static mi_slice_t\* mi_segment_page_clear/,/^}/s/^  size_t inuse = /  bp_page_given_back(page);\n&/'

rm -rf "$directory"
mkdir -p "$(dirname "$directory")"
cp -r "$source" "$directory"
echo "$version" > "$directory/.adjusted"
