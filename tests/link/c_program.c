/* Uses the pool through the C interface, and prints whose memory malloc and bp_alloc hand out.
 *
 * tests/link/run.py compiles this as strict C99 and links it as docs/allocator.md says. */
#include "apps/c_interface/bedplate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* owner_of(const void* block, size_t bytes) {
  if (block == NULL) return "nothing";
  return bp_contains(block, bytes) ? "pool" : "own";
}

/* A block grows, keeps its content, and is freed. Returns "pool", or what failed. */
static const char* use_explicit_blocks(void) {
  char* text = bp_alloc(6);
  void* aligned = bp_alloc_aligned(4096, 100);
  const char* owner;
  if (text == NULL || aligned == NULL || !bp_contains(aligned, 100)) return "no block";
  memcpy(text, "anvil", 6);
  text = bp_realloc(text, 1000000);
  if (text == NULL || strcmp(text, "anvil") != 0) return "content lost";
  if (bp_usable_bytes(text) < 1000000) return "too small";
  owner = owner_of(text, 1000000);
  bp_free(text);
  bp_free(aligned);
  errno = 0;
  if (bp_alloc((size_t)1 << 40) != NULL || errno != ENOMEM) return "not refused";
  return owner;
}

/* The audit's findings in the pool's memory, or "ok". */
static const char* audit(void) {
  static char text[512];
  bp_audit(text, sizeof text);
  return text;
}

int main(void) {
  char* volatile block = malloc(1000);
  printf("malloc: %s\n", owner_of(block, 1000));
  free(block);
  printf("explicit: %s\n", use_explicit_blocks());
  block = malloc(5000000);
  printf("malloc beside it: %s\n", owner_of(block, 5000000));
  free(block);
  printf("audit: %s\n", audit());
  printf("level: %s\n", bp_support_level_text(bp_support_level()));
  return 0;
}
