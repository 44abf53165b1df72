// Preloaded into perftest by verbs_bench.py: yields to the other side after each request that was
// given to a device through the kernel (soft RoCE).
//
// perftest polls and never yields. With one processor each side would use up its time slice first,
// and the benchmark would measure the scheduler. The kernel delivers the message within the call.
// So the other side finds it and answers; the two sides take turns, and neither polls in vain.
#define _GNU_SOURCE
#include <rdma/ib_user_verbs.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t write(int fd, const void *data, size_t bytes) {
  const ssize_t written = syscall(SYS_write, fd, data, bytes);
  struct ib_uverbs_cmd_hdr header;
  if (bytes != sizeof header + sizeof(struct ib_uverbs_post_send)) return written;
  memcpy(&header, data, sizeof header);
  if (header.command == IB_USER_VERBS_CMD_POST_SEND) sched_yield();
  return written;
}
