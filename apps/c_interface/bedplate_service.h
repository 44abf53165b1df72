/* Services in C: code on the shards of an appliance (docs/services.md; the C++ interface behind it
 * is apps/services/service.h, whose rules hold here).
 *
 *     int main(int count, char** words) {
 *       static struct store store;
 *       const bp_service service = {.name = "store", .self = &store, .plan = plan, ...};
 *       return bp_main(count, words, &service, 1);
 *     }
 *
 * A service runs if the configuration has its table, [NAME]. Its functions of type int return 0, or
 * -1 after bp_fail or a failed function of Bedplate: -1 ends the boot, with the error in the log.
 *
 * After "Errors: -1" or "NULL", bp_error_text has the reason. Texts and names in arguments are
 * copied, except those of bp_service. Pointers may be NULL only if the comment says so. Callbacks
 * on a shard must not block: they would stop the whole shard. C99. */
#ifndef BEDPLATE_SERVICE_H
#define BEDPLATE_SERVICE_H

#include "bedplate.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bp_table bp_table; /* a table of the configuration, while it is described */
typedef struct bp_read_table bp_read_table; /* the same table after it was read */
typedef struct bp_plan bp_plan;             /* the plan of a service: all that it needs */
typedef struct bp_context bp_context; /* the context of a service; lives as long as the appliance */
typedef struct bp_loop bp_loop;       /* the event loop of a shard */
typedef struct bp_counter bp_counter;
typedef struct bp_histogram bp_histogram;
typedef struct bp_stream bp_stream;             /* a connected socket */
typedef struct bp_problems bp_problems;         /* what preflight finds */
typedef struct bp_methods bp_methods;           /* the table that a service adds its methods to */
typedef struct bp_control_call bp_control_call; /* one request of the control socket */
typedef struct bp_json bp_json;                 /* writes its answer */

/* A service and its functions; service.h has the order of their calls. They are called on the main
 * thread unless another is named. Each function may be NULL: then the service has no such step.
 * Everything the struct points to outlives bp_main. Name the members that you set: more may
 * come. */
typedef struct bp_service {
  const char* name; /* 1 to 32 of a-z, 0-9 and -: its table, its counters, "heap:NAME" */
  void* self;       /* passed to all functions */
  void (*describe)(void* self, bp_table* table);
  int (*plan)(void* self, bp_plan* plan); /* the same at each call */
  int (*create)(void* self, bp_context* context);
  void (*start)(void* self, unsigned shard); /* on the thread of each shard, before its loop runs */
  /* Finish all that has begun, and take nothing new. Called on the thread of each shard; bp_listen
   * has stopped listening there. The service calls bp_drained once all its shards have finished.
   * NULL: there is nothing to finish. */
  void (*drain)(void* self, unsigned shard);
  /* Called after create, and also to print the methods while nothing runs. */
  void (*methods)(void* self, bp_methods* methods);
  /* 0: it has one table, [NAME]. Else up to this many [[NAME]]: describe is called for each in the
   * file, in order. */
  unsigned table_count_max;
  /* After plan, also for `check`: tells what this machine lacks, by bp_problem. Takes nothing. */
  void (*preflight)(void* self, bp_problems* problems);
  /* All memory is taken, and no other thread runs: the last step with all of root's rights. */
  int (*prepare)(void* self);
  int (*sealed)(void* self); /* after create: nothing of the pool moves any more */
  void (*tick)(void* self);  /* about every half second, while the shards run; it may block a bit */
  /* The shards have stopped, or boot has failed: it ends its own threads. Returns -1 if one hangs
   * and may still use Bedplate's objects. Called once or twice. */
  int (*stopped)(void* self);
  int drains_with_appliance; /* 1: the machine needs it, so it does not drain alone */
} bp_service;

/* Makes the program a product of its own: the lines of its log, its helps, cures, manual pages and
 * unit of systemd speak of `name`, and its appliances are in /run/NAME. `name`, which is also that
 * of the program's file, has 1 to 31 of a-z, 0-9 and -, and begins with a letter. `version` is any
 * text; `summary` describes it in its manual page; both may be NULL. Without this call, or
 * with NULL as `name`, the program is Bedplate. Call it before bp_main, which all three outlive. */
void bp_set_product(const char* name, const char* version, const char* summary);
/* Adds a problem to the report: what was being done, the answer, the cure. */
void bp_problem(bp_problems* problems, const char* doing, const char* answer, const char* cure);

