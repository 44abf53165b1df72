/* Services in C: code on the shards of an appliance (docs/services.md; the C++ interface behind it
 * is apps/boot/service.h, whose rules hold here).
 *
 *     int main(int count, char** words) {
 *       static struct store store;
 *       const bp_service service = {.name = "store", .self = &store, .plan = plan, ...};
 *       return bp_main(count, words, &service, 1);
 *     }
 *
 * A service runs where the configuration has its table, [NAME]. Functions that return int return 0,
 * or -1 after bp_fail or a function of Bedplate that failed: that ends the boot, with the error in
 * the log. C99. */
#ifndef BEDPLATE_SERVICE_H
#define BEDPLATE_SERVICE_H

#include "bedplate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bedplate's version, here alone: `make install`, packages and --version have it of these lines.
 * BP_VERSION is 0xMMmmpp. A program that was compiled with another major version than the archive
 * is refused by bp_main. */
#define BP_VERSION_MAJOR 0
#define BP_VERSION_MINOR 1
#define BP_VERSION_PATCH 0
#define BP_VERSION (BP_VERSION_MAJOR * 0x10000u + BP_VERSION_MINOR * 0x100u + BP_VERSION_PATCH)

typedef struct bp_table bp_table;     /* a table of the configuration, while it is described */
typedef struct bp_plan bp_plan;       /* what a service says that it needs */
typedef struct bp_context bp_context; /* what it gets; lives as long as the appliance */
typedef struct bp_loop bp_loop;       /* the event loop of a shard */
typedef struct bp_counter bp_counter;
typedef struct bp_histogram bp_histogram;
typedef struct bp_stream bp_stream;   /* a connected socket */

/* Any function may be NULL: then there is nothing to do. In the order in which they are called; on
 * the main thread, where nothing else is said. */
typedef struct bp_service {
  const char* name; /* of a-z, 0-9 and -: its table, its counters, "heap:NAME" */
  void* self;       /* for all functions */
  void (*describe)(void* self, bp_table* table);
  int (*plan)(void* self, bp_plan* plan); /* the same each time that it is asked */
  int (*create)(void* self, bp_context* context);
  void (*start)(void* self, unsigned shard); /* on the thread of each shard */
  /* Finish what was begun, take nothing new, then call bp_drained. On the thread of each shard, where
   * bp_listen takes no more connections. Without it there is nothing to finish. */
  void (*drain)(void* self, unsigned shard);
} bp_service;

/* Runs what the command line says (run, plan, check, keys, counters, doctor, stats, perf; as the first
 * process of an image, the machine), with these services. Returns the exit code. */
#define bp_main(count, words, services, service_count) \
  bp_main_of(BP_VERSION, sizeof(bp_service), count, words, services, service_count)
int bp_main_of(unsigned version, size_t service_bytes, int count, char** words,
               const bp_service* services, size_t service_count);

/* What bp_error_text says from now on: what was being done, what the answer was, what to do about
 * it. Returns -1. */
int bp_fail(const char* doing, const char* answer, const char* cure);

/* ---- Its table. What `value` points at holds the default, and has what the file says from plan on;
 * `help` is a sentence. ---- */

void bp_table_integer(bp_table* table, const char* key, uint64_t* value, uint64_t min,
                      uint64_t max, const char* help);
/* Bytes: "64 MiB". */
void bp_table_size(bp_table* table, const char* key, uint64_t* value, uint64_t min, uint64_t max,
                   const char* help);
void bp_table_boolean(bp_table* table, const char* key, int* value, const char* help);
/* Text of at most `bytes_max`; the text that *value points at then is Bedplate's. */
void bp_table_text(bp_table* table, const char* key, const char** value, size_t bytes_max,
                   const char* help);
/* A shard by its name; *value becomes its number. Without the key: the first. */
void bp_table_shard(bp_table* table, const char* key, unsigned* value, const char* help);
/* Addresses, which bp_listen listens at; the key must be there. */
void bp_table_listen(bp_table* table, const char* key, const char* help);

/* ---- Its plan. Of what makes no sense the boot is refused, with the service's name ---- */

unsigned bp_plan_shard_count(const bp_plan* plan);
/* A segment called `owner`, "NAME" or "WHAT:NAME", on the node of `shard`; a multiple of 64 bytes.
 * For bp_carve. */
