/* Two c-peers use every function of the C interface on each other, and check the results:
 * `c-peer SOCKET ann bob` serves, `c-peer SOCKET bob ann use` uses it. `c-peer SOCKET probe OWNER
 * stranger` is an untrusted process: it does what it may, tries what it may not, reports that on
 * standard output, and waits for its end. `c-peer SOCKET worker OWNER verbs` uses the owner's RDMA
 * device. Exit code 0: all checks have passed. Otherwise the failed check is on standard error.
 * Built by `make tests`. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bedplate.h"

#define CHECK(condition)                                                               \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      fprintf(stderr, "c_peer.c:%d: %s; %s\n", __LINE__, #condition, bp_error_text()); \
      exit(1);                                                                         \
    }                                                                                  \
  } while (0)

enum { kMemory = 1, kLoan = 2, kEnd = 3, kLoanBytes = 100000, kOfferBytes = 4096 };

struct offer { /* the payload of kMemory */
  bp_remote counter;
  bp_remote buffer;
};

static bp_member* self;
static struct offer offered;
static bp_loan borrowed;
static int has_offer, has_ended, has_loan, ended_count;

static void on_message(void* context, const bp_message* message) {
  CHECK(context == &offered);
  if (message->id == kMemory) {
    CHECK(message->bytes == sizeof offered && message->loan.provider == NULL);
    memcpy(&offered, message->payload, sizeof offered);
    has_offer = 1;
  } else if (message->id == kLoan) {
    CHECK(message->bytes == 6 && memcmp(message->payload, "header", 6) == 0);
    CHECK(message->loan.bytes == kLoanBytes);
    borrowed = message->loan;
    has_loan = 1;
  } else {
    has_ended = 1;
  }
}

static void on_end(bp_completion* completion, bp_outcome outcome) {
  CHECK(outcome == BP_OUTCOME_DONE && completion->context == &ended_count);
  ++ended_count;
}

static void poll_until(const int* flag) {
  struct pollfd member = {bp_member_fd(self), POLLIN, 0};
  CHECK(member.fd >= 0);
  while (!*flag) {
    if (bp_poll(self, 16) > 0 || !bp_member_arm(self)) continue;
    CHECK(poll(&member, 1, 60000) == 1); /* only a hang takes so long */
  }
}

/* Waits for the end of an operation that was accepted. */
static void finish(bp_status status, int* ended_before) {
  if (status != BP_DONE && status != BP_PENDING) fprintf(stderr, "%s\n", bp_status_text(status));
  CHECK(status == BP_DONE || status == BP_PENDING);
  if (status == BP_PENDING) {
    while (ended_count == *ended_before) {
      if (bp_poll(self, 16) == 0) bp_wait(self, 100);
    }
  }
  *ended_before = ended_count;
}

static void serve(bp_endpoint* peer) {
  static uint64_t counter = 5;
  char* buffer = bp_alloc(kOfferBytes);
  CHECK(buffer != NULL);
  memset(buffer, 'b', kOfferBytes);
  struct offer offer;
  CHECK(bp_expose(peer, &counter, sizeof counter, &offer.counter) == 0);
  CHECK(bp_expose(peer, buffer, kOfferBytes, &offer.buffer) == 0);
  CHECK(bp_am_send(peer, kMemory, &offer, sizeof offer) == BP_DONE);
  poll_until(&has_loan);
  for (int i = 0; i < kLoanBytes; ++i) CHECK(((const char*)borrowed.memory)[i] == 'l');
  bp_release(&borrowed);
  poll_until(&has_ended);
  CHECK(counter == 100);
  for (int i = 0; i < kOfferBytes; ++i) CHECK(buffer[i] == (i < 1000 ? 'p' : 'b'));
  bp_withdraw(peer, &offer.counter);
  bp_withdraw(peer, &offer.buffer);
}

static void on_room(bp_room_call* room) { ++*(int*)room->context; }

