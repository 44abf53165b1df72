/* Requests and replies over streams in C, a part of bedplate_service.h, which includes this file
 * (docs/services.md; transport/sockets/stream_session_datapath.h, whose rules hold here).
 *
 *     plan      bp_plan_server(plan, "clients", shard, 64, "max_connections", &protocol);
 *     create    bp_server_listen(context, "clients", "listen");
 *     work      one step: takes a request of the bytes that have arrived, and answers it
 *
 * With bp_table_tls in describe the clients may speak TLS.
 *
 * Bedplate does the rest: it accepts clients, up to the planned number, receives and sends, closes
 * connections and drains them; drain and bp_drained are needed only if the service has more to end.
 * All functions here run on the server's shard unless a comment says otherwise. */
#ifndef BEDPLATE_SESSION_H
#define BEDPLATE_SESSION_H

#include "bedplate_service.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bp_session bp_session; /* of one client; it serves clients one after another */
typedef struct bp_later bp_later;     /* an answer that comes later */

/* The outcome of a step. */
typedef enum bp_step {
  BP_TAKEN,   /* it took a request, or went on with one: the next step may follow at once */
  BP_STARVED, /* it needs more bytes: the next step comes when more have arrived */
  BP_WAITS    /* it waits for something else: the next step comes after bp_session_resume */
} bp_step;

/* TLS of a client. */
typedef enum bp_tls {
  BP_TLS_NONE,     /* it has none, and gets none */
  BP_TLS_OFFERED,  /* it speaks in clear, and may begin TLS */
  BP_TLS_REQUIRED, /* it speaks in clear, and is served nothing but the request for TLS */
  BP_TLS_BEGUN     /* all that arrives has come within TLS */
} bp_tls;

/* Limits of one step: bytes by bp_session_say, and loans by bp_session_lend. */
enum { BP_STEP_TEXT_BYTES = 2048, BP_STEP_LOANS = 1 };
/* For bp_protocol: no answer is late. */
#define BP_ANSWERS_ANY_TIME (~0U)
/* The stations of traced requests, for bp_plan_trace. */
#define BP_SESSION_STATIONS "received|answered|sent"

/* A protocol. It is copied. */
typedef struct bp_protocol {
  void* self; /* passed to all functions */
  bp_step (*work)(void* self, bp_session* session, uint64_t now_ns);
  /* The bytes that were lent with `loan` were sent, or never will be. NULL: nothing is lent. */
  void (*released)(void* self, bp_session* session, void* loan);
  /* The client has gone, perhaps in mid-request. Each waiting answer is still finished, and a
   * waiting session resumed. May be NULL. */
  void (*left)(void* self, bp_session* session);
  size_t input_bytes;   /* the longest request, without a body that bp_session_fill takes */
  size_t output_bytes;  /* of bp_session_say in one send: at least 2 * BP_STEP_TEXT_BYTES */
  size_t state_bytes;   /* of bp_session_state, for each session */
  unsigned later_count; /* how many answers of a session may wait at once */
  int any_order;        /* 1: answers are sent as they are finished, not in the order of requests */
  int is_traced;        /* 1: requests are traced; bp_plan_trace was called */
  unsigned silence_s_max; /* a client that is silent for so long is disconnected; 0: never */
  unsigned answer_s_max;  /* an answer that has not come for so long is counted and raises an alert;
                             0: ten seconds; BP_ANSWERS_ANY_TIME: never */
  int has_tls_on_request; /* 1: clients begin in clear, and the protocol begins TLS when they ask
                             for it (STARTTLS); 0: clients of TLS begin with it, and speak first */
} bp_protocol;

/* Describes tls_certificate, tls_key, tls_client_authorities and tls_shared_keys in the service's
 * table: in describe, once. If the configuration has them, all servers of the service have TLS, and
 * other machines may reach them; the key plain_text says where clients without TLS are served
 * (docs/services.md#tls). A handshake may take ten seconds. `page`: the document that the keys
 * refer to, as "cache.md#tls"; NULL: that of Bedplate. The program links bedplate-tls. */
void bp_table_tls(bp_table* table, const char* page);
/* Plans a server: memory, counters, and `connections` clients at once on `shard`. `key` of the
 * table sets their number, or NULL. `name` is 1 to 20 of a-z, 0-9 and -. */
void bp_plan_server(bp_plan* plan, const char* name, unsigned shard, unsigned connections,
                    const char* key, const bp_protocol* protocol);
