/* Bedplate for programs in C: its heap in the pinned pool, beside malloc; messages between
 * processes that join one pool; and the appliance's RDMA device for these processes.
 *
 * Link libbedplate.a and the C++ runtime (g++ does). A program that also links libbedplate-malloc.a
 * has the same heap behind malloc, and may free a block through either. C99. The functions of the
 * heap, except bp_on_low_memory, may be called from any thread, but not from a signal handler.
 * Pointers may be NULL only if the comment says so. A broken requirement stops the process, or the
 * outcome is undefined. */
#ifndef BEDPLATE_H
#define BEDPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "../../platform/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A block of at least `bytes`, aligned as malloc's, not zeroed; 0 bytes give a unique block.
 * Ownership: the caller's, until bp_free. Errors: NULL and errno ENOMEM. */
void* bp_alloc(size_t bytes);

/* The same, aligned to `alignment`. Errors: NULL and errno EINVAL when it is no power of two,
 * ENOMEM when the heap is exhausted. */
void* bp_alloc_aligned(size_t alignment, size_t bytes);

/* Grows or shrinks `block` (NULL: allocates), which may move; 0 bytes do not free it. Alignment
 * beyond malloc's is not kept. Errors: NULL and errno ENOMEM; `block` is then unchanged. */
void* bp_realloc(void* block, size_t bytes);

/* Frees `block`; NULL is allowed. Does not change errno. */
void bp_free(void* block);

/* The usable bytes of `block`, at least the requested ones; 0 for NULL. */
size_t bp_usable_bytes(const void* block);

/* Adds `bytes` (rounded up to 4 MiB and to whole pages) to the heap, for good, in pages of
 * `page_bytes`: 4096, 2 MiB or 1 GiB. Only for programs without an appliance that have joined no
 * pool; such a program must not boot an appliance or join a pool afterwards. Hugepages require that
 * forked children share the heap (BEDPLATE_FORK=share). Before main the environment sets the size
 * of the heap: BEDPLATE_BOOT_BYTES, BEDPLATE_BOOT_PAGE_BYTES (docs/allocator.md). Returns 0.
 * Errors: -1; bp_error_text has the reason, such as too few free pages. */
int bp_add_heap(size_t bytes, size_t page_bytes);

/* The support level of this process's malloc, as a set of these bits; 0: malloc does not use the
 * pool; only bp_alloc and the like do. docs/allocator.md tells how each bit is proved. */
#define BP_SUPPORT_FREE 1u   /* each allocation function returns pool memory; all frees arrive */
#define BP_SUPPORT_CHUNK 2u  /* pages that are freed entirely stay mapped */
#define BP_SUPPORT_MUNMAP 4u /* munmap of pool memory is refused */

/* Proves the level by a trial: allocates and frees 4 MB through each allocation function, and tries
 * munmap if the pool is sealed. Creates the heap if there is none. Other threads may allocate
 * meanwhile. */
unsigned bp_support_level(void);

/* The names of the bits in `level`: "FREE CHUNK MUNMAP"; "none" for 0. Static text. */
const char* bp_support_level_text(unsigned level);

/* 1 when [pointer, pointer + bytes) lies wholly inside one segment of the pool, else 0. The pool
 * contains more than the heap: the memory of services and groups, and that of a joined pool. */
int bp_contains(const void* pointer, size_t bytes);

/* Compares the kernel's maps in the pool's range with the pool. Returns 1 if they agree, 0 if not,
 * -1 if the maps cannot be read. `text` (NULL with 0 bytes: not wanted) gets "ok", or the defect
 * and its owner, or the reason why the maps cannot be read; always terminated. Allocates nothing.
 * Cost: a read of /proc/self/smaps, milliseconds. */
int bp_audit(char* text, size_t text_bytes);

/* An owner of heap memory: a thread's allocations are charged to it. 0: no owner. Owners are never
 * removed. */
typedef unsigned bp_owner;

/* The owner called `name` ("heap:cache", at most 63 bytes: the rest is cut off); the first call for
 * a name creates it. Each call sets the owner's limit: the owner may have at most `limit_bytes` of
 * the heap, counted as the heap takes memory for it (64 KiB and more at a time). If `limit_bytes`
 * is 0, there is no limit. Errors: 0 and errno ENOSPC when there are too many owners. */