/* Runs the command of the command line (run, plan, check, keys, counters, doctor, stats, top,
 * trace, ctl, perf) with these services; as the first process of an image, it runs the machine.
 * Returns the exit code: 0 good, 1 boot or run failure, 2 usage or configuration. Call it once in a
 * process.
 *
 * bp_main_of is for languages that do not read this header. It refuses a bp_service of another
 * interface than the archive's (platform/version.h has the numbers), or of another size. */
#define bp_main(count, words, services, service_count) \
  bp_main_of(BP_VERSION, BP_INTERFACE, sizeof(bp_service), count, words, services, service_count)
int bp_main_of(unsigned version, unsigned interface_number, size_t service_bytes, int count,
               char** words, const bp_service* services, size_t service_count);

/* Sets the text of bp_error_text in this thread: what was being done, the answer, the cure. Returns
 * -1. */
int bp_fail(const char* doing, const char* answer, const char* cure);

/* ---- Its table: in describe. `*value` is the service's variable: it outlives bp_main, holds the
 * default, and has the file's value from plan on; `min` and `max` are its limits; `help` is a
 * sentence, in Markdown. ---- */

void bp_table_integer(bp_table* table, const char* key, uint64_t* value, uint64_t min, uint64_t max,
                      const char* help);
/* Bytes: "64 MiB". */
void bp_table_size(bp_table* table, const char* key, uint64_t* value, uint64_t min, uint64_t max,
                   const char* help);
void bp_table_boolean(bp_table* table, const char* key, int* value, const char* help);
/* Text of at most `bytes_max`. Bedplate owns the file's text that *value points to; it is valid as
 * long as the appliance. The functions that follow do the same for a name of a-z, 0-9 and -, a path
 * that begins with /, an IP address and a prefix ("192.0.2.0/24"). */
void bp_table_text(bp_table* table, const char* key, const char** value, size_t bytes_max,
                   const char* help);
void bp_table_name(bp_table* table, const char* key, const char** value, size_t bytes_max,
                   const char* help);
void bp_table_path(bp_table* table, const char* key, const char** value, size_t bytes_max,
                   const char* help);
void bp_table_ip_address(bp_table* table, const char* key, const char** value, const char* help);
void bp_table_ip_prefix(bp_table* table, const char* key, const char** value, const char* help);
/* The address of one socket, for bp_stream_connect. Without the key *value becomes NULL. */
void bp_table_address(bp_table* table, const char* key, const char** value, const char* help);
/* One of `words`; *value becomes its index. */
void bp_table_choice(bp_table* table, const char* key, unsigned* value, const char* const* words,
                     size_t word_count, const char* help);
/* A list of `words` (64 at most), each at most once: bit i of *bits stands for word i. */
void bp_table_flags(bp_table* table, const char* key, uint64_t* bits, const char* const* words,
                    size_t word_count, const char* help);
/* A list of at most `count_max` texts, each at most once. *values has *count of them; both are
 * Bedplate's, like the texts. */
enum { BP_OWNERS, BP_MODULES, BP_IP_ADDRESSES, BP_IP_PREFIXES };
void bp_table_texts(bp_table* table, const char* key, int kind, const char* const** values,
                    size_t* count, size_t count_max, const char* help);
/* A shard by its name; *value becomes its number. Without the key *value stays as it is: set it to
 * 0, the first shard, which the documentation names as the default. */
void bp_table_shard(bp_table* table, const char* key, unsigned* value, const char* help);
/* A list of at most `count_max` shards, each at most once: their numbers are in *shards, which has
 * that many elements, and *count is how many there are. */
void bp_table_shards(bp_table* table, const char* key, unsigned* shards, size_t* count,
                     size_t count_max, const char* help);
/* The shards that the service is placed on: such a list, or the text "all", which is the default.
 * *shards has room for 64; in plan it has their numbers. */
void bp_table_shards_or_all(bp_table* table, const char* key, unsigned* shards, size_t* count,
                            const char* help);
/* 1 to 8 addresses, for bp_listen; the file must have the key. The table also gets a key
 * plain_text: docs/configuration.md. */
void bp_table_listen(bp_table* table, const char* key, const char* help);
/* `check` is called after the table was read; it refuses values that do not go together. Variables
 * have the file's values by then, except those of bp_table_shard. A table has one check. */
void bp_table_check(bp_table* table, void (*check)(void* self, bp_read_table* read));

/* ---- In `check` of bp_table_check ---- */

/* Whether the file has the key. */
int bp_read_has(const bp_read_table* read, const char* key);
/* Whether the value of the key was refused, or the key is missing or misspelt: a check of its value
 * would then blame the wrong line. */
