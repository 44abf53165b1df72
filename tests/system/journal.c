/* A service for tests/system, in a product of its own, journald: one planned file, and a client
 * whose lines are the commands for it.
 *
 *     read OFFSET BYTES       "read N TEXT" once it has ended, with N bytes
 *     write OFFSET TEXT       "write N"
 *     sync                    "sync 0"
 *     block MILLISECONDS      blocks the shard for so long: "block 0"
 *
 * An error is reported as the errno: "read -5". A drain waits for nothing: the runtime must end
 * operations that hang. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bedplate_service.h"

enum { kLine = 512, kText = 256 };

static struct {
  const char* path;
  uint64_t bytes_min;
  int is_read_only;
  unsigned shard;
  bp_file* file;
  bp_file_operation operation;
  bp_stream* stream;
  int is_busy; /* with its client */
  size_t bytes;
  char in[kLine], word[16], text[kText + 1], out[kLine];
} journal = {.path = ""};

static void on_sent(void* context, int64_t result);

static void answer(int64_t result) {
  const int is_text = strcmp(journal.word, "read") == 0 && result > 0;
  if (is_text) journal.text[result] = '\0';
  const int bytes = snprintf(journal.out, sizeof journal.out, "%s %lld%s%s\n", journal.word,
                             (long long)result, is_text ? " " : "", is_text ? journal.text : "");
  bp_stream_send(journal.stream, journal.out, (size_t)bytes, on_sent, NULL);
}

static void on_done(void* context, int64_t result) {
  (void)context;
  answer(result);
}

static void block(unsigned long long ms) {
  const struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};
  nanosleep(&time, NULL);
  answer(0);
}

static void obey(const char* line) {
  bp_file_operation* o = &journal.operation;
  unsigned long long offset = 0, count = 0;
  if (sscanf(line, "%15s", journal.word) != 1) strcpy(journal.word, "?");
  if (sscanf(line, "read %llu %llu", &offset, &count) == 2 && count <= kText)
    bp_file_read(journal.file, o, journal.text, count, offset, on_done, NULL);
  else if (sscanf(line, "write %llu %256s", &offset, journal.text) == 2)
    bp_file_write(journal.file, o, journal.text, strlen(journal.text), offset, on_done, NULL);
  else if (strcmp(line, "sync") == 0) bp_file_sync(journal.file, o, 0, on_done, NULL);
  else if (sscanf(line, "block %llu", &count) == 1) block(count);
  else answer(-1);
}

static void on_received(void* context, int64_t result) {
  (void)context;
  char* end = NULL;
  journal.bytes += result > 0 ? (size_t)result : 0;
  if (result <= 0 || journal.bytes == kLine) {
    bp_stream_close(journal.stream);
    journal.is_busy = 0;
  } else if ((end = memchr(journal.in, '\n', journal.bytes)) == NULL) {
    bp_stream_receive(journal.stream, journal.in + journal.bytes, kLine - journal.bytes, 1,
                      on_received, NULL);
  } else {
    *end = '\0';
    obey(journal.in);
  }
}

/* The next line comes when the client has its answer. */
static void on_sent(void* context, int64_t result) {
  journal.bytes = 0;
  if (result < 0) return on_received(context, result);
  bp_stream_receive(journal.stream, journal.in, kLine, 1, on_received, NULL);
}

static void on_accepted(void* self, int fd) {
  (void)self;
  if (journal.is_busy || bp_stream_open(journal.stream, fd) != 0) {
    close(fd);
    return;
  }
  journal.is_busy = 1;
  on_sent(NULL, 0);
}

static void describe(void* self, bp_table* table) {
  (void)self;
  bp_table_listen(table, "listen", "Its addresses.");
  bp_table_text(table, "file", &journal.path, 255, "The file.");
  bp_table_size(table, "bytes_min", &journal.bytes_min, 0, 1 << 30, "How long it is at least.");
  bp_table_boolean(table, "read_only", &journal.is_read_only, "Whether it is never written to.");
}

static int plan(void* self, bp_plan* p) {
  (void)self;
  bp_plan_file(p, "log", journal.shard, journal.path, "file",
               journal.is_read_only ? 0 : BP_FILE_WRITABLE, 4);
  bp_plan_connections(p, journal.shard, 1, NULL);
  return 0;
}

static int create(void* self, bp_context* context) {
  journal.file = bp_file_of(context, "log");
  journal.stream = bp_stream_create(context, journal.shard);
  if (journal.file == NULL || journal.stream == NULL) return -1;
  if (bp_file_bytes(journal.file) < journal.bytes_min)
    return bp_fail("reading the log", "it is shorter than bytes_min in [journal]",
                   "name another file, or make it longer (truncate)");
  return bp_listen(context, "listen", journal.shard, on_accepted, self);
}

int main(int count, char** words) {
  static const bp_service service = {
      .name = "journal", .describe = describe, .plan = plan, .create = create};
  bp_set_product("journald", "2.1", "a journal in one file");
  return bp_main(count, words, &service, 1);
}