/* There is room, so the next poll calls `room`, but not `other`, which was taken back. */
static void wait_for_room(bp_endpoint* peer) {
  int told = 0, taken_back = 0;
  bp_room_call room = {.call = on_room, .context = &told};
  bp_room_call other = {.call = on_room, .context = &taken_back};
  bp_notify_room(self, peer, &other);
  bp_notify_room(self, peer, &room);
  bp_take_back_room(self, &other);
  CHECK(told == 0);
  poll_until(&told);
  CHECK(told == 1 && taken_back == 0);
}

static void use(bp_endpoint* peer) {
  bp_completion done = {NULL, on_end, &ended_count};
  int ended = 0;
  static char mine[kOfferBytes];
  uint64_t before = 0;
  poll_until(&has_offer);
  wait_for_room(peer);
  memset(mine, 'p', sizeof mine);
  finish(bp_put(peer, mine, 1000, &offered.buffer, &done), &ended);
  finish(bp_flush(peer, &done), &ended);
  finish(bp_get(peer, mine, sizeof mine, &offered.buffer, &done), &ended);
  for (int i = 0; i < kOfferBytes; ++i) CHECK(mine[i] == (i < 1000 ? 'p' : 'b'));
  finish(bp_fetch_add(peer, &offered.counter, 37, &before, &done), &ended);
  CHECK(before == 5);
  finish(bp_compare_swap(peer, &offered.counter, 42, 100, &before, &done), &ended);
  CHECK(before == 42);
  CHECK(bp_put(peer, mine, kOfferBytes + 1, &offered.buffer, &done) == BP_TOO_LONG);
  CHECK(bp_am_send(peer, kMemory, mine, (size_t)1 << 20) == BP_TOO_LONG);

  char* block = bp_alloc(kLoanBytes);
  CHECK(block != NULL);
  memset(block, 'l', kLoanBytes);
  finish(bp_am_send_loan(peer, kLoan, "header", 6, block, kLoanBytes, &done), &ended);
  bp_free(block);
  CHECK(bp_am_send(peer, kEnd, NULL, 0) == BP_DONE);
}

/* The owner receives everything, and its only answer is to return loans. */
static void be_stranger(bp_endpoint* owner) {
  bp_completion done = {NULL, on_end, &ended_count};
  int ended = 0;
  char text[1000] = "";
  for (int i = 0; i < 10000; ++i) { /* more than its box holds, so all but the last were read */
    bp_status status;
    while ((status = bp_am_send(owner, kEnd, text, (size_t)i % sizeof text)) == BP_AGAIN) {
      bp_poll(self, 16);
    }
    CHECK(status == BP_DONE);
  }
  char* block = bp_alloc(kLoanBytes);
  CHECK(block != NULL);
  finish(bp_am_send_loan(owner, kLoan, "header", 6, block, kLoanBytes, &done), &ended);
  CHECK(ended == 1);

  CHECK(bp_am_send_loan(owner, kLoan, NULL, 0, text, sizeof text, &done) == BP_REFUSED);
  uint64_t kinds[] = {0, 1, 2}; /* private memory, the pool's, an unknown kind */
  for (int i = 0; i < 3; ++i) {
    /* Its own block's region, or the one before or behind it: segments of others. */
    for (int region = -1; region <= 1; ++region) {
      bp_remote forged = {(uint64_t)(uintptr_t)block + ((uint64_t)(int64_t)region << 30), 8, 0,
                          kinds[i]};
      if (kinds[i] == 1 && region == 0) continue; /* its own memory */
      CHECK(bp_put(owner, text, 8, &forged, &done) == BP_REFUSED);
      CHECK(bp_fetch_add(owner, &forged, 1, NULL, &done) == BP_REFUSED);
    }
  }
  CHECK(bp_find_member("ann") == -1 && bp_find_member("bob") == -1);
  CHECK(bp_connect(self, 2) == NULL && strstr(bp_error_text(), "the group has 2 members") != NULL);
  CHECK(ended_count == 1);
  puts("has tried all");
  fflush(stdout);
  for (;;) bp_wait(self, 1000);
}