int bp_read_was_refused(const bp_read_table* read, const char* key);
/* Refuses the configuration. The error has the file's name, the line and the column of the value of
 * `key`; without that key, or if `key` is NULL, those of the table. `answer` says what is wrong,
 * `cure` what is expected instead. The check may refuse several values. */
void bp_read_refuse(bp_read_table* read, const char* key, const char* answer, const char* cure);

/* The following change a key that is described already. required: the file must have it. unique: no
 * two tables of [[NAME]], or no two elements of a list, have the same value. otherwise: the
 * documentation has `words` as the default, instead of the variable's value. rule: of a number. */
void bp_table_required(bp_table* table, const char* key);
void bp_table_unique(bp_table* table, const char* key);
void bp_table_otherwise(bp_table* table, const char* key, const char* words);
enum { BP_MULTIPLE_OF_4KIB, BP_MULTIPLE_OF_PAGES, BP_POWER_OF_TWO, BP_ROUNDED_TO_POWER_OF_TWO };
void bp_table_rule(bp_table* table, const char* key, int rule);

/* A table within it, [NAME.inner]: `describe` describes its keys. *is_there (may be NULL) becomes 1
 * if the file has it. Later calls: `self` and `describe` live as long as bp_main. */
void bp_table_table(bp_table* table, const char* name, int* is_there,
                    void (*describe)(void* self, bp_table* table), void* self);
/* Tables within it, [[NAME.inner]], at most `count_max`. `describe` is called for each in the file,
 * with its index; *count becomes how many there are. It is also called to list the keys, with index
 * 0. */
void bp_table_tables(bp_table* table, const char* name, unsigned count_max, unsigned* count,
                     void (*describe)(void* self, unsigned index, bp_table* table), void* self);

/* ---- The methods that it answers while it runs, over the control socket and by `bedplate ctl`
 * (docs/control.md; apps/services/control_methods.h, whose rules hold here): in methods ---- */

enum { BP_TEXT, BP_NUMBER, BP_BOOLEAN };
typedef struct bp_parameter {
  const char* name; /* of a-z, 0-9 and _ */
  int type;         /* BP_TEXT, ... */
  int is_optional;
  const char* help; /* a sentence */
} bp_parameter;
typedef struct bp_method {
  const char* name;               /* of a-z, 0-9, _ and -; clients call it "SERVICE.name" */
  const bp_parameter* parameters; /* 8 at most */
  size_t parameter_count;
  const char* result; /* its answer, for people: "{\"held\": true}" */
  const char* help;   /* its effect: a sentence */
  const char* needs;  /* its precondition, or NULL: "a volume on a store" */
  /* Called on the thread of the control socket, beside the shards: it does a shard's work on that
   * shard, by bp_control_go_on. It does not block, and answers by one JSON value
   * (bp_control_result) or by bp_control_refuse. */
  void (*function)(void* self, bp_control_call* call);
} bp_method;
/* Requires: the service has no method of that name yet. */
void bp_method_add(bp_methods* methods, const bp_method* method);

/* The arguments, already checked: required ones are present, and each has its type. An absent
 * argument is "" or 0. */
int bp_control_has(const bp_control_call* call, const char* parameter);
/* Copies as much as fits into `text`, terminated. Returns the full length, which may be more. */
size_t bp_control_text(const bp_control_call* call, const char* parameter, char* text,
                       size_t text_bytes);
uint64_t bp_control_number(const bp_control_call* call, const char* parameter);
int bp_control_boolean(const bp_control_call* call, const char* parameter);

/* Calls `function` on the loop's thread, after the method has returned; `function` ends the answer.
 * If the loop does not call it within two seconds, the client gets an error. Requires: not called
 * on that thread. */
void bp_control_go_on(bp_control_call* call, bp_loop* loop,
                      void (*function)(void* context, bp_control_call* call), void* context);
/* Refuses the request: what was being done, the answer, the cure. */
void bp_control_refuse(bp_control_call* call, const char* doing, const char* answer,
                       const char* cure);
/* An answer over 16 KiB is sent in pages: after bp_control_more(call, page) the method is called
 * again, and bp_control_page returns that page. The first page is 0. */
