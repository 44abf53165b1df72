// The quiet pipe and io_uring. The owner of a pool relies on the pipe before it gives the memory of
// a dead process to the next process.
#include <cstring>

#include <liburing.h>

#include "tests/pinned_pool/join/join_rig.h"
#include "tests/support/skip.h"
#include "transport/uring/uring_device.h"

using namespace bedplate;
using bedplate::test::Child;
using bedplate::test::JoinRig;
using Kind = JoinEvent::Kind;

namespace {

bool has_uring() {
  io_uring ring;
  if (io_uring_queue_init(2, &ring, 0) != 0) return false;
  io_uring_queue_exit(&ring);
  return true;
}

}  // namespace

TEST_GROUP(QuietPipe) { JoinRig rig; };

TEST(QuietPipe, IsHeldByARingOfAJoinedProcess) {
  if (!has_uring()) BP_SKIP("no io_uring here");
  rig.start();
  Child child = rig.fork_joiner([](JoinOptions& options) {
    io_uring ring;
    BP_PROBE_CHECK(io_uring_queue_init(2, &ring, 0) == 0);
    BP_PROBE_CHECK(hold_quiet_pipe(ring).ok());  // does nothing without a pipe
    JoinedPool joined = JoinedPool::join(options).take();
    BP_PROBE_CHECK(hold_quiet_pipe(ring).ok());
    ::close(quiet_fd());
    // The ring holds the pipe as its file 0, without a descriptor of the process.
    io_uring_sqe* entry = io_uring_get_sqe(&ring);
    io_uring_prep_write(entry, 0, "1", 1, 0);
    entry->flags |= IOSQE_FIXED_FILE;
    io_uring_cqe* completion = nullptr;
    BP_PROBE_CHECK(io_uring_submit_and_wait(&ring, 1) == 1);
    BP_PROBE_CHECK(io_uring_peek_cqe(&ring, &completion) == 0 && completion->res == 1);
  });
  LONGS_EQUAL(0, child.status());
  LONGS_EQUAL(1, rig.wait_for(Kind::kFreed));
}

TEST(QuietPipe, HangsUpOnlyWhenTheRingIsGone) {
  if (!has_uring()) BP_SKIP("no io_uring here");
  int quiet[2], data[2], said[2];
  CHECK(pipe(quiet) == 0 && pipe(data) == 0 && pipe(said) == 0);
  char* buffer = reinterpret_cast<char*>(rig.heaps[0]->address);
  Child child(fork());
  if (child.pid() == 0) {
    ::close(data[1]);
    io_uring ring;
    BP_PROBE_CHECK(io_uring_queue_init(2, &ring, 0) == 0);
    BP_PROBE_CHECK(io_uring_register_files(&ring, &quiet[1], 1) == 0);
    ::close(quiet[1]);
    io_uring_prep_read(io_uring_get_sqe(&ring), data[0], buffer, 64, 0);
    BP_PROBE_CHECK(io_uring_submit(&ring) == 1);
    BP_PROBE_CHECK(write(said[1], "1", 1) == 1);
    for (;;) pause();
  }
  ::close(quiet[1]);
  char text[64];
  CHECK(read(said[0], text, 1) == 1);
  pollfd hang_up = {quiet[0], 0, 0};
  LONGS_EQUAL(0, poll(&hang_up, 1, 0));  // only the ring has the other end
  child.kill_and_wait();
  CHECK(test::has_input(quiet[0]));
  // The read that was pending no longer writes into the buffer.
  std::memset(text, 'x', sizeof text);
  CHECK(write(data[1], text, sizeof text) == sizeof text);
  CHECK(buffer[0] == 0);
  for (const int fd : {quiet[0], data[0], data[1], said[0], said[1]}) ::close(fd);
}
