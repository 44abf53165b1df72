/* Bedplate for programs in C: its heap, which is memory in the pinned pool, without replacing
 * malloc; messages between processes that join one pool; and the appliance's RDMA device for them.
 *
 * Link libbedplate.a and the C++ runtime (g++ does). A program that also links libbedplate-malloc.a
 * has the same heap behind malloc, and may free a block through either. C99. The functions of the
 * heap, all but bp_support_level and bp_on_low_memory, may be called from any thread, but not from
 * a signal handler. Pointers are not NULL unless it is said that they may be; a broken requirement
 * stops the process, or the outcome is undefined. */
#ifndef BEDPLATE_H
#define BEDPLATE_H

#include <stddef.h>
#include <stdint.h>

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

/* Gives the heap `bytes` more (rounded up to 4 MiB and to whole pages), for good, in pages of
 * `page_bytes`: 4096, 2 MiB or 1 GiB. For programs without an appliance that have joined no pool;
 * such a program does neither afterwards. Hugepages only if forked children share the heap
 * (BEDPLATE_FORK=share). Before main the environment says how much there is: BEDPLATE_BOOT_BYTES,
 * BEDPLATE_BOOT_PAGE_BYTES (docs/allocator.md).
 * Returns 0. Errors: -1; bp_error_text says why: no such pages are free, say. */
int bp_add_heap(size_t bytes, size_t page_bytes);

/* The support level of this process's malloc, as a set of these bits; 0: malloc is not the pool's,
 * only blocks of bp_alloc and its kin are. docs/allocator.md says how each is proved. */
#define BP_SUPPORT_FREE 1u   /* every way to allocate hands out pool memory, every free arrives */
#define BP_SUPPORT_CHUNK 2u  /* the pages of what is freed whole stay where they are */
#define BP_SUPPORT_MUNMAP 4u /* munmap of pool memory is refused */

/* The level, proved by trying: takes and frees 4 MB through each way to allocate, and tries munmap
 * if the pool is sealed. Creates the heap if there is none.
 * Threads: the exception to the rule above: no other may allocate meanwhile. */
unsigned bp_support_level(void);

/* "FREE CHUNK MUNMAP", those that `level` has; "none" for 0. Static text. */
const char* bp_support_level_text(unsigned level);

/* 1 when [pointer, pointer + bytes) lies wholly inside one segment of the pool, else 0. The pool
 * has more than the heap: also the memory of services and groups, and that of a joined pool. */
int bp_contains(const void* pointer, size_t bytes);

/* Compares what the kernel has mapped in the pool's range with the pool: 1 when all is as it was
 * made, 0 when not, -1 when the maps cannot be read. `text` (NULL with 0 bytes: none is wanted)
 * gets "ok", or what is wrong with its owner, or why the maps cannot be read; always terminated.
 * Needs no memory of the heap. Cost: a read of /proc/self/smaps, milliseconds. */
int bp_audit(char* text, size_t text_bytes);

/* An owner of heap memory: a thread allocates in its name. 0: the owner of memory that is allocated
 * in nobody's name. Owners stay for ever. */
typedef unsigned bp_owner;

/* The owner called `name` ("heap:cache"), which is new if nobody asked for it before. At most
 * `limit_bytes` of the heap are given to it, counted in what the heap takes for it (64 KiB and more
 * at a time); 0: no limit. Errors: 0 and errno ENOSPC when there are too many owners. */
bp_owner bp_owner_create(const char* name, size_t limit_bytes);

/* From now on the calling thread allocates for `owner`. Returns the previous owner. If there is no
 * memory for the change, the log says so and the owner stays.
 * Requires: `owner` is 0, or of bp_owner_create or bp_owner_enter. */
bp_owner bp_owner_enter(bp_owner owner);

/* How much of the heap `owner` has, counted as above. Requires: as above. */
size_t bp_owner_used_bytes(bp_owner owner);

/* Calls `function(context)` when less than `free_bytes` of the heap are free: once, until there was
 * more again, and for each request that could not be met otherwise; what it frees may save that
 * request. It runs within somebody's malloc, in any thread: it may free and allocate, and must not
 * wait for other threads. NULL: nobody is called any more. Threads: before there are others. */
void bp_on_low_memory(size_t free_bytes, void (*function)(void* context), void* context);

/* ---- Messages ----
 *
 * A process joins a pool once in its life, with one member for each of its threads that exchange
 * messages. One thread at a time uses a member, with its endpoints, handlers, loans and
 * completions. Nothing blocks but bp_join and bp_wait. Nothing allocates but bp_join, bp_connect,
 * bp_connect_by_name and bp_member_fd; bp_poll does once for each peer that is heard from first.
 * docs/join.md, docs/messages.md and transport/messages/endpoint.h say more. */