uint64_t bp_control_page(const bp_control_call* call);
void bp_control_more(bp_control_call* call, uint64_t page);
/* The answer, to be written. In an object each value follows its key; commas are added. */
bp_json* bp_control_result(bp_control_call* call);
void bp_json_begin_object(bp_json* json);
void bp_json_end_object(bp_json* json);
void bp_json_begin_array(bp_json* json);
void bp_json_end_array(bp_json* json);
void bp_json_key(bp_json* json, const char* key);
void bp_json_text(bp_json* json, const char* text);
void bp_json_number(bp_json* json, uint64_t number);
void bp_json_boolean(bp_json* json, int value);
void bp_json_null(bp_json* json);
/* A value that is JSON already. */
void bp_json_raw(bp_json* json, const char* value);

/* ---- Its plan: in plan. A plan that makes no sense ends the boot, with an error that names the
 * service. Shards are numbered from 0, in the order of [[shard]]; several calls for one shard add
 * up ---- */

/* How many shards there are. */
unsigned bp_plan_shard_count(const bp_plan* plan);
/* A segment called `owner`, "NAME" or "WHAT:NAME", on the node of `shard`; a multiple of 64 bytes.
 * bp_carve hands it out. */
void bp_plan_memory(bp_plan* plan, const char* owner, size_t bytes, unsigned shard);
/* Heap memory that it takes before it serves, added to that of others. */
void bp_plan_heap(bp_plan* plan, size_t bytes);
/* Heap memory that it takes while it serves, on `thread_count` threads. It is kept for this service
 * alone, however full the heap is. Each thread costs at least 4 MiB. */
void bp_plan_kept_heap(bp_plan* plan, size_t bytes, unsigned thread_count);
/* The most connections that are open at once. `key` of its table sets the number; NULL: no key
 * does. */
void bp_plan_connections(bp_plan* plan, unsigned shard, unsigned count, const char* key);
/* Other descriptors that it has open at once; `key` as above. */
void bp_plan_descriptors(bp_plan* plan, unsigned count, const char* key);
/* How many threads it starts by bp_thread_start. */
void bp_plan_threads(bp_plan* plan, unsigned count);
/* The most timers that are armed at once, and the number of poll sources. */
void bp_plan_timers(bp_plan* plan, unsigned shard, unsigned count);
void bp_plan_sources(bp_plan* plan, unsigned shard, unsigned count);
/* The most descriptors that are watched (bp_watch_start) and connections in progress
 * (bp_stream_connect) at once, together. */
void bp_plan_watches(bp_plan* plan, unsigned shard, unsigned count);
/* The most questions that are asked on `shard`, of any shard, and not answered yet (bp_ask). */
void bp_plan_questions(bp_plan* plan, unsigned shard, unsigned count);
/* The service exchanges messages on `shard`: bp_shard_member. */
void bp_plan_messages(bp_plan* plan, unsigned shard);
/* The service handles a message that others know as "NAME.name", 47 bytes at most:
 * bp_message_number. */
void bp_plan_message(bp_plan* plan, const char* name);
/* A capability (CAP_NET_ADMIN, ...) that it needs from create on; others are dropped if the
 * appliance gives up root. Requires: 0..63. */
void bp_plan_capability(bp_plan* plan, int number);
/* A kernel module that it needs, and a file that it reads, by its path from the root: an image
 * contains them. */
void bp_plan_module(bp_plan* plan, const char* name);
void bp_plan_image_file(bp_plan* plan, const char* path);
/* It traces its requests (bp_trace_of; docs/trace.md). `kinds` are the names of the kinds 0, 1,
 * ...: "get|set"; `stations` those of 2 to 9 stations in the order of passing: "received|sent";
 * `subjects` those of what requests are about, may be NULL. Call it once. */
void bp_plan_trace(bp_plan* plan, const char* kinds, const char* stations,
                   const char* const* subjects, size_t subject_count);
/* A counter, in `stats`: its name (1 to 47 of a-z, 0-9 and _), its unit ("requests", "bytes"; 15
 * bytes at most), a sentence (159). A gauge goes up and down, a boolean is 0 or 1. */
void bp_plan_counter(bp_plan* plan, const char* name, const char* unit, const char* help);
void bp_plan_gauge(bp_plan* plan, const char* name, const char* unit, const char* help);
void bp_plan_boolean(bp_plan* plan, const char* name, const char* help);
/* Its value is the index of a word of `words`: "waiting|connected"; or each bit stands for one. */
void bp_plan_state(bp_plan* plan, const char* name, const char* words, const char* help);
void bp_plan_flags(bp_plan* plan, const char* name, const char* words, const char* help);
/* A histogram, of latencies ("ns") and the like: values up to 2^40 are exact to a sixteenth. It
 * takes 5 KiB of the counters file. */
