/* The yardstick of the boot benchmark: takes hugepages, lets the kernel zero them, prints `ready`.
 *
 *     bare_zero BYTES THREADS
 *
 * Each thread faults its part in with one call. The kernel zeroes a page when it hands it out, so
 * no further work is needed: a memset would zero it twice. The memory is private, the cheapest
 * kind: a program that shares its pages has more to do.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kThreadsMax = 256, kHugepageBytes = 2 << 20 };

static size_t part_bytes;

static void *take(void *part) {
  if (madvise(part, part_bytes, MADV_POPULATE_WRITE) == 0) return NULL;
  for (size_t i = 0; i < part_bytes; i += kHugepageBytes) ((volatile char *)part)[i] = 0;
  return NULL;
}

int main(int argc, char **argv) {
  const size_t bytes = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
  const size_t threads = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
  if (threads == 0 || threads > kThreadsMax || bytes % (threads * kHugepageBytes) != 0) {
    fprintf(stderr, "usage: bare_zero BYTES THREADS; BYTES a multiple of THREADS x 2 MiB\n");
    return 2;
  }
  part_bytes = bytes / threads;
  char *memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
  if (memory == MAP_FAILED) return perror("bare_zero: mmap of hugepages"), 1;
  pthread_t helpers[kThreadsMax];
  for (size_t i = 1; i < threads; ++i) {
    if (pthread_create(&helpers[i], NULL, take, memory + i * part_bytes) != 0) return 1;
  }
  take(memory);
  for (size_t i = 1; i < threads; ++i) pthread_join(helpers[i], NULL);
  return write(STDOUT_FILENO, "ready\n", 6) == 6 ? 0 : 1;
}