bp_owner bp_owner_create(const char* name, size_t limit_bytes);

/* From now on the calling thread allocates for `owner`. Returns the previous owner. If there is no
 * memory for the change, the log says so and the owner does not change. Requires: `owner` is 0, or
 * was returned by bp_owner_create or bp_owner_enter. */
bp_owner bp_owner_enter(bp_owner owner);

/* The bytes of the heap that `owner` has, counted as for its limit. Requires: as for
 * bp_owner_enter. */
size_t bp_owner_used_bytes(bp_owner owner);

/* Calls `function(context)` when the free bytes of the heap fall below `free_bytes`, and again only
 * after they have risen above it in between. Also calls it before a request fails while fewer than
 * `free_bytes` are free; the request then succeeds if the function frees enough. The function runs
 * within a malloc call, in any thread: it may free and allocate, and must not wait for other
 * threads. If `function` is NULL, the calls end. Threads: call it before other threads start. */
void bp_on_low_memory(size_t free_bytes, void (*function)(void* context), void* context);

/* ---- Messages ----
 *
 * A process joins a pool at most once, with one member for each of its threads that exchange
 * messages. Only one thread at a time may use a member, with its endpoints, handlers, loans and
 * completions. Only bp_join and bp_wait block. Only bp_join, bp_connect, bp_connect_by_name and
 * bp_member_fd allocate; bp_poll allocates once for each peer, at its first message. docs/join.md,
 * docs/messages.md and transport/messages/endpoint.h say more. */

typedef struct bp_member bp_member;     /* of this process */
typedef struct bp_endpoint bp_endpoint; /* connects a member to one peer */

/* How a call ended. */
typedef enum bp_status {
  BP_DONE,     /* accepted, and the caller may reuse its memory */
  BP_PENDING,  /* accepted; the completion tells when it is done */
  BP_AGAIN,    /* the queue is full, nothing was sent: bp_poll and retry, or bp_notify_room */
  BP_GONE,     /* the peer has left or died, or the pool has lost its owner */
  BP_TOO_LONG, /* longer than a message or the peer's memory */
  BP_REFUSED   /* memory that this peer cannot or may not reach */
} bp_status;

/* "done", "again", ... Static text. */
const char* bp_status_text(bp_status status);

/* How an operation ended after BP_PENDING. */
typedef enum bp_outcome {
  BP_OUTCOME_DONE,
  BP_OUTCOME_NOT_DONE, /* it has had no effect */
  BP_OUTCOME_UNKNOWN   /* the peer is gone: it may have happened */
} bp_outcome;

/* A completion: `call` runs once, at an operation's end, from bp_poll, bp_wait or bp_member_arm of
 * the member that started the operation. For a service's member it runs from the loop of the shard.
 * The caller owns the completion and does not move it until then. */
typedef struct bp_completion {
  void* reserved; /* Bedplate's */
  void (*call)(struct bp_completion* self, bp_outcome outcome);
  void* context; /* for `call`; Bedplate leaves it alone */
} bp_completion;

/* Memory that bp_expose has described to a peer. Plain data: send it in a message. */
typedef struct bp_remote {
  uint64_t address;
  uint64_t bytes;
  uint64_t key;
  uint64_t kind;
} bp_remote;

/* Memory that a sender lends. The receiver must give it back by bp_release, at any time, exactly
 * once, even if it does not use it. This struct may be copied. */
typedef struct bp_loan {
  const void* memory; /* the bytes, readable by this process; NULL: bp_get them from `remote` */
  size_t bytes;
  bp_remote remote;
  void* provider; /* NULL: there is no loan */
  uint64_t token;
} bp_loan;

/* A message, as a handler gets it. The payload is valid until the handler returns. The loan stays
 * valid: the receiver has to give it back, in the handler or later. */
typedef struct bp_message {
  bp_endpoint* from; /* to answer the sender; valid as long as the member */
  unsigned id;
  const void* payload;
  size_t bytes;
  bp_loan loan;
} bp_message;

