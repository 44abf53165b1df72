/* Shared code of the programs that message_bench.py measures: arguments, two pinned processes, a
 * payload that is really written and read, the measuring loops, one line of JSON.
 *
 *     NAME KIND BYTES ITERATIONS [VARIANT]
 *
 * Side 0 runs on core 0, measures and prints; side 1 runs on core 1. A figure is nanoseconds per
 * operation (one direction, one message, one item, one put): the median, the minimum and the 90th
 * percentile of kBatches batches, since an interrupted batch is meaningless. Nothing here
 * sleeps or makes a system call while it measures, except to read the clock once per batch.
 */
#pragma once

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define ON_OWN_LINE __attribute__((aligned(64)))

enum { kBatches = 50, kWarmupBatches = 10, kBlobMaxBytes = 1024, kConnections = 16 };

/* Shared by both processes. */
struct control {
  ON_OWN_LINE uint64_t arrived[2];
  ON_OWN_LINE char blobs[2][kBlobMaxBytes];
};

struct run {
  const char *program, *kind, *variant; /* variant: "" unless the program knows several */
  size_t bytes;                         /* of a message; of lanes: items in a burst */
  size_t words;                         /* of the payload, written and read for each message */
  uint64_t batch;                       /* operations in one */
  int side;
  uint64_t sum; /* of all words read */
  struct control *control;
};

__attribute__((noreturn)) static inline void fail(const char *doing, const char *answer) {
  fprintf(stderr, "%s: %s\n", doing, answer);
  _exit(1);
}

static inline int is_kind(const struct run *run, const char *kind) {
  return strcmp(run->kind, kind) == 0;
}

/* Called for kinds that a program does not measure. */
__attribute__((noreturn)) static inline void unknown_kind(const struct run *run) {
  fprintf(stderr, "%s: cannot measure %s %s\n", run->program, run->kind, run->variant);
  _exit(2);
}

static inline struct run parse_arguments(int argc, char **argv) {
  struct run run;
  if (argc < 4) {
    fprintf(stderr, "usage: %s KIND BYTES ITERATIONS [VARIANT]\n", argv[0]);
    exit(2);
  }
  memset(&run, 0, sizeof run);
  run.program = argv[0];
  run.kind = argv[1];
  run.bytes = strtoull(argv[2], NULL, 10);
  run.batch = strtoull(argv[3], NULL, 10) / kBatches;
  run.variant = argc > 4 ? argv[4] : "";
  run.words = run.bytes / sizeof(uint64_t);
  /* The cost of the copy is measured, not that of reading: one word proves that it arrived. */
  if (is_kind(&run, "cma") || is_kind(&run, "bandwidth") || is_kind(&run, "lane") ||
      is_kind(&run, "put_copied") || is_kind(&run, "put_asleep")) {
    run.words = 1;
  }
  if (run.batch == 0) fail("reading the arguments", "fewer iterations than batches");
  return run;
}

/* Pins this process to its side's core; it ends when its parent ends. */
static inline void become_side(struct run *run, int side) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET((size_t)side, &cpus);
  run->side = side;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) {
    fail("pinning to cores 0 and 1", "sched_setaffinity refused; allow both in the cpuset");
  }
}

static inline void *shared_memory(size_t bytes) {
  void *at =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (at == MAP_FAILED) fail("mapping shared memory", "mmap refused; free memory");
  return at;
}

/* Private memory, touched. */
static inline uint64_t *private_memory(size_t bytes) {
  void *at = NULL;
  if (posix_memalign(&at, 4096, bytes + 4096) != 0) fail("allocating a buffer", "no memory");
  memset(at, 0, bytes + 4096);
  return (uint64_t *)at;
}

static inline void end_with_child(int number) {
  static const char kText[] = "the second process ended early\n";
  int status = 0;
  (void)number;
  if (waitpid(-1, &status, WNOHANG) > 0 && status != 0) {
    _exit(write(STDERR_FILENO, kText, sizeof kText - 1) > 0 ? 1 : 2);
  }
}

/* Forks into side 0, the parent, and side 1. Called before any library is initialised. */
static inline struct run start_pair(int argc, char **argv) {
  struct run run = parse_arguments(argc, argv);
  pid_t child;
  run.control = (struct control *)shared_memory(sizeof *run.control);
  signal(SIGCHLD, end_with_child);
  child = fork();
  if (child < 0) fail("starting the second process", "fork refused");
  become_side(&run, child == 0);
  return run;
}

static inline void arrive(struct run *run) {
  __atomic_fetch_add(&run->control->arrived[run->side], 1, __ATOMIC_RELEASE);
}

static inline int has_other_arrived(struct run *run) {
  return __atomic_load_n(&run->control->arrived[!run->side], __ATOMIC_ACQUIRE) >=
         run->control->arrived[run->side];
}

static inline void meet(struct run *run) {
  arrive(run);
  while (!has_other_arrived(run)) {
  }
}

/* The same, but the core is free meanwhile. */
static inline void meet_asleep(struct run *run) {
  const struct timespec pause = {0, 1000000};
  arrive(run);
  while (!has_other_arrived(run)) nanosleep(&pause, NULL);
}

