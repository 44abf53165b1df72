/* The yardstick of kvd_bench.py: the speed of a bare server of memcached's text protocol.
 *
 *     bare_kv_server PORT
 *
 * One thread, epoll without waiting (it spins), one receive and one send for each batch, one table
 * of fixed slots. It answers get and set of one key in kvd_client.c's format, whole in each
 * receive. It does nothing else that a real server must do: no limits, no eviction, no expiry, no
 * partial requests, no peers that do not read.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { kEntries = 1 << 18, kKeyMax = 16, kValueMax = 128, kBufferBytes = 1 << 18 };

struct entry {
  uint32_t key_bytes, value_bytes;
  char key[kKeyMax];
  char value[kValueMax];
};

static struct entry *entries;
static char in[kBufferBytes], out[4 * kBufferBytes];

static struct entry *find(const char *key, uint32_t bytes) {
  uint32_t hash = 2166136261u;
  for (uint32_t i = 0; i < bytes; ++i) hash = (hash ^ (uint8_t)key[i]) * 16777619u;
  for (;; ++hash) {
    struct entry *entry = &entries[hash % kEntries];
    if (entry->key_bytes == 0) return entry;
    if (entry->key_bytes == bytes && memcmp(entry->key, key, bytes) == 0) return entry;
  }
}

static char *append(char *to, const void *from, size_t bytes) {
  return (char *)memcpy(to, from, bytes) + bytes;
}

/* Returns the end of the answers. */
static char *answer(const char *from, const char *end) {
  char *to = out;
  while (from < end) {
    const char *key = from + 4;
    const char *line_end = memchr(key, '\n', (size_t)(end - key));
    if (line_end == NULL) exit(1);
    if (*from == 'g') {
      const struct entry *entry = find(key, (uint32_t)(line_end - 1 - key));
      if (entry->key_bytes != 0) {
        to = append(to, "VALUE ", 6);
        to = append(to, entry->key, entry->key_bytes);
        to += sprintf(to, " 0 %u\r\n", entry->value_bytes);
        to = append(to, entry->value, entry->value_bytes + 2);
      }
      to = append(to, "END\r\n", 5);
      from = line_end + 1;
    } else {
      const char *key_end = memchr(key, ' ', (size_t)(line_end - key));
      struct entry *entry = find(key, (uint32_t)(key_end - key));
      entry->key_bytes = (uint32_t)(key_end - key);
      memcpy(entry->key, key, entry->key_bytes);
      entry->value_bytes = (uint32_t)atoi(key_end + 4); /* behind " 0 0" */
      memcpy(entry->value, line_end + 1, entry->value_bytes + 2);
      to = append(to, "STORED\r\n", 8);
      from = line_end + 1 + entry->value_bytes + 2;
    }
  }
  return to;
}

int main(int count, char **words) {
  if (count != 2) return fprintf(stderr, "usage: see the source\n"), 2;
  entries = calloc(kEntries, sizeof *entries);
  const int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1, epoll = epoll_create1(0);
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons((unsigned short)atoi(words[1])),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
      listen(listener, 128) != 0)
    return perror("bare_kv_server: listening"), 1;
  struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[64];
  epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
  for (;;) {
    const int ready = epoll_wait(epoll, events, 64, 0);
    for (int i = 0; i < ready; ++i) {
      const int fd = events[i].data.fd;
      if (fd == listener) {
        event.data.fd = accept(listener, NULL, NULL);
        setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
        continue;
      }
      const ssize_t received = recv(fd, in, sizeof in, MSG_DONTWAIT);
      if (received > 0) {
        const char *end = answer(in, in + received);
        if (send(fd, out, (size_t)(end - out), MSG_NOSIGNAL) == end - out) continue;
      }
      close(fd);
    }
  }
}