/* Runs within bp_poll, bp_wait and bp_member_arm. It may send, also through message->from, and
 * release loans; it neither polls nor blocks. */
typedef void (*bp_handler)(void* context, const bp_message* message);

/* An event of another member, or of the pool, reported by bp_poll. */
typedef enum bp_peer_event {
  BP_PEER_JOINED, /* it takes messages */
  BP_PEER_LEFT,   /* it has left or died; all its messages were delivered before */
  BP_POOL_GONE,   /* the owner has died or stopped, or has cut this process off: sends to all
                     peers return BP_GONE */
  BP_CUT_OFF      /* that peer found nonsense in data of this process, and ignores it from now on:
                     sends to it return BP_GONE, and its loans come back */
} bp_peer_event;

/* Calls `function` for each such event, within bp_poll, bp_wait and bp_member_arm of every member
 * of this process, so on the threads of all. `number` is the other member's number; it has no
 * meaning with BP_POOL_GONE. If `function` is NULL, the calls end. Call it before bp_join. */
typedef void (*bp_peer_handler)(void* context, bp_peer_event event, unsigned number);
void bp_on_peer(bp_peer_handler function, void* context);

/* Joins the pool whose owner listens at `socket`, as the [[process]] called `process` in its
 * configuration, with `member_count` members (1 to 64). Waits at most `timeout_ms` for the owner to
 * start, and for a place if all planned ones are taken, by living processes or by dead ones whose
 * places are not free yet. Permanent errors are returned at once. From then on the other members
 * see the new ones. Their messages arrive in bp_poll, so handlers may be set after bp_join. The
 * pool is sealed then: its memory can no longer be unmapped. Threads: call it before other threads
 * start. Errors: -1; bp_error_text says why. The process can try again if the owner was not there
 * or refused it, but not if it could not use what the owner gave it. */
int bp_join(const char* socket, const char* process, unsigned member_count, unsigned timeout_ms);

/* Leaves the pool. Nothing that came from bp_join may be used any more, but the pool stays mapped.
 * A process that ends without bp_leave counts as dead: the others notice, and the owner logs it.
 * Requires: bp_join; no other thread uses a member; called once. */
void bp_leave(void);

/* Why the last function failed in this thread: what was being done, the system's answer, and the
 * cure; "" if none has failed. Only for functions whose comments name it; others set errno, or
 * return an errno value. Ownership: Bedplate's, until the thread's next failure or end. */
const char* bp_error_text(void);

/* The three parts of that text, each "" if it has none: for languages whose errors have parts.
 * Ownership: as for bp_error_text. */
const char* bp_error_doing(void);
const char* bp_error_answer(void);
const char* bp_error_cure(void);

/* Member `index` of this process, valid until the process ends. Requires: bp_join; index < its
 * member_count. Threads: any. */
bp_member* bp_own_member(unsigned index);

/* Its number, by which others connect to it. */
unsigned bp_member_number(const bp_member* member);

/* The number of the first living member that joined as `process`; -1: no such member now. The owner
 * is number 0, under its appliance's name. Requires: bp_join. Threads: any. */
int bp_find_member(const char* process);

/* The endpoint from `self` to the member `number`, always the same for one number; it lives as long
 * as `self`. Does not wait for the peer. Ownership: Bedplate's. Errors: NULL; bp_error_text has the
 * reason. */
bp_endpoint* bp_connect(bp_member* self, unsigned number);

/* Sets the function that handles messages with `id` to `self`. Programs agree on ids up to 127;
 * higher ids belong to names (bp_ask_number). Without a function (NULL) the messages are dropped,
 * with their loans. */
void bp_set_handler(bp_member* self, unsigned char id, bp_handler handler, void* context);

/* Runs handlers and completions of arrived messages, about `budget` at most. Returns how many. */
unsigned bp_poll(bp_member* self, unsigned budget);

/* Sleeps until something arrives, at most `timeout_ms`, then does the same. May return early, and
 * without having done anything: call bp_poll next. Requires: a member of bp_own_member. */
void bp_wait(bp_member* self, unsigned timeout_ms);

