/* A service in C: a small key-value store, `store run store.toml`. It has a line protocol over TCP
 * ("set KEY VALUE": STORED, or FULL; "get KEY": VALUE ..., or NONE), and answers the message
 * "store.get" (a byte: the answer's message number; the key) with the value. Key and value have at
 * most 31 bytes. On the control socket it deletes a key: bedplate ctl store.forget key=KEY. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bedplate_service.h"

enum { kText = 32, kLine = 256, kClients = 16 };
typedef struct {
  char key[kText], value[kText];
} entry;
typedef struct {
  bp_stream* stream;
  int is_open;
  size_t bytes; /* of `in`, so far */
  char in[kLine], out[kLine];
} client;

static struct {
  uint64_t entries_max, count;
  entry* entries;
  client clients[kClients];
  unsigned shard, open, is_draining;
  bp_context* context;
  bp_counter *gets, *hits;
} store = {.entries_max = 1024};

static entry* find(const char* key) {
  for (entry* e = store.entries; e != store.entries + store.count; ++e)
    if (strcmp(e->key, key) == 0) return e;
  return NULL;
}

static const char* get(const char* key) {
  const entry* found = find(key);
  bp_counter_add(store.gets, 1);
  bp_counter_add(store.hits, found != NULL);
  return found != NULL ? found->value : NULL;
}

static const char* set(const entry* given) {
  entry* slot = find(given->key);
  if (slot == NULL && store.count == store.entries_max) return "FULL\n";
  if (slot == NULL) slot = &store.entries[store.count++];
  *slot = *given;
  return "STORED\n";
}

static void answer(void* context, int64_t result);
static void on_received(void* context, int64_t result) {
  client* c = context;
  c->bytes += result > 0 ? (size_t)result : 0;
  answer(c, result > 0 ? 0 : -1);
}

/* Answers the first whole line, if any; the next line waits until the answer is sent. */
static void answer(void* context, int64_t result) {
  client* c = context;
  char* end = memchr(c->in, '\n', c->bytes);
  const size_t room = store.is_draining ? 0 : kLine - c->bytes;
  if (result < 0 || (end == NULL && room == 0)) {
    bp_stream_close(c->stream);
    c->is_open = 0;
    if (--store.open == 0 && store.is_draining) bp_drained(store.context);
  } else if (end == NULL) {
    bp_stream_receive(c->stream, c->in + c->bytes, room, 1, on_received, c);
  } else {
    entry given = {0};
    const char *found = NULL, *said = "ERROR\n";
    *end = '\0';
    if (sscanf(c->in, "set %31s %31s", given.key, given.value) == 2) said = set(&given);
    if (sscanf(c->in, "get %31s", given.key) == 1)
      said = (found = get(given.key)) ? "VALUE %s\n" : "NONE\n";
    snprintf(c->out, sizeof c->out, said, found);
    c->bytes -= (size_t)(end + 1 - c->in);
    memmove(c->in, end + 1, c->bytes);
    bp_stream_send(c->stream, c->out, strlen(c->out), answer, c);
  }
}

static void on_accepted(void* self, int fd) {
  (void)self;
  for (client* c = store.clients; c != store.clients + kClients; ++c) {
    if (c->is_open || bp_stream_open(c->stream, fd) != 0) continue;
    c->is_open = 1, c->bytes = 0, ++store.open;
    answer(c, 0);
    return;
  }
  close(fd);
}

static void on_message(void* self, const bp_message* message) {
  const unsigned char* payload = message->payload;
  char key[kText] = "";
  (void)self;
  bp_release(&message->loan); /* it has no use for one */
  if (message->bytes < 2 || message->bytes > kText) return;
  memcpy(key, payload + 1, message->bytes - 1);
  const char* found = get(key);
  bp_am_send(message->from, payload[0], found, found ? strlen(found) : 0);
}

/* On the shard. */
static void forget(void* self, bp_control_call* call) {
  char key[kText];
  entry* found = bp_control_text(call, "key", key, kText) < kText ? find(key) : NULL;
  (void)self;
  if (found == NULL) {
    bp_control_refuse(call, "forgetting a key", "there is no such key", "check it with: get KEY");
    return;
  }
  *found = store.entries[--store.count];
  bp_json* json = bp_control_result(call);
  bp_json_begin_object(json);
  bp_json_key(json, "left");
  bp_json_number(json, store.count);
  bp_json_end_object(json);
}

static void on_forget(void* self, bp_control_call* call) {
  bp_control_go_on(call, bp_loop_of(store.context, store.shard), forget, self);
}

static void methods(void* self, bp_methods* all) {
  static const bp_parameter key = {"key", BP_TEXT, 0, "Its name."};
  static const bp_method method = {
      "forget", &key, 1, "{\"left\": N}", "Forgets a key.", "a key that is there", on_forget};
  (void)self;
  bp_method_add(all, &method);
}

static void describe(void* self, bp_table* table) {
  (void)self;
  bp_table_listen(table, "listen", "Where it listens.");
  bp_table_shard(table, "shard", &store.shard, "The shard that serves it.");
  bp_table_integer(table, "entries", &store.entries_max, 1, 1000000,
                   "The most keys that it stores.");
}

static int plan(void* self, bp_plan* p) {
  (void)self;
  bp_plan_memory(p, "store", store.entries_max * sizeof(entry), store.shard);
  bp_plan_connections(p, store.shard, kClients, NULL);
  bp_plan_messages(p, store.shard);
  bp_plan_message(p, "get");
  bp_plan_counter(p, "gets", "requests", "Keys asked for.");
  bp_plan_at_a_glance(p, "gets", "requests");
  bp_plan_counter(p, "hits", "requests", "Keys that were found.");
  return 0;
}

static int create(void* self, bp_context* context) {
  const int number = bp_message_number(context, "get");
  bp_member* member = bp_shard_member(store.context = context, store.shard);
  store.entries = bp_carve(context, "store", NULL);
  if (store.entries == NULL || member == NULL || number < 0) return -1;
  store.gets = bp_counter_of(context, "gets");
  store.hits = bp_counter_of(context, "hits");
  for (client* c = store.clients; c != store.clients + kClients; ++c)
    c->stream = bp_stream_create(context, store.shard);
  bp_set_handler(member, (unsigned char)number, on_message, self);
  return bp_listen(context, "listen", store.shard, on_accepted, self);
}

/* Ends each client's transfers, which closes the connection; answers already sent still arrive. */
static void drain(void* self, unsigned shard) {
  (void)self;
  if (shard != store.shard) return;
  store.is_draining = 1;
  for (client* c = store.clients; c != store.clients + kClients; ++c)
    if (c->is_open) bp_stream_abort(c->stream);
  if (store.open == 0) bp_drained(store.context);
}

int main(int count, char** words) {
  static const bp_service service = {.name = "store",
                                     .describe = describe,
                                     .plan = plan,
                                     .create = create,
                                     .drain = drain,
                                     .methods = methods};
  return bp_main(count, words, &service, 1);
}