/* Checks that every byte of malloc's memory has a key, and that other memory has none. */
static void look_at_keys(void) {
  uint32_t key = 0, other = 0;
  char* block = bp_alloc(kLoanBytes);
  CHECK(block != NULL && bp_verbs_key(block, kLoanBytes, &key) == kLoanBytes);
  CHECK(bp_verbs_key(block + kLoanBytes - 1, 1, &other) == 1 && other == key);
  CHECK(bp_verbs_key(&key, sizeof key, &other) == 0);
  CHECK(bp_verbs_domain() != NULL && bp_verbs_port() == 1);
  bp_free(block);
}

/* ---- Asks the owner's service for the value of a key, by the name of its message ---- */

enum { kAnswer = 7 };
static int number_of_get, has_number, has_value;

static void on_number(bp_number_query* query, int number) {
  CHECK(query->context == &has_number);
  number_of_get = number;
  has_number = 1;
}

static void on_value(void* context, const bp_message* message) {
  (void)context;
  printf("value: %.*s\n", (int)message->bytes, (const char*)message->payload);
  has_value = 1;
}

static void ask_store(const char* owner, const char* key) {
  static bp_number_query query;
  char question[64] = {kAnswer};
  CHECK(bp_connect_by_name(self, "nobody") == NULL &&
        strstr(bp_error_text(), "no living member has this name") != NULL);
  bp_endpoint* store = bp_connect_by_name(self, owner);
  CHECK(store != NULL);
  bp_set_handler(self, kAnswer, on_value, NULL);
  query.answered = on_number;
  query.context = &has_number;
  bp_number_query taken_back = {.answered = on_number};
  CHECK(bp_ask_number(self, store, "store.get", &taken_back) == BP_DONE);
  bp_take_back_query(self, &taken_back);
  CHECK(bp_ask_number(self, store, "store.put", &query) == BP_DONE);
  poll_until(&has_number);
  CHECK(number_of_get == -1);
  has_number = 0;
  CHECK(bp_ask_number(self, store, "store.get", &query) == BP_DONE);
  poll_until(&has_number);
  CHECK(number_of_get >= 128);
  memcpy(question + 1, key, strlen(key));
  CHECK(bp_am_send(store, (unsigned char)number_of_get, question, 1 + strlen(key)) == BP_DONE);
  poll_until(&has_value);
}

int main(int count, char** words) {
  if (count < 4) return 2;
  const int has_verbs = count > 4 && strcmp(words[4], "verbs") == 0;
  if (has_verbs) bp_use_verbs();
  CHECK(bp_join(words[1], words[2], 1, 60000) == 0); /* only a hang takes so long */
  self = bp_own_member(0);
  for (unsigned char id = kMemory; id <= kEnd; ++id) {
    bp_set_handler(self, id, on_message, &offered);
  }
  CHECK(bp_connect(self, bp_member_number(self)) == NULL); /* oneself, over shared memory */
  CHECK(bp_connect(self, 999) == NULL && strstr(bp_error_text(), "999") != NULL);
  int number;
  while ((number = bp_find_member(words[3])) < 0) bp_wait(self, 100);
  bp_endpoint* peer = bp_connect(self, (unsigned)number);
  CHECK(peer != NULL);
  if (count > 5 && strcmp(words[4], "store") == 0) {
    ask_store(words[3], words[5]);
  } else if (has_verbs) {
    look_at_keys();
  } else if (count > 4 && strcmp(words[4], "stranger") == 0) {
    be_stranger(peer);
  } else if (count > 4) {
    use(peer);
  } else {
    serve(peer);
  }
  bp_leave();
  return 0;
}