/* ---- A member in another loop: one descriptor, for epoll, poll, libuv, GLib ----
 *
 *     int fd = bp_member_fd(self);
 *     for (;;) {
 *       while (bp_poll(self, 64) > 0) {}
 *       if (bp_member_arm(self)) wait_for(fd and others);
 *     } */

/* The descriptor of the member, always the same; only for waiting. Ownership: Bedplate's. The first
 * call starts a thread with its stack. Errors: -1; bp_error_text has the reason. Requires: the
 * member is this process's (bp_own_member). */
int bp_member_fd(bp_member* self);

/* Call it before each wait: it polls once more, and runs handlers and completions like bp_poll.
 * Returns 0 if something had arrived: poll on, and arm again. Returns 1 if the caller may wait: the
 * descriptor becomes readable when something arrives, or when the owner of the pool is gone.
 * bp_poll clears the descriptor, so call it after each wait, whatever ended the wait. Requires:
 * bp_member_fd. */
int bp_member_arm(bp_member* self);

/* A callback for space in a queue: `call` runs once, from a later bp_poll, bp_wait or
 * bp_member_arm, when the queue of a peer that returned BP_AGAIN takes messages again, or the peer
 * is gone. Then send again. If the send returns BP_AGAIN again (a loan, a long message), call
 * bp_notify_room again; `call` may do so itself. The caller does not touch the struct until `call`
 * runs, or until bp_take_back_room. */
typedef struct bp_room_call {
  uint64_t reserved[4];
  void (*call)(struct bp_room_call* self);
  void* context; /* for `call` */
} bp_room_call;
/* Requests that callback. The peer sends no notification of space. So bp_wait returns, and
 * bp_member_fd becomes readable, from time to time meanwhile: every 200 us at first, later every
 * 50 ms. Requires: `room` is not waiting already. */
void bp_notify_room(bp_member* self, bp_endpoint* to, bp_room_call* room);
/* Cancels the request: `call` does not run any more. Does nothing if `room` is not waiting. */
void bp_take_back_room(bp_member* self, bp_room_call* room);

/* Sends a copy of `payload` (may be NULL with 0 bytes). All messages through one endpoint, by this
 * and bp_am_send_loan, arrive in order. Messages that the peer has not read when it dies are lost.
 * Returns BP_DONE, BP_AGAIN, BP_GONE or BP_TOO_LONG. */
bp_status bp_am_send(bp_endpoint* to, unsigned char id, const void* payload, size_t bytes);

/* Lends `block` of the pool to the receiver, with a small header (may be NULL with 0 bytes).
 * BP_PENDING: the block must not be changed or freed until the receiver gives it back; then
 * `returned` is called, or, if that is NULL, Bedplate frees the block by bp_free. BP_DONE: its
 * bytes have been copied. Otherwise BP_AGAIN, BP_GONE, BP_TOO_LONG (the header) or BP_REFUSED.
 * Except with BP_PENDING the caller keeps the block, and `returned` is not called. */
bp_status bp_am_send_loan(bp_endpoint* to, unsigned char id, const void* header,
                          size_t header_bytes, void* block, size_t bytes, bp_completion* returned);

/* The most bytes of bp_am_send; up to this many a message is a single cache line or packet; the
 * most of a header of bp_am_send_loan. They never change. */
typedef struct bp_limits {
  uint32_t message_bytes_max;
  uint32_t inline_bytes_max;
  uint32_t loan_header_bytes_max;
} bp_limits;
bp_limits bp_limits_of(const bp_endpoint* to);
/* Whether the peer's queue takes a message now, or the peer is gone. A loan may still find no
 * space. */
int bp_has_room(bp_endpoint* to);
/* The kind of path to the peer: "self", "shards", "shm", ... Static text. */
const char* bp_provider_name(const bp_endpoint* to);

/* Gives a loan back, even if its lender is gone; does nothing if loan->provider is NULL. Requires:
 * it was not given back before. Threads: the thread of the member that received it. */
void bp_release(const bp_loan* loan);

/* Describes memory of this process to the peer, which may read and write it until bp_withdraw.
 * Operations in flight at bp_withdraw have ended when a bp_flush that is started afterwards ends,
 * or returns BP_GONE. The memory must stay allocated until then. Returns 0. Errors: -1;
 * bp_error_text has the reason. */