/* Plans a server on several shards, such as those of bp_table_shards_or_all, which serve as one:
 * each has a socket at each TCP address of the key `listen`, and one that is full gives clients to
 * one with room. `connections` is the total, divided over the shards and rounded up. The functions
 * of the protocol are called on all these shards, at the same time; each counter and histogram of
 * the service still has one writer. The server's counters are kept for each shard, with their sum;
 * so a service has one such server. */
void bp_plan_server_on(bp_plan* plan, const char* name, const unsigned* shards, size_t shard_count,
                       unsigned connections, const char* key, const char* listen,
                       const bp_protocol* protocol);
/* Creates the server that was planned as `name`, which serves the clients at the addresses of the
 * key `listen` from the start to the drain: in create. Errors: -1: it is not planned, or its table
 * has no addresses under this key, or the server was created before. */
int bp_server_listen(bp_context* context, const char* name, const char* listen);

/* ---- In `work` alone ---- */

/* The bytes that have arrived and were not taken: *bytes of them. They move between steps. The line
 * function gives the first line with its '\n'; 0 bytes: it is not complete yet. */
const char* bp_session_arrived(const bp_session* session, size_t* bytes);
const char* bp_session_arrived_line(const bp_session* session, size_t* bytes);
/* Whether nothing more can arrive until some bytes are taken. */
int bp_session_is_input_full(const bp_session* session);
/* Takes bytes that have arrived from the front. */
void bp_session_take(bp_session* session, size_t bytes);
/* Drops `bytes` before the next step, also bytes that have yet to arrive; or puts the next `bytes`
 * into `memory`, which stays until the next step or `left`. Requires: at most one of them in a
 * step, once. */
void bp_session_skip(bp_session* session, uint64_t bytes);
void bp_session_fill(bp_session* session, void* memory, uint64_t bytes);
/* Skips further steps until so many bytes have arrived: before BP_STARVED. Requires: more than have
 * arrived, and not more than input_bytes. */
void bp_session_want(bp_session* session, uint64_t arrived_bytes);
/* Appends a copy of the text, or a number in decimal, to the replies; or, without a copy, text that
 * stays unchanged until released(loan). */
void bp_session_say(bp_session* session, const char* text, size_t bytes);
void bp_session_say_number(bp_session* session, uint64_t number);
void bp_session_lend(bp_session* session, const void* text, size_t bytes, void* loan);
/* A request is answered: its time, until the socket takes the reply, goes to the histogram. `kind`:
 * a number of bp_plan_trace. */
void bp_session_answered(bp_session* session, bp_histogram* time_ns, unsigned kind);
/* Ends the session: no further step; it closes once all is sent. Or at once, since the client
 * speaks another protocol, `what`, a static text. */
void bp_session_end(bp_session* session);
void bp_session_end_foreign(bp_session* session, const char* what);
/* Makes the answer of this step one that comes later, behind what the step has said so far. The
 * protocol fills it and finishes it once. Requires: later_count is not 0; once in a step, and then
 * neither say, lend nor answered. */
bp_later* bp_session_later(bp_session* session);
/* TLS of the client. If it may begin and the client asks for it, the step takes the request, says
 * its reply and calls bp_session_start_tls: TLS begins once all answers have come and all replies
 * are sent, and the next step comes then. If bytes have arrived behind the request, the client is
 * disconnected at once: a third party may have injected them. Forget what it has said in clear. */
bp_tls bp_session_tls(bp_session* session);
void bp_session_start_tls(bp_session* session);

/* ---- At any time, also from completions ---- */

/* Memory of the protocol for this session, zeroed at the boot. */
void* bp_session_state(bp_session* session);
/* The shard of this session, by its number: all that the session does is on its thread. */
unsigned bp_session_shard(const bp_session* session);
/* Ends the wait of a step that returned BP_WAITS. Not from within `work`. `now_ns`: the loop's. */
void bp_session_resume(bp_session* session, uint64_t now_ns);
/* Whether the client has gone, so that nobody needs an answer. */
int bp_session_has_left(const bp_session* session);

/* The same for an answer that comes later: at most BP_STEP_TEXT_BYTES of text in all, and one loan.
 * bp_later_finish completes it; it is the session's again. */
void bp_later_say(bp_later* later, const char* text, size_t bytes);
void bp_later_say_number(bp_later* later, uint64_t number);
void bp_later_lend(bp_later* later, const void* text, size_t bytes, void* loan);
void bp_later_answered(bp_later* later, bp_histogram* time_ns, unsigned kind);
int bp_later_is_wanted(const bp_later* later);
void bp_later_finish(bp_later* later, uint64_t now_ns);

#ifdef __cplusplus
}
#endif

#endif