void bp_plan_histogram(bp_plan* plan, const char* name, const char* unit, const char* help);
/* Shows the counter, which is already planned, on the status page, in the column with this heading
 * (15 bytes at most): a counter as its rate per second, a histogram as its p99. Counters of one
 * column are combined. */
void bp_plan_at_a_glance(bp_plan* plan, const char* counter, const char* heading);
/* The planned gauge is the most that was used of `key`, or the planned counter counts what was
 * refused since its value is too small, for `plan --explain`. `risk`: the consequence of a smaller
 * value, a sentence. */
void bp_plan_peak_of(bp_plan* plan, const char* counter, const char* key, const char* risk);
void bp_plan_refusals_of(bp_plan* plan, const char* counter, const char* key);
/* The planned counter raises an alert (docs/counters.md) while it is at least `limit`; while it is
 * less than `hundredths` of the gauge `of`; unless its word is number `word`; as it grows; as it
 * does not grow while the gauge `unless` is 0. `says` is a sentence with cause and cure, 159 bytes
 * at most, in which {NAME} stands for a counter. A counter of losses, drops or refusals raises one,
 * or says why not: no_alert. */
void bp_plan_alert_from(bp_plan* plan, const char* counter, uint64_t limit, const char* says);
void bp_plan_alert_below(bp_plan* plan, const char* counter, uint64_t hundredths, const char* of,
                         const char* says);
void bp_plan_alert_unless(bp_plan* plan, const char* counter, uint64_t word, const char* says);
void bp_plan_alert_as_it_grows(bp_plan* plan, const char* counter, const char* says);
void bp_plan_alert_as_it_stands(bp_plan* plan, const char* counter, const char* unless,
                                const char* says);
void bp_plan_no_alert(bp_plan* plan, const char* counter, const char* why);

/* ---- Its context: in create. Ownership: Bedplate's, as long as the appliance ---- */

/* The memory that was planned as `owner`, zeroed; it can be taken once. Stores its size in *bytes
 * (may be NULL). Errors: NULL: it is not planned, or was handed out before. */
void* bp_carve(bp_context* context, const char* owner, size_t* bytes);
/* The counter or gauge that was planned as `name`. Requires: it is planned, and not as a histogram.
 * Only one thread writes to it. */
bp_counter* bp_counter_of(bp_context* context, const char* name);
void bp_counter_add(bp_counter* counter, uint64_t amount);
void bp_counter_set(bp_counter* counter, uint64_t value);
/* The histogram that was planned as `name`. Requires: it is planned as a histogram. Only one thread
 * writes to it. Cost: 2 ns for each value. */
bp_histogram* bp_histogram_of(bp_context* context, const char* name);
void bp_histogram_add(bp_histogram* histogram, uint64_t value);

/* The shard's loop calls `poll` in each turn, on its thread. `poll` handles about `budget` items
 * (over 0) at most and returns how many; 0 lets the loop sleep. Errors: -1: more sources than
 * planned. */
int bp_add_source(bp_context* context, unsigned shard,
                  unsigned (*poll)(void* self, unsigned budget), void* self, unsigned budget);

/* Accepts connections at the addresses of `key`, on `shard`, from the start to the drain.
 * `accepted` is called for each, on the shard's thread; the service owns `fd`, and opens it as a
 * stream or closes it. A connection may still come shortly after the drain has begun. Errors: -1:
 * its table has no addresses under this key (bp_table_listen). */
int bp_listen(bp_context* context, const char* key, unsigned shard,
              void (*accepted)(void* self, int fd), void* self);
/* A stream on `shard`, not open yet; it lives as long as the appliance. Requires: the shard
 * exists. */
bp_stream* bp_stream_create(bp_context* context, unsigned shard);

/* The member that exchanges messages on `shard`, with the functions of bedplate.h. The loop polls
 * it: do not call bp_poll or bp_wait on it. Errors: NULL: no messages are planned on this shard. */
bp_member* bp_shard_member(bp_context* context, unsigned shard);
/* The number of the service's own message `name`, for bp_set_handler. Errors: -1: it is not
 * planned. */
int bp_message_number(bp_context* context, const char* name);

/* Whether there is a device for the peers of [verbs]. The lkey of `memory` for this device, in
 * *key: returns how many of `bytes` it covers; 0: no device, or not memory of the pool for devices.
 * The device's protection domain, for queue pairs of its own; NULL: no device. The memory of
 * [[verbs.export]] `name`, with its size in *bytes; NULL: no such export. Threads: any. */