void bp_plan_memory(bp_plan* plan, const char* owner, size_t bytes, unsigned shard);
/* How much heap memory it will want beside that of others. */
void bp_plan_heap(bp_plan* plan, size_t bytes);
/* Connections at once; the key of its table that says so. */
void bp_plan_connections(bp_plan* plan, unsigned shard, unsigned count, const char* key);
/* Timers that may be armed at once, and poll sources. */
void bp_plan_timers(bp_plan* plan, unsigned shard, unsigned count);
void bp_plan_sources(bp_plan* plan, unsigned shard, unsigned count);
/* It exchanges messages on `shard`: bp_shard_member. */
void bp_plan_messages(bp_plan* plan, unsigned shard);
/* It handles a message that others know as "NAME.name": bp_message_number. */
void bp_plan_message(bp_plan* plan, const char* name);
/* A counter, in `stats`: its unit ("requests", "bytes") and a sentence. A gauge goes up and down. */
void bp_plan_counter(bp_plan* plan, const char* name, const char* unit, const char* help);
void bp_plan_gauge(bp_plan* plan, const char* name, const char* unit, const char* help);
/* A histogram, of latencies ("ns") and the like: every value up to 2^40 is known to a sixteenth. It
 * takes 5 KiB of the counters file. */
void bp_plan_histogram(bp_plan* plan, const char* name, const char* unit, const char* help);

/* ---- What it gets, in create ---- */

/* The memory that was planned as `owner`, once, zeroed; its size goes to *bytes (may be NULL).
 * Errors: NULL; bp_error_text. */
void* bp_carve(bp_context* context, const char* owner, size_t* bytes);
/* Requires: it is planned. One thread writes to it. */
bp_counter* bp_counter_of(bp_context* context, const char* name);
void bp_counter_add(bp_counter* counter, uint64_t amount);
void bp_counter_set(bp_counter* counter, uint64_t value);
/* Requires: it is planned, as a histogram. One thread writes to it: 2 ns for each value. */
bp_histogram* bp_histogram_of(bp_context* context, const char* name);
void bp_histogram_add(bp_histogram* histogram, uint64_t value);

/* Calls `poll` in each turn of the shard's loop; it handles at most about `budget` items and returns
 * how many. */
int bp_add_source(bp_context* context, unsigned shard,
                  unsigned (*poll)(void* self, unsigned budget), void* self, unsigned budget);

/* Takes connections at the addresses of `key`, on `shard`, from the start to the drain: `accepted`
 * is called with each, which is the service's to open as a stream, or to close. Errors: -1: its
 * table has no addresses of this key (bp_table_listen). */
int bp_listen(bp_context* context, const char* key, unsigned shard,
              void (*accepted)(void* self, int fd), void* self);
/* A stream on `shard`, not open yet, for the life of the appliance. Errors: NULL. */
bp_stream* bp_stream_create(bp_context* context, unsigned shard);

/* The member that exchanges messages on `shard`, with the functions of bedplate.h. The loop polls
 * it: bp_poll and bp_wait are not for it. Errors: NULL: none is planned there. */
bp_member* bp_shard_member(bp_context* context, unsigned shard);
/* The number of its own message `name`, for bp_set_handler. Errors: -1. */
int bp_message_number(bp_context* context, const char* name);

/* The drain is complete. Threads: any. */
void bp_drained(bp_context* context);

/* ---- On the shard's thread ---- */

bp_loop* bp_loop_of(bp_context* context, unsigned shard);
/* The time of this turn of the loop, of a clock that only goes forward. */
uint64_t bp_loop_now_ns(const bp_loop* loop);

/* The caller's, zeroed but for what follows `reserved`. */
typedef struct bp_timer {
  uint64_t reserved[4];
  void (*expired)(void* context);
  void* context;
} bp_timer;
/* Calls `expired` once, in `after_ns`; moves it where it is armed. Requires: it is planned. */
void bp_timer_arm(bp_loop* loop, bp_timer* timer, uint64_t after_ns);
void bp_timer_cancel(bp_loop* loop, bp_timer* timer);

/* The caller's; it stays where it is, with the same function and context, until it was called. */
typedef struct bp_call {
  void (*function)(void* context);
  void* context;
  uint64_t reserved[2]; /* zeroed */
} bp_call;
/* Has `function` called on the loop's thread, soon; once, where it is pending already. Neither
 * allocates nor locks. Threads: any. */
void bp_post(bp_loop* loop, bp_call* call);

/* Takes over the connection `fd`. Returns 0 or an errno value; then `fd` stays the caller's. */
int bp_stream_open(bp_stream* stream, int fd);
/* Closes it. Requires: nothing of it is in flight. */
void bp_stream_close(bp_stream* stream);
/* Whatever is in flight ends soon. */
void bp_stream_abort(bp_stream* stream);
/* One receive and one send may be in flight. `done` is called with how many bytes moved: of a
 * receive `min` at least, 0 where the peer has closed, of a send all; or with -errno. Never from
 * within the call. Until then the memory stays. */
void bp_stream_receive(bp_stream* stream, void* into, size_t bytes, size_t min,
                       void (*done)(void* context, int64_t result), void* context);
void bp_stream_send(bp_stream* stream, const void* from, size_t bytes,
                    void (*done)(void* context, int64_t result), void* context);

#ifdef __cplusplus
}
#endif

#endif
