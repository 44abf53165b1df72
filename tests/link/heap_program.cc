// Exhausts the heap, then adds to it and exhausts it again for each pair of arguments, and prints
// whether it got the memory: heap_program [BYTES PAGE_BYTES]...
//
// tests/link/run.py compares the output. The C interface and the C++ one alternate.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "alloc/added_heap.h"
#include "alloc/pool_heap.h"
#include "apps/c_interface/bedplate.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/units.h"

using namespace bedplate;

namespace {

// Takes the free heap in blocks of 1 MiB, and writes to them. Returns the number of blocks.
int take_all() {
  int count = 0;
  while (void* block = bp_alloc(kMiB)) {
    std::memset(block, 0x5a, kMiB);
    ++count;
  }
  return count;
}

const char* add(int turn, size_t bytes, size_t page) {
  if (turn % 2 == 0) return bp_add_heap(bytes, page) == 0 ? "added" : bp_error_text();
  static char text[1024];
  auto added = add_heap(bytes, static_cast<PageSize>(page));
  return added.ok() ? "added" : format_error(added.error(), text, sizeof text);
}

}  // namespace

int main(int count, char** words) {
  std::printf("at first: %s\n", take_all() > 0 ? "some" : "none");
  for (int i = 1; i + 1 < count; i += 2) {
    const size_t bytes = std::strtoull(words[i], nullptr, 0);
    std::printf("%s of %s: %s\n", words[i], words[i + 1],
                add(i / 2, bytes, std::strtoull(words[i + 1], nullptr, 0)));
    // Each block needs somewhat more than 1 MiB.
    std::printf("then: %s\n",
                static_cast<uint64_t>(take_all()) * kMiB >= bytes / 2 ? "as much" : "less");
  }
  if (count > 1 && bp_join("/nowhere", "none", 1, 0) != 0)
    std::printf("joins: %s\n", bp_error_text());
  const PinnedPool& pool = process_pool();
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const Segment& segment = pool.segment(i);
    std::printf("segment %u: %s in pages of %s\n", i, format_bytes(segment.bytes).text,
                format_bytes(page_bytes(segment.page)).text);
  }
  char text[512];
  bp_audit(text, sizeof text);
  std::printf("audit: %s\n", text);
  return 0;
}
