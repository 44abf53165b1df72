/* Bedplate's heap for programs in C: memory in the pinned pool, without replacing malloc.
 *
 * Link libbedplate.a and the C++ runtime (g++ does). A program that also links libbedplate-malloc.a
 * has the same heap behind malloc, and may free a block through either. C99. All functions but
 * bp_support_level may be called from any thread. */
#ifndef BEDPLATE_H
#define BEDPLATE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A block of at least `bytes`, aligned as malloc's, not zeroed; 0 bytes give a block of its own.
 * Ownership: the caller's, until bp_free. Errors: NULL and errno ENOMEM. */
void* bp_alloc(size_t bytes);

/* The same, aligned to `alignment`. Errors: NULL and errno EINVAL when it is no power of two,
 * ENOMEM when the heap is exhausted. */
void* bp_alloc_aligned(size_t alignment, size_t bytes);

/* Grows or shrinks `block` (NULL: allocates), which may move; 0 bytes do not free it. Alignment
 * beyond malloc's is not kept. Errors: NULL and errno ENOMEM; `block` is then as before. */
void* bp_realloc(void* block, size_t bytes);

/* Gives `block` back; NULL is allowed. errno stays as it was. */
void bp_free(void* block);

/* How many bytes of `block` may be used, at least what was asked for; 0 for NULL. */
size_t bp_usable_bytes(const void* block);

/* What holds for this process's malloc, as a set of these bits; 0: malloc is not the pool's, only
 * blocks of bp_alloc and its kin are. docs/allocator.md says how each is proved. */
#define BP_SUPPORT_FREE 1u   /* every way to allocate hands out pool memory, every free arrives */
#define BP_SUPPORT_CHUNK 2u  /* the pages of what is freed whole stay where they are */
#define BP_SUPPORT_MUNMAP 4u /* munmap of pool memory is refused */

/* Proves the level by trying: takes and frees 4 MB through each way to allocate, and tries munmap
 * where the pool is sealed. Creates the heap if there is none.
 * Threads: the exception to the rule above: no other may allocate meanwhile. */
unsigned bp_support_level(void);

/* "FREE CHUNK MUNMAP", those that `level` has; "none" for 0. Static text. */
const char* bp_support_level_text(unsigned level);

/* 1 when [pointer, pointer + bytes) lies wholly inside one segment of the pool, else 0. */
int bp_contains(const void* pointer, size_t bytes);

/* Compares what the kernel has mapped in the pool's range with the pool: 1 when all is as it was
 * made, 0 when not, -1 when the maps cannot be read. `text` (NULL with 0 bytes: none is wanted)
 * gets "ok", or what is wrong with its owner, or why the maps cannot be read; always terminated.
 * Needs no memory of the heap. Cost: a read of /proc/self/smaps, milliseconds. */
int bp_audit(char* text, size_t text_bytes);

/* An owner of heap memory: for whom a thread allocates. 0 is who names nobody. */
typedef unsigned bp_owner;

/* The owner called `name` ("heap:cache"), which is new if nobody asked for it before. At most
 * `limit_bytes` of the heap are given to it, counted in what the heap takes for it (64 KiB and more
 * at a time); 0: no limit. Errors: 0 and errno ENOSPC when there are too many owners. */
bp_owner bp_owner_create(const char* name, size_t limit_bytes);

/* What the calling thread allocates is from now on for `owner`. Returns whom it was for. */
bp_owner bp_owner_enter(bp_owner owner);

/* How much of the heap `owner` has. */
size_t bp_owner_used_bytes(bp_owner owner);

/* Calls `function(context)` when less than `free_bytes` of the heap are free: once, until there was
 * more again, and for each request that could not be met otherwise; what it frees may save that
 * request. It runs within somebody's malloc, in any thread: it may free and allocate, and must not
 * wait for other threads. NULL: nobody is called any more. Call it before there are other
 * threads. */
void bp_on_low_memory(size_t free_bytes, void (*function)(void* context), void* context);

#ifdef __cplusplus
}
#endif

#endif