int bp_has_peers(bp_context* context);
size_t bp_key_of(bp_context* context, const void* memory, size_t bytes, uint32_t* key);
struct ibv_pd* bp_domain_of(bp_context* context);
void* bp_exported(bp_context* context, const char* name, size_t* bytes);

/* A thread of the service, beside the shards, with a planned stack; `name`: 15 bytes. It ends
 * before `stopped` returns: bp_thread_join waits for it; bp_thread_join_or_leave for `patience_ns`
 * at most, and returns 0 if it goes on without its thread. Errors: NULL: the system's. Threads:
 * create and later, the main thread. */
typedef struct bp_thread bp_thread;
bp_thread* bp_thread_start(bp_context* context, const char* name, void (*function)(void* context),
                           void* its_context);
void bp_thread_join(bp_thread* thread);
int bp_thread_join_or_leave(bp_thread* thread, uint64_t patience_ns);

/* Reports that the drain is complete on all shards. Threads: any. */
void bp_drained(bp_context* context);

/* ---- On the shard's thread, or in create ---- */

/* The loop of `shard`, valid as long as the appliance. Requires: the shard exists. Threads: any. */
bp_loop* bp_loop_of(bp_context* context, unsigned shard);
/* The time at which this turn of the loop began, by CLOCK_MONOTONIC. */
uint64_t bp_loop_now_ns(const bp_loop* loop);
/* Reads the clock; the result is the time of this turn from now on. For code that measures. */
uint64_t bp_loop_look_at_clock(bp_loop* loop);

/* The writer of traces of requests that end on `shard`: in create. Errors: NULL: none are
 * planned. */
typedef struct bp_trace bp_trace;
bp_trace* bp_trace_of(bp_context* context, unsigned shard);
/* The times at which a request passes its stations. It may be copied. */
typedef struct bp_request {
  uint64_t reserved[5];
} bp_request;
/* It is at station 0, and has passed no other; it is at `station`, from 1 on, which it may skip. */
void bp_request_begin(bp_request* request, uint64_t now_ns);
void bp_request_pass(bp_request* request, unsigned station, uint64_t now_ns);
/* Records the request, which has ended on the writer's shard. `handle` is the client's name of it,
 * `subject` and `kind` are numbers of bp_plan_trace. */
void bp_trace_write(bp_trace* trace, const bp_request* request, uint64_t handle, uint32_t bytes,
                    unsigned subject, unsigned kind);

/* A timer. The caller owns it, and zeroes `reserved`. */
typedef struct bp_timer {
  uint64_t reserved[4];
  void (*expired)(void* context);
  void* context;
} bp_timer;
/* Calls `expired` once, `after_ns` from bp_loop_now_ns. If the timer is armed already, changes its
 * time. `expired` may arm it again. Requires: the timer is planned. Ownership: the caller does not
 * move `timer` while it is armed. */
void bp_timer_arm(bp_loop* loop, bp_timer* timer, uint64_t after_ns);
/* Disarms the timer: `expired` is not called any more. Does nothing if it is not armed. */
void bp_timer_cancel(bp_loop* loop, bp_timer* timer);

/* A call to a loop. The caller owns it, and does not move or change it until the call was made. */
typedef struct bp_call {
  void (*function)(void* context);
  void* context;
  uint64_t reserved[2]; /* zeroed */
} bp_call;
/* Makes the loop's thread call `function` soon. If the call is pending already, it is made once,
 * and `function` sees all that both callers wrote before. After the loop has stopped, no call is
 * made. bp_post neither allocates nor locks. Threads: any. */
void bp_post(bp_loop* loop, bp_call* call);

/* A question to a shard. The caller owns it, zeroes it, and does not move it while it is in flight;
 * a service puts it into a struct of its own, beside what it asks and what comes back. One shard
 * touches it at a time: the asked one from `asked` until bp_answer, else the asking one. */
typedef struct bp_question {
  uint64_t reserved[12];
  /* Called on the asked shard's thread. It calls bp_answer, or starts an operation that does. */
  void (*asked)(struct bp_question* question);
  void (*answered)(struct bp_question* question); /* set by bp_ask */
  void* context;                                  /* the caller's */
} bp_question;
/* Asks the shard of the loop `to`, which may be `from`. `answered` is called once, on the thread of
 * `from`, never from within bp_ask; from then on the question may be asked again, or freed. A
 * service is drained only when its questions are answered. When the shards stop, a question that is
 * in flight stays so: nothing is called any more. bp_ask and bp_answer neither allocate nor lock.
 * Requires: called on the thread of `from`; it is not in flight, and is planned. */