typedef struct bp_member bp_member;     /* of this process */
typedef struct bp_endpoint bp_endpoint; /* a way to a member of another process */

/* How a call ended. */
typedef enum bp_status {
  BP_DONE,     /* accepted, and the caller's memory is its own again */
  BP_PENDING,  /* accepted; the completion says when it is done */
  BP_AGAIN,    /* no room for it now, nothing was sent: bp_poll and try again, or bp_notify_room */
  BP_GONE,     /* the peer has left or died, or the pool has lost its owner */
  BP_TOO_LONG, /* more than a message or the peer's memory has room for */
  BP_REFUSED   /* memory that this peer cannot reach, or may not */
} bp_status;

/* "done", "again", ... Static text. */
const char* bp_status_text(bp_status status);

/* How an operation ended after BP_PENDING. */
typedef enum bp_outcome {
  BP_OUTCOME_DONE,
  BP_OUTCOME_NOT_DONE, /* nothing of it happened */
  BP_OUTCOME_UNKNOWN   /* the peer is gone: it may have happened */
} bp_outcome;

/* A completion: `call` runs once, at an operation's end, from bp_poll, bp_wait or bp_member_arm of
 * the member that started it; a service's from the loop of its shard. It is the caller's, and stays
 * where it is until then. */
typedef struct bp_completion {
  void* reserved; /* Bedplate's */
  void (*call)(struct bp_completion* self, bp_outcome outcome);
  void* context; /* for `call`; Bedplate leaves it alone */
} bp_completion;

/* Memory as bp_expose describes it to a peer. Plain data: send it in a message. */
typedef struct bp_remote {
  uint64_t address;
  uint64_t bytes;
  uint64_t key;
  uint64_t kind;
} bp_remote;

/* Memory that a sender lends. The receiver gives it back by bp_release, whenever it likes, but
 * exactly once: also if it has no use for it. This struct may be copied. */
typedef struct bp_loan {
  const void* memory; /* where the bytes lie, readable here; NULL: bp_get them from `remote` */
  size_t bytes;
  bp_remote remote;
  void* provider; /* NULL: there is no loan */
  uint64_t token;
} bp_loan;

/* A message, as a handler gets it. The payload is gone when the handler returns; the loan is not:
 * the handler has to give it back, then or later. */
typedef struct bp_message {
  bp_endpoint* from; /* back to the sender; stays valid as long as the member */
  unsigned id;
  const void* payload;
  size_t bytes;
  bp_loan loan;
} bp_message;

/* Runs within bp_poll, bp_wait and bp_member_arm. It may send, also through message->from, and
 * release loans; it neither polls nor blocks. */
typedef void (*bp_handler)(void* context, const bp_message* message);

/* An event of another member, or of the pool, as bp_poll tells it. */
typedef enum bp_peer_event {
  BP_PEER_JOINED, /* it can be sent to */
  BP_PEER_LEFT,   /* it has left or died; all that it had sent was delivered before */
  BP_POOL_GONE,   /* the owner has died or stopped, or has cut this process off: nobody can be sent
                     to any more */
  BP_CUT_OFF      /* that peer found nonsense in what this process sent, and ignores it from now on:
                     sends to it say that it is gone, what was lent to it comes back */
} bp_peer_event;

/* Calls `function` for each such event, within bp_poll, bp_wait and bp_member_arm of every member
 * of this process, so on the threads of all; `number` is the other's, and means nothing with
 * BP_POOL_GONE. NULL: nobody is told. Call it before bp_join. */
typedef void (*bp_peer_handler)(void* context, bp_peer_event event, unsigned number);
void bp_on_peer(bp_peer_handler function, void* context);

/* Joins the pool whose owner listens at `socket`, as the [[process]] called `process` in its
 * configuration, with `member_count` members (1 to 64). Waits at most `timeout_ms` for the owner to
 * be there, and for a place if all that are planned are taken, by living processes or by dead ones
 * that are not forgotten yet; errors that time cannot cure are told at once.
 * From then on the others see the members; what they send arrives in bp_poll, so handlers may be
 * set after this. The pool is sealed then: nobody can unmap memory of it any more.
 * Threads: before there are others.
 * Errors: -1; bp_error_text says why. The process can try again if the owner was not there or
 * refused it, but not if it could not use what the owner gave it. */
