// Checks descriptors 0 to 2, some of which were closed when the program started. The exit code is 0
// if all are open, none belongs to a segment, and printing does not change the pool.
//
// tests/link/run.py links it with libbedplate.a alone and with libbedplate-malloc.a.
#include <cstdio>

#include <fcntl.h>
#include <unistd.h>

#include "pinned_pool/boot_segment.h"
#include "pinned_pool/pinned_pool.h"

using namespace bedplate;

int main() {
  Segment& boot = boot_segment();
  auto created = process_pool().create_segment("explicit", 4 * kMiB, PageSize::k4KiB, 1);
  if (!created.ok()) return 10;
  const Segment& segment = *created.value();
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) return 20 + stream;
  }
  // Segment 0 is private memory, and has no descriptor.
  if (!boot.is_private() || segment.memfd <= STDERR_FILENO) return 30;
  for (int line = 0; line < 100; ++line) {
    std::fprintf(stderr, "a line that must not land in the pool\n");
    std::printf("nor may this one\n");
  }
  std::fflush(stdout);
  // Nobody has written through the segment's descriptor.
  if (lseek(segment.memfd, 0, SEEK_CUR) != 0) return 40;
  return segment.address[0] == std::byte{0} ? 0 : 50;
}