void bp_ask(bp_loop* from, bp_loop* to, bp_question* question,
            void (*answered)(bp_question* question));
/* Gives the question back to the asking shard. Requires: called once for each call of `asked`, on
 * the asked shard's thread. */
void bp_answer(bp_question* question);

/* Takes over the connection `fd`, and closes it in bp_stream_close. Requires: it is not open.
 * Returns 0 or an errno value, such as ENOSPC (more than planned); after an error the caller still
 * owns `fd`. */
int bp_stream_open(bp_stream* stream, int fd);
/* Closes it; it may be opened again. Requires: it is open, and has no operation in flight. */
void bp_stream_close(bp_stream* stream);
/* Makes all operations in flight end soon, by their callbacks. Requires: it is open, or
 * connecting. */
void bp_stream_abort(bp_stream* stream);
/* One receive and one send may be in flight. `done` is called, once, never from within the call,
 * with the number of bytes that moved: of a receive `min` (at least 1) or more, or 0 if the peer
 * has closed; of a send all. On failure, with -errno. Until then the memory must stay allocated.
 * Requires: it is open. */
void bp_stream_receive(bp_stream* stream, void* into, size_t bytes, size_t min,
                       void (*done)(void* context, int64_t result), void* context);
void bp_stream_send(bp_stream* stream, const void* from, size_t bytes,
                    void (*done)(void* context, int64_t result), void* context);
/* The same with several pieces of memory, which are sent one after the other: a head and a value.
 * `pieces` is copied. Requires: 1 to BP_PIECES_MAX pieces. */
enum { BP_PIECES_MAX = 8 };
typedef struct bp_piece {
  const void* memory;
  size_t bytes;
} bp_piece;
void bp_stream_send_pieces(bp_stream* stream, const bp_piece* pieces, size_t piece_count,
                           void (*done)(void* context, int64_t result), void* context);
/* Makes the receive in flight end soon: as ever if its bytes have come, else with -ECANCELED. */
void bp_stream_end_receive(bp_stream* stream);

/* Connects it to "tcp:ADDRESS:PORT" or "unix:/PATH"; a watch must be planned. `connected` is called
 * once, never from within the call. `result` is 0 if the stream is open, else -errno: among others
 * -ECONNREFUSED; -ETIMEDOUT, also after `time_ns_max` (0: as long as the kernel tries); -ECANCELED
 * after bp_stream_abort; -EAGAIN if the backlog of a Unix socket is full. Requires: it is neither
 * open nor connecting. Returns 0 or an errno value; after an error `connected` is not called. For
 * EINVAL, a wrong address, bp_error_text has the reason. */
int bp_stream_connect(bp_stream* stream, const char* address, uint64_t time_ns_max,
                      void (*connected)(void* context, int result), void* context);

/* A watch of a descriptor. The caller owns it, zeroes `reserved`, and does not move it while it is
 * active. */
typedef struct bp_watch {
  uint64_t reserved[5];
  int fd;          /* of any kind that epoll(7) accepts; open until bp_watch_stop */
  unsigned events; /* POLLIN, POLLOUT, ...; POLLERR and POLLHUP always come */
  /* Called repeatedly while the descriptor is ready, never from within a function here. POLLNVAL:
   * the descriptor was closed, and the watch has ended. `ready` may stop and start any watch. */
  void (*ready)(void* context, unsigned events);
  void* context;
} bp_watch;
/* Returns 0 or an errno value: EBADF, EINVAL, EPERM (a regular file or a directory), EEXIST (a
 * watch has the descriptor already), ENOSPC (more than planned). Requires: the watch is not
 * active. */
int bp_watch_start(bp_loop* loop, bp_watch* watch);
/* Ends the watch: `ready` is not called any more. Does nothing if the watch is not active. */
void bp_watch_stop(bp_loop* loop, bp_watch* watch);

/* ---- Files: planned, open before create, operated on from the shard's thread ---- */

typedef struct bp_file bp_file;

enum {
  BP_FILE_WRITABLE = 1, /* and locked: one writer; without this flag it is read only */
  BP_FILE_CREATE = 2, /* if missing, for its owner alone; needs BP_FILE_WRITABLE; not below /dev */
  BP_FILE_DIRECT = 4, /* past the page cache: bp_file_alignment */
  BP_FILE_EXCLUDES_WRITERS = 8, /* a read-only file is locked, too: it then has only readers */
  BP_FILE_WHOLE_BLOCKS = 16,    /* refused if it is empty, or no multiple of 512 bytes */
  BP_FILE_EXTENTS = 32,         /* allows bp_file_extents */
  BP_FILE_POLLED = 64,          /* reads and writes are polled; needs BP_FILE_DIRECT */
  BP_FILE_RENAMED = 128         /* the service renames it within its directory while it runs */
};
/* Call it in plan. Plans the file, or block device, at `path`, which begins with /; it is opened
 * for `shard`. `name` is 1 to 31 of a-z, 0-9 and _, for bp_file_of and its counters in `stats`.
 * `key` is the key of its table with the path, or NULL. At most `operations_max` (1 to 1024)
 * operations are in flight at once; others wait, in order. */