int bp_join(const char* socket, const char* process, unsigned member_count, unsigned timeout_ms);

/* Says goodbye; nothing that came from bp_join is used any more, but its memory stays mapped. A
 * process that ends without it counts as dead: the others notice that as well, and the owner logs
 * it.
 * Requires: bp_join, and no other thread uses a member. Once. */
void bp_leave(void);

/* Why the last function failed in this thread: what was being done, what the answer was, and what
 * to do about it; "" if none has failed. For functions that say so; others set errno, or return an
 * errno value. Ownership: Bedplate's, until the thread's next failure or end. */
const char* bp_error_text(void);

/* Member `index` of this process, for the rest of its life. Requires: bp_join; index < its
 * member_count. Threads: any. */
bp_member* bp_own_member(unsigned index);

/* Its number, by which others connect to it. */
unsigned bp_member_number(const bp_member* member);

/* The number of the first living member that joined as `process`; -1: there is none now. The owner
 * is number 0, called as its appliance. Requires: bp_join. Threads: any. */
int bp_find_member(const char* process);

/* A way from `self` to the member `number`, always the same for one number; it lives as long as
 * `self`. Does not wait for the peer. Ownership: Bedplate's. Errors: NULL; bp_error_text says
 * why. */
bp_endpoint* bp_connect(bp_member* self, unsigned number);

/* Sets the function that runs for messages of `id` to `self`. Programs agree among themselves on
 * ids up to 127; the others belong to names (bp_ask_number). Without a function (NULL) the messages
 * are dropped, with their loans. */
void bp_set_handler(bp_member* self, unsigned char id, bp_handler handler, void* context);

/* Runs handlers and completions for what has arrived, about `budget` at most. Returns how many. */
unsigned bp_poll(bp_member* self, unsigned budget);

/* The same, once something has arrived; sleeps until then, at most `timeout_ms`. May return early,
 * and without having done anything: bp_poll comes next. Requires: a member of bp_own_member. */
void bp_wait(bp_member* self, unsigned timeout_ms);

/* ---- A member in another loop: one descriptor, for epoll, poll, libuv, GLib ----
 *
 *     int fd = bp_member_fd(self);
 *     for (;;) {
 *       while (bp_poll(self, 64) > 0) {}
 *       if (bp_member_arm(self)) wait_for(fd and others);
 *     } */

/* The descriptor of the member, always the same; it is for waiting alone, and Bedplate's. The first
 * call takes a thread with its stack. Errors: -1; bp_error_text says why.
 * Requires: the member is this process's (bp_own_member). */
int bp_member_fd(bp_member* self);

/* Before each wait: looks once more, and runs handlers and completions as bp_poll does. Returns 0
 * if there was something: poll on, and try again. 1: the descriptor becomes readable when something
 * comes, or the owner of the pool is gone; bp_poll makes it quiet, so call that after each wait,
 * whatever ended it. Requires: bp_member_fd. */
int bp_member_arm(bp_member* self);

/* A call for room: `call` runs once, from a later bp_poll or bp_wait, when the queue of a peer that
 * said BP_AGAIN takes messages again, or the peer is gone. Then try again; if that says BP_AGAIN
 * all the same (a loan, a long message), ask again, also from within the call. The caller leaves
 * the struct alone until then. */
typedef struct bp_room_call {
  uint64_t reserved[4];
  void (*call)(struct bp_room_call* self);
  void* context; /* for `call` */
} bp_room_call;
/* Asks for that call. The peer rings nobody for this: bp_wait returns, and bp_member_fd becomes
 * readable, now and then meanwhile, every 200 us at first. Requires: `room` does not wait
 * already. */
void bp_notify_room(bp_member* self, bp_endpoint* to, bp_room_call* room);
/* Takes the request back: `call` does not run any more. Does nothing if `room` does not wait. */
void bp_take_back_room(bp_member* self, bp_room_call* room);

/* Sends a copy of `payload` (may be NULL with 0 bytes). All that is sent through one endpoint, by
 * this and bp_am_send_loan, arrives in that order; what the peer has not read when it dies is lost.
 * Returns BP_DONE, BP_AGAIN, BP_GONE or BP_TOO_LONG. */
bp_status bp_am_send(bp_endpoint* to, unsigned char id, const void* payload, size_t bytes);

/* Lends `block` of the pool to the receiver, with a small header beside it (may be NULL with 0
 * bytes). With BP_PENDING it must not be changed or freed until it is given back; then `returned`
 * is called, or, if that is NULL, the block is freed by bp_free. With BP_DONE its bytes have been
 * copied. Else BP_AGAIN, BP_GONE, BP_TOO_LONG (the header) or BP_REFUSED. With all but BP_PENDING
 * the block stays the caller's, and `returned` is not called. */
