// Forks, and prints how its children see the heap: fork_program WHAT.
//
// tests/link/run.py compares the output. The blocks come from bp_alloc, so they lie in the pool's
// heap whichever malloc the program has.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/c_interface/bedplate.h"
#include "pinned_pool/pinned_pool.h"

using namespace bedplate;

namespace {

struct Block {
  unsigned char* memory = nullptr;
  size_t bytes = 0;
};

void take(Block& block, size_t bytes, unsigned char byte) {
  bp_free(block.memory);
  block = {static_cast<unsigned char*>(bp_alloc(bytes)), bytes};
  if (block.memory == nullptr) _exit(90);
  std::memset(block.memory, byte, bytes);
}

bool is_all(const Block& block, unsigned char byte) {
  return std::all_of(block.memory, block.memory + block.bytes,
                     [byte](unsigned char found) { return found == byte; });
}

bool are_all(const std::vector<Block>& blocks, unsigned char byte) {
  return std::all_of(blocks.begin(), blocks.end(),
                     [byte](const Block& block) { return is_all(block, byte); });
}

// Fills blocks of many sizes, up to 8 MiB. Replaces every third block by a new one.
void fill(std::vector<Block>& blocks, unsigned char byte) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t bytes = i == 0 ? 8 * kMiB : 16 + i * i % 60'000;
    if (blocks[i].memory == nullptr || i % 3 == 0) take(blocks[i], bytes, byte);
    std::memset(blocks[i].memory, byte, blocks[i].bytes);
  }
}

int code_of(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Parent and child change the blocks in turn, and check that they do not see the other's changes.
void tell_snapshot() {
  std::vector<Block> blocks(400);
  fill(blocks, 'A');
  int go_on[2];
  int done[2];
  char byte = 0;
  if (pipe(go_on) != 0 || pipe(done) != 0) _exit(91);
  const pid_t child = fork();
  if (child == 0) {
    if (read(go_on[0], &byte, 1) != 1) _exit(92);
    const bool is_whole = are_all(blocks, 'A');
    fill(blocks, 'C');
    if (write(done[1], "", 1) != 1 || read(go_on[0], &byte, 1) != 1) _exit(93);
    for (Block& block : blocks) bp_free(block.memory);
    _exit(is_whole ? 0 : 1);
  }
  fill(blocks, 'B');
  if (write(go_on[1], "", 1) != 1 || read(done[0], &byte, 1) != 1) _exit(94);
  std::printf("parent: %s\n", are_all(blocks, 'B') ? "as it left it" : "changed by its child");
  fill(blocks, 'D');
  if (write(go_on[1], "", 1) != 1) _exit(95);
  const int code = code_of(child);
  std::printf("child: %s\n", code == 0 ? "as it was" : code == 1 ? "torn" : "failed");
}

// Parent and child write one block: a child may do no more with a shared heap.
void tell_sight() {
  auto* block = static_cast<char*>(bp_alloc(100));
  int ends[2];
  char byte = 0;
  *block = 'A';
  if (pipe(ends) != 0) _exit(91);
  const pid_t child = fork();
  if (child == 0) {
    if (read(ends[0], &byte, 1) != 1) _exit(92);
    const bool is_as_it_was = *block == 'A';
    *block = 'C';
    _exit(is_as_it_was ? 0 : 1);
  }
  *block = 'B';
  if (write(ends[1], "", 1) != 1) _exit(93);
  std::printf("child sees: %s\n", code_of(child) == 0 ? "what was" : "what is");
  std::printf("parent sees: %s\n", *block == 'B' ? "its own" : "its child's");
}

// Whether a new thread, and then this thread, can take the whole heap and free it.
bool has_whole_heap() {
  const auto take_all = [] {
    std::vector<void*> taken;
    taken.reserve(100'000);
    for (size_t bytes = 4 * kMiB; bytes >= 64; bytes /= 4) {
      while (taken.size() < taken.capacity()) {
        void* block = bp_alloc(bytes);
        if (block == nullptr) break;
        taken.push_back(std::memset(block, 1, bytes));
      }
    }
    for (void* block : taken) bp_free(block);
    return taken.size();
  };
  size_t of_thread = 0;
  std::thread([&] { of_thread = take_all(); }).join();
  return take_all() > 10 && of_thread > 10;
}

// The parent forks while its threads are inside all kinds of heap functions.
void tell_threads() {
  std::atomic<bool> must_stop{false};
  std::atomic<bool> is_good{true};
  std::vector<Block> handed(64);
  std::vector<std::atomic<unsigned char*>> passed(64);
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 3; ++number) {
    threads.emplace_back([&, number] {
      std::vector<Block> own(200);
      unsigned random = number + 1;
      while (!must_stop) {
        for (Block& block : own) {
          const auto byte = static_cast<unsigned char>(number + 1);
          if (block.memory != nullptr && !is_all(block, byte)) is_good = false;
          random = random * 1664525 + 1013904223;
          take(block, 1 + (random >> 12) % 3000, byte);
          // One thread frees what another has taken.
          auto* other = static_cast<unsigned char*>(bp_alloc(64));
          bp_free(passed[(random >> 8) % passed.size()].exchange(other));
        }
        // A thread that ends leaves its pages behind.
        std::thread([] { bp_free(bp_alloc(100)); }).join();
      }
      for (Block& block : own) bp_free(block.memory);
    });
  }
  std::vector<Block> blocks(100);
  int code = 0;
  for (int i = 0; i < 100 && code == 0; ++i) {
    for (Block& block : blocks) take(block, 100 + static_cast<size_t>(i) * 7, 'A');
    const pid_t child = fork();
    if (child == 0) {
      alarm(100);
      if (!are_all(blocks, 'A')) _exit(1);
      for (Block& block : blocks) take(block, block.bytes + 1, 'C');
      for (auto& each : passed) bp_free(each.exchange(nullptr));
      if (bp_owner_create("heap:child", 0) == 0) _exit(2);
      if (i % 10 == 0 && !has_whole_heap()) _exit(3);
      _exit(are_all(blocks, 'C') ? 0 : 4);
    }
    code = code_of(child);
  }
  must_stop = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("children: %d\nparent: %s\n", code, is_good ? "as it left it" : "changed");
}

// Children that go on after the fork, and one that calls exec.
void tell_staying() {
  auto* block = static_cast<char*>(bp_alloc(100));
  std::setvbuf(stdout, static_cast<char*>(bp_alloc(4096)), _IOFBF, 4096);
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      std::strcpy(block, "written on the way to exec");
      if (i == 0) execl("/bin/true", "true", nullptr);
      _exit(bp_alloc(10) != nullptr ? 0 : 1);
    }
    std::printf("child %d: %d\n", i, code_of(child));
    std::fprintf(stderr, "child %d ended\n", i);
  }
}