void bp_plan_file(bp_plan* plan, const char* name, unsigned shard, const char* path,
                  const char* key, unsigned flags, unsigned operations_max);
/* Limits of the planned file: a shorter one is refused, and so is a limit of this process on file
 * sizes below `bytes_max` (0: not known). */
void bp_plan_file_bytes(bp_plan* plan, const char* name, uint64_t bytes_min, uint64_t bytes_max);
/* The file that was planned as `name`, open; it lives as long as the appliance. Call it in create.
 * Errors: NULL: it is not planned. */
bp_file* bp_file_of(bp_context* context, const char* name);
/* Its size when it was opened; for a block device, its capacity. */
uint64_t bp_file_bytes(const bp_file* file);
/* Memory, offset and bytes must be multiples of this: 1, except with BP_FILE_DIRECT. */
uint32_t bp_file_alignment(const bp_file* file);

/* An operation. The caller owns it, zeroes it, and does not move it until `done` was called. */
typedef struct bp_file_operation {
  uint64_t reserved[12];
  void (*done)(void* context, int64_t result);
  void* context;
} bp_file_operation;

/* Each calls `done` once, on the shard, never from within the call; until then the memory must stay
 * allocated. `result` is the bytes up to the end of the file for a read, all bytes for a write,
 * else 0; or -errno. After an error of a write, a part may have been written. -EOPNOTSUPP: the file
 * system cannot do it; -ECANCELED: the shard stops, and the operation never began. Operations in
 * flight together take place in any order; a sync covers operations that had completed before it
 * began. If the kernel has not ended an operation when the shard stops, `done` is not called.
 * Requires: `operation` is not in flight. Threads: the shard's. */
void bp_file_read(bp_file* file, bp_file_operation* operation, void* into, size_t bytes,
                  uint64_t offset, void (*done)(void* context, int64_t result), void* context);
void bp_file_write(bp_file* file, bp_file_operation* operation, const void* from, size_t bytes,
                   uint64_t offset, void (*done)(void* context, int64_t result), void* context);
/* The same, and these bytes are on the medium when it ends, without a sync of all others. */
void bp_file_write_durable(bp_file* file, bp_file_operation* operation, const void* from,
                           size_t bytes, uint64_t offset,
                           void (*done)(void* context, int64_t result), void* context);
/* Syncs all completed writes to the medium; with `data_only` without the file's times
 * (fdatasync). */
void bp_file_sync(bp_file* file, bp_file_operation* operation, int data_only,
                  void (*done)(void* context, int64_t result), void* context);
/* These change a range of the file. allocate allocates its blocks. write_zeroes writes zeros, and
 * the blocks stay allocated. Both make the file grow to hold the range. discard frees the blocks:
 * the range reads as zeros, and the size stays. */
void bp_file_allocate(bp_file* file, bp_file_operation* operation, uint64_t bytes, uint64_t offset,
                      void (*done)(void* context, int64_t result), void* context);
void bp_file_write_zeroes(bp_file* file, bp_file_operation* operation, uint64_t bytes,
                          uint64_t offset, void (*done)(void* context, int64_t result),
                          void* context);
void bp_file_discard(bp_file* file, bp_file_operation* operation, uint64_t bytes, uint64_t offset,
                     void (*done)(void* context, int64_t result), void* context);
/* A part of a file; it begins where the previous one ends. A hole (no data) reads as zeros. */
typedef struct bp_extent {
  uint64_t bytes;
  unsigned char has_data;
} bp_extent;
/* Lists the extents of the range, at most `count_max`. `result` is their number; they may end
 * before the range does. Requires: BP_FILE_EXTENTS. */
void bp_file_extents(bp_file* file, bp_file_operation* operation, bp_extent* extents,
                     unsigned count_max, uint64_t bytes, uint64_t offset,
                     void (*done)(void* context, int64_t result), void* context);

#ifdef __cplusplus
}
#endif

#include "bedplate_datagrams.h"
#include "bedplate_session.h"

#endif
