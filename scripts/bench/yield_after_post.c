// Preloaded into perftest by verbs_bench.py: after each request that was given to a device through
// the kernel (soft RoCE), the other side runs.
//
// perftest polls and never yields. With one processor each side would use up its time slice first,
// and the scheduler would be measured. The other side then finds what was sent, which the kernel
// has delivered within the call, and answers; so the two take turns, and nobody polls in vain.
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