int bp_expose(bp_endpoint* to, void* memory, size_t bytes, bp_remote* described);
void bp_withdraw(bp_endpoint* to, const bp_remote* described);

/* Copies `bytes` to the peer's memory, or from it; unordered until bp_flush. `done` is called,
 * once, if and only if BP_PENDING is returned, here and in all functions that follow. Until then
 * the memory must stay allocated. Returns BP_DONE, BP_PENDING, BP_AGAIN, BP_GONE, BP_REFUSED or
 * BP_TOO_LONG (longer than `remote`). */
bp_status bp_put(bp_endpoint* to, const void* from, size_t bytes, const bp_remote* remote,
                 bp_completion* done);
bp_status bp_get(bp_endpoint* from, void* into, size_t bytes, const bp_remote* remote,
                 bp_completion* done);

/* Atomically adds to the 64-bit word at `remote`, aligned to 8 bytes, or replaces it if it equals
 * `expected`. Stores its previous value in *before. Otherwise like bp_get. */
bp_status bp_fetch_add(bp_endpoint* to, const bp_remote* remote, uint64_t addend, uint64_t* before,
                       bp_completion* done);
bp_status bp_compare_swap(bp_endpoint* to, const bp_remote* remote, uint64_t expected,
                          uint64_t desired, uint64_t* before, bp_completion* done);

/* Ends when all puts, gets and atomics started before are done, and visible at the peer. */
bp_status bp_flush(bp_endpoint* to, bp_completion* done);

/* The endpoint to the peer called `name`. From a service's member (bp_shard_member): the shard,
 * process or other appliance with this name in the configuration. From a member of a process that
 * joined: the first living member of that name. Otherwise like bp_connect. Errors: NULL;
 * bp_error_text has the reason. */
bp_endpoint* bp_connect_by_name(bp_member* self, const char* name);

/* A query for a message number. `answered` is called once, from a later bp_poll, bp_wait or
 * bp_member_arm, with the peer's number of the message; -1: the peer has no such message. The
 * caller does not touch the query until then, or until bp_take_back_query. */
typedef struct bp_number_query {
  uint64_t reserved[4];
  void (*answered)(struct bp_number_query* self, int number);
  void* context; /* for `answered` */
} bp_number_query;
/* Asks for the number of the peer's message "SERVICE.MESSAGE". Returns the same as bp_am_send, and
 * BP_TOO_LONG for a name over 47 bytes. An answer comes only after BP_DONE. None comes if the peer
 * dies, or if it drops the question because 16 of its answers wait for space in this member's queue
 * already, or 64 in all queues. */
bp_status bp_ask_number(bp_member* self, bp_endpoint* peer, const char* name,
                        bp_number_query* query);
/* Cancels the query: `answered` is not called any more, and the caller may reuse `query`. Call it
 * if no answer comes, as when the peer dies. Does nothing if the query was not sent, or was
 * answered. */
void bp_take_back_query(bp_member* self, bp_number_query* query);

/* ---- RDMA ----
 *
 * A process whose [[process]] has verbs = true may itself use the appliance's RDMA device. All
 * memory of the pool that it may write is registered once, before bp_join returns; it makes its
 * queue pairs with libibverbs. See docs/verbs.md. */

/* Makes bp_join open that device, too, and register the pool with it. bp_join then fails if the
 * process is not planned to use verbs, or there is no device. Call it before bp_join. */
void bp_use_verbs(void);

/* The device's protection domain, with its context, and the device's port. Ownership: Bedplate's.
 * Requires: bp_use_verbs and bp_join. Threads: any. */
struct ibv_pd* bp_verbs_domain(void);
unsigned bp_verbs_port(void);

/* Stores the local key (lkey) of `memory` in *key. Returns how many of `bytes` it covers; the rest,
 * if any, has another key. 0: no key, because the memory is outside the pool, or mapped read-only.
 * Threads: any. Requires: as above. */
size_t bp_verbs_key(const void* memory, size_t bytes, uint32_t* key);

#ifdef __cplusplus
}
#endif

#endif