void tell_refusal() {
  for (int i = 0; i < 2; ++i) {
    errno = 0;
    const pid_t child = fork();
    if (child == 0) _exit(0);
    std::printf("fork %d: %s\n", i, child > 0 ? "forked" : strerrorname_np(errno));
    if (child > 0) code_of(child);
  }
  pid_t child = -1;
  char name[] = "true";
  char* words[] = {name, nullptr};
  std::printf("spawned: %d\n",
              posix_spawn(&child, "/bin/true", nullptr, nullptr, words, environ) == 0
                  ? code_of(child)
                  : -1);
  std::printf("system: %d\n", std::system("true"));
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  bp_free(bp_alloc(1));
  const PinnedPool& pool = process_pool();
  std::printf("heap: %s\n", pool.segment_count() == 0      ? "ordinary"
                            : pool.segment(0).is_private() ? "private"
                                                           : "shared");
  if (what == "add") {
    std::printf("huge: %s\n", bp_add_heap(4 * kMiB, 2 * kMiB) == 0 ? "added" : bp_error_text());
    std::printf("small: %s\n", bp_add_heap(32 * kMiB, 4 * kKiB) == 0 ? "added" : bp_error_text());
  }
  if (what == "snapshot" || what == "add") tell_snapshot();
  if (what == "sight") tell_sight();
  if (what == "threads") tell_threads();
  if (what == "stays") tell_staying();
  if (what == "refused") tell_refusal();
  char text[512];
  bp_audit(text, sizeof text);
  std::printf("audit: %s\n", text);
  return 0;
}