bp_status bp_am_send_loan(bp_endpoint* to, unsigned char id, const void* header,
                          size_t header_bytes, void* block, size_t bytes, bp_completion* returned);

/* Gives a loan back, whether its lender still lives or not; does nothing if loan->provider is NULL.
 * Requires: it was not given back before. Threads: that of the member it came to. */
void bp_release(const bp_loan* loan);

/* Describes memory of this process to the peer, which may read and write it until bp_withdraw;
 * operations that are under way then have ended once a bp_flush that is started afterwards has
 * ended, or says BP_GONE. The memory stays until then. Returns 0. Errors: -1; bp_error_text says
 * why. */
int bp_expose(bp_endpoint* to, void* memory, size_t bytes, bp_remote* described);
void bp_withdraw(bp_endpoint* to, const bp_remote* described);

/* Copies `bytes` to the peer's memory, or from it; unordered until bp_flush. `done` is called,
 * once, if and only if BP_PENDING is returned, here and in all functions that follow. Until then
 * the memory must stay. Returns BP_DONE, BP_PENDING, BP_AGAIN, BP_GONE, BP_REFUSED or BP_TOO_LONG
 * (more than `remote` has). */
bp_status bp_put(bp_endpoint* to, const void* from, size_t bytes, const bp_remote* remote,
                 bp_completion* done);
bp_status bp_get(bp_endpoint* from, void* into, size_t bytes, const bp_remote* remote,
                 bp_completion* done);

/* Atomically adds to, or exchanges if it is `expected`, the 64-bit word at `remote`, aligned to 8
 * bytes; its value before goes to *before. Otherwise as bp_get. */
bp_status bp_fetch_add(bp_endpoint* to, const bp_remote* remote, uint64_t addend, uint64_t* before,
                       bp_completion* done);
bp_status bp_compare_swap(bp_endpoint* to, const bp_remote* remote, uint64_t expected,
                          uint64_t desired, uint64_t* before, bp_completion* done);

/* Ends when all puts, gets and atomics that were started before are done, and visible there. */
bp_status bp_flush(bp_endpoint* to, bp_completion* done);

/* A way to the peer called `name`. From a service's member (bp_shard_member): the shard, process or
 * other appliance that the configuration calls so. From a member of a process that joined: the
 * first living member of that name. Else as bp_connect. Errors: NULL; bp_error_text says why
 * not. */
bp_endpoint* bp_connect_by_name(bp_member* self, const char* name);

/* A question for a number. The caller leaves it alone until `answered` was called, once, with the
 * peer's number of the message, or -1: it has none of this name. */
typedef struct bp_number_query {
  uint64_t reserved[4];
  void (*answered)(struct bp_number_query* self, int number);
  void* context; /* for `answered` */
} bp_number_query;
/* Asks for the number of the peer's message "SERVICE.MESSAGE". Returns what bp_am_send does; only
 * with BP_DONE there will be an answer. */
bp_status bp_ask_number(bp_member* self, bp_endpoint* peer, const char* name,
                        bp_number_query* query);
/* Takes the question back: it is not answered any more, and `query` is the caller's again. For a
 * peer that died before it answered. Does nothing if it was not asked, or was answered. */
void bp_take_back_query(bp_member* self, bp_number_query* query);

/* ---- RDMA ----
 *
 * A process whose [[process]] has verbs = true may use the RDMA device of the appliance itself. All
 * of the pool that it may write is registered once, before it is ready; it makes its queue pairs
 * with libibverbs. docs/verbs.md says more. */

/* Lets bp_join open that device, too, and register with it. bp_join then fails if the process is
 * not planned to use verbs, or there is no device. Call it before bp_join. */
void bp_use_verbs(void);

/* Its protection domain, with its context, and its port. Ownership: Bedplate's.
 * Requires: bp_use_verbs and bp_join. Threads: any. */
struct ibv_pd* bp_verbs_domain(void);
unsigned bp_verbs_port(void);

/* The local key (lkey) of `memory` goes to *key. Returns how many of `bytes` it covers; the rest,
 * if any, has a key of its own. 0: there is no key, since the memory is not the pool's, or mapped
 * read-only. Threads: any. Requires: as above. */
size_t bp_verbs_key(const void* memory, size_t bytes, uint32_t* key);

#ifdef __cplusplus
}
#endif

#endif
