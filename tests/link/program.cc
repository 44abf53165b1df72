// Prints the owner of the memory that each allocation function returns, and uses the pool
// explicitly.
//
// tests/link/run.py links this one object with libbedplate.a alone and with libbedplate-malloc.a,
// in every kind of executable, and compares the output. Each line is `what: value`.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pinned_pool/pinned_pool.h"
#include "platform/units.h"

using namespace bedplate;

namespace {

// The compiler would remove blocks that are not used.
void* keep(void* block) {
  asm volatile("" : "+r"(block) : : "memory");
  return block;
}

const char* owner_of(const void* block) { return in_pool_range(block) ? "pool" : "own"; }

void tell(const char* what, void* block) {
  std::printf("%s: %s\n", what, block == nullptr ? "nothing" : owner_of(block));
}

void tell_and_free(const char* what, void* block) {
  tell(what, keep(block));
  std::free(block);
}

// Allocated before main, by a constructor.
const std::unique_ptr<char[]> early(new char[100]);

void tell_malloc_family() {
  constexpr size_t kBytes = 1000;
  tell_and_free("malloc", std::malloc(kBytes));
  tell_and_free("calloc", std::calloc(10, kBytes));
  tell_and_free("realloc", std::realloc(keep(std::malloc(10)), kBytes));
  tell_and_free("reallocarray", reallocarray(nullptr, 10, kBytes));
  tell_and_free("memalign", memalign(64, kBytes));
  tell_and_free("aligned_alloc", std::aligned_alloc(64, 1024));
  void* block = nullptr;
  if (posix_memalign(&block, 64, kBytes) == 0) tell_and_free("posix_memalign", block);
  tell_and_free("valloc", valloc(kBytes));
  // Not freed: jemalloc has no pvalloc. With jemalloc, free would crash on this block of libc.
  tell("pvalloc", keep(pvalloc(kBytes)));
  tell_and_free("large malloc", std::malloc(5 * kMiB));
  tell_and_free("strdup", strdup("text"));  // libc's own call of malloc
  mallinfo2();                              // if missing, libc's malloc.o would be linked in
}

void tell_new() {
  struct alignas(128) Aligned {
    char bytes[128];
  };
  const auto one = std::make_unique<int>(7);
  tell("new", keep(one.get()));
  const auto aligned = std::make_unique<Aligned>();
  tell("aligned new", keep(aligned.get()));
  std::string text(1000, 'x');
  tell("string", keep(text.data()));
}

// A fork sets libc's list of open streams (alloc/child_libc.h). The program's access to the list
// depends on the kind of executable; the fork stops the program if it reaches another list.
void tell_streams() {
  std::FILE* stream = std::fopen("/dev/null", "w");
  tell("fopen", stream);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  if (waitpid(child, &status, 0) != child || status != 0) std::printf("child: %d\n", status);
  std::fclose(stream);
}

// Code that requests memory of the pool gets it, whichever malloc the program has.
void use_the_pool() {
  auto created = process_pool().create_segment("explicit", 4 * kMiB, PageSize::k4KiB, 1);
  if (!created.ok()) {
    std::printf("explicit: %s\n", created.error().answer);
    return;
  }
  const auto memory = process_pool().carve(*created.value(), "explicit", kMiB);
  std::memset(memory.data(), 0x5A, memory.size());
  std::printf("explicit: %s\n",
              process_pool().contains(memory.data(), memory.size()) ? "pool" : "own");
}

}  // namespace

int main() {
  std::printf("before main: %s\n", owner_of(early.get()));
  std::printf("segments: %" PRIu32 "\n", process_pool().segment_count());
  if (process_pool().segment_count() > 0) {
    std::printf("segment 0: %s\n", format_bytes(process_pool().segment(0).bytes).text);
  }
  tell_malloc_family();
  tell_new();
  std::thread([] { tell_and_free("thread", std::malloc(100)); }).join();
  tell_streams();
  use_the_pool();
  return 0;
}