/* The end of main: neither side exits while the other still needs its memory. Side 0 waits for side
 * 1 and returns its exit status. */
static inline int finish(struct run *run) {
  int status = 0;
  meet(run);
  if (run->side == 1) return 0;
  signal(SIGCHLD, SIG_DFL);
  return waitpid(-1, &status, 0) > 0 && status != 0; /* none left: end_with_child saw it end well */
}

/* Each side sends a blob and receives the other's. */
static inline void exchange(struct run *run, const void *mine, void *theirs, size_t bytes) {
  if (bytes > kBlobMaxBytes) fail("exchanging addresses", "they are longer than expected");
  memcpy(run->control->blobs[run->side], mine, bytes);
  meet(run);
  memcpy(theirs, run->control->blobs[!run->side], bytes);
  meet(run);
}

/* Two words in one store: waiting stores limit the lines that a far core transfers at once. */
typedef uint64_t word_pair __attribute__((vector_size(16)));

ALWAYS_INLINE void write_words(void *to, size_t words, uint64_t number) {
  word_pair pair = {number, number + 1};
  size_t i = 0;
  for (; i + 2 <= words; i += 2, pair += 2) {
    memcpy((char *)to + i * sizeof number, &pair, sizeof pair);
  }
  if (i < words) memcpy((char *)to + i * sizeof number, &pair, sizeof number);
}

ALWAYS_INLINE void read_words(struct run *run, const void *from) {
  uint64_t sum = 0;
  for (size_t i = 0; i < run->words; ++i) {
    uint64_t word;
    memcpy(&word, (const char *)from + i * sizeof word, sizeof word);
    sum += word;
  }
  run->sum += sum;
}

static inline uint64_t total_operations(const struct run *run) {
  return run->batch * (kBatches + kWarmupBatches);
}

/* Stops unless messages 1 to `total_operations` were each read exactly once. */
static inline void check_sum(const struct run *run) {
  const uint64_t n = total_operations(run), words = run->words;
  const uint64_t wanted = words * (n * (n + 1) / 2) + n * (words * (words - 1) / 2);
  if (run->sum != wanted) fail("checking what was received", "it is not what was sent");
}

/* The same for puts, of which only the last remains. */
static inline void check_last_put(const struct run *run, const void *at) {
  const uint64_t *number = (const uint64_t *)at;
  if (*number != total_operations(run)) fail("checking the last put", "it is missing");
}

static inline double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline int is_before(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static inline void print_figure(double *ns) {
  qsort(ns, kBatches, sizeof *ns, is_before);
  printf("{\"ns\": %.3f, \"ns_min\": %.3f, \"ns_p90\": %.3f}\n", ns[kBatches / 2], ns[0],
         ns[kBatches * 9 / 10]);
  fflush(stdout);
}

typedef void (*message_function)(struct run *run, uint64_t number);

/* latency, read_large, cma: one message there, one back; half of the round trip is the figure. */
ALWAYS_INLINE void ping_pong(struct run *run, message_function send, message_function receive) {
  double ns[kBatches];
  uint64_t number = 0;
  for (int batch = -kWarmupBatches; batch < kBatches; ++batch) {
    const double began = now_ns();
    for (const uint64_t end = number + run->batch; number < end;) {
      ++number;
      if (run->side == 0) send(run, number);
      receive(run, number);
      if (run->side == 1) send(run, number);
    }
    if (batch >= 0) ns[batch] = (now_ns() - began) / (double)run->batch / 2;
  }
  check_sum(run);
  if (run->side == 0) print_figure(ns);
}

/* bandwidth, put_copied: side 0 puts, side 1 has nothing to do; put_asleep: side 1 sleeps. flush
 * makes all puts visible to side 1. */
ALWAYS_INLINE void put_stream(struct run *run, message_function put, void (*flush)(void)) {
  double ns[kBatches];
  uint64_t number = 0;
  for (int batch = -kWarmupBatches; batch < kBatches; ++batch) {
    const double began = now_ns();
    for (const uint64_t end = number + run->batch; number < end;) put(run, ++number);
    flush();
    if (batch >= 0) ns[batch] = (now_ns() - began) / (double)run->batch;
  }
  print_figure(ns);
}

/* rate16, lane: offer sends up to `count` messages, beginning with `first`; returns the number. */
ALWAYS_INLINE void send_stream(struct run *run,
                               uint64_t (*offer)(struct run *run, uint64_t first, uint64_t count)) {
  const uint64_t total = total_operations(run);
  for (uint64_t sent = 0; sent < total;) sent += offer(run, sent + 1, total - sent);
}

/* The other end, side 0: poll handles the available messages and returns their number. */
ALWAYS_INLINE void receive_stream(struct run *run, uint64_t (*poll)(struct run *run)) {
  double ns[kBatches];
  uint64_t received = 0, until = 0;
  for (int batch = -kWarmupBatches; batch < kBatches; ++batch) {
    const uint64_t before = received;
    const double began = now_ns();
    /* A burst may extend into the next batch, but not fill it. */
    for (until += run->batch; received < until;) received += poll(run);
    if (batch >= 0) ns[batch] = (now_ns() - began) / (double)(received - before);
  }
  check_sum(run);
  print_figure(ns);
}
