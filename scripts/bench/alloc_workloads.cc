// Allocation workloads: one program for every allocator, which is preloaded into it.
//
//   alloc_workloads WORKLOAD CPU,CPU... SECONDS WARMUP_SECONDS
//
// One worker for each processor named, pinned to it. The workers run until they are told to stop.
// The main thread, which otherwise sleeps, reads counters, clocks and page faults twice, after the
// warm-up and SECONDS later, and prints the difference as one line of JSON. So start-up, first
// touches and exit are not measured, for any allocator.
//
// Only the heap is measured: thread stacks belong to the program and are touched before the start
// (glibc returns the stacks of ended threads to the kernel, and faults in the next), and sizes are
// drawn beforehand.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include "measured_region.h"

namespace {

constexpr unsigned kWorkersMax = 8;
constexpr size_t kStackBytes = 256 << 10;

// ---- shared by the workers ------------------------------------------------------------------

struct alignas(128) Counter {
  std::atomic<uint64_t> operations{0};
};

unsigned worker_count = 0;
unsigned cpus[kWorkersMax];
Counter counters[kWorkersMax];
std::atomic<bool> must_stop{false};

bool goes_on() { return !must_stop.load(std::memory_order_relaxed); }

void count(unsigned worker, uint64_t operations) {
  auto& counter = counters[worker].operations;
  counter.store(counter.load(std::memory_order_relaxed) + operations, std::memory_order_relaxed);
}

[[noreturn]] void fail(const char* doing, const char* answer) {
  std::fprintf(stderr, "alloc_workloads: %s: %s\n", doing, answer);
  std::exit(1);
}

// Returns a block whose first and last byte are written, as any user of a block does.
char* take(size_t bytes) {
  auto* block = static_cast<char*>(std::malloc(bytes));
  if (block == nullptr) fail("malloc", "no memory");
  block[0] = 1;
  block[bytes - 1] = 1;
  return block;
}

class Random {  // xorshift64*
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint32_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<uint32_t>((state_ * 0x2545f4914f6cdd1du) >> 32);
  }

 private:
  uint64_t state_;
};

// Sizes from 8 bytes to `bytes_max`, with equal probability for each power of two: programs request
// small blocks far more often than large ones. Every allocator gets the same sequence of sizes.
class Sizes {
 public:
  explicit Sizes(size_t bytes_max) {
    Random random(bytes_max);
    const double span = std::log2(static_cast<double>(bytes_max) / 8);
    for (uint32_t& bytes : bytes_) {
      bytes = static_cast<uint32_t>(8 * std::exp2(span * random.next() / 4294967296.0));
    }
  }
  uint32_t operator[](uint32_t index) const { return bytes_[index % kCount]; }

 private:
  static constexpr uint32_t kCount = 4096;
  uint32_t bytes_[kCount];
};

// ---- threads --------------------------------------------------------------------------------

// Permanent stacks: two for each worker, its own and that of the thread that it starts.
alignas(4096) char stacks[2 * kWorkersMax][kStackBytes];

pthread_t start(unsigned stack, void* (*function)(void*), void* argument) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stacks[stack], kStackBytes);
  pthread_t thread;
  if (const int outcome = pthread_create(&thread, &attributes, function, argument); outcome != 0) {
    fail("starting a thread", std::strerror(outcome));
  }
  pthread_attr_destroy(&attributes);
  return thread;
}

// Runs `function` in a new thread on the worker's processor, and waits for its end.
void run_in_new_thread(unsigned worker, void* (*function)(void*), void* argument) {
  pthread_join(start(kWorkersMax + worker, function, argument), nullptr);
}

// ---- one thread by itself -------------------------------------------------------------------

// Takes a block and frees it at once.
void pairs(unsigned worker, size_t bytes) {
  constexpr int kBatch = 1000;
  while (goes_on()) {
    for (int i = 0; i < kBatch; ++i) std::free(take(bytes));
    count(worker, kBatch);
  }
}

// Takes a thousand blocks, then frees them in the same order.
void bursts(unsigned worker, size_t bytes) {
  constexpr int kBatch = 1000;
  char* blocks[kBatch];
  while (goes_on()) {
    for (char*& block : blocks) block = take(bytes);
    for (char* block : blocks) std::free(block);
    count(worker, kBatch);
  }
}

// Replaces a random block of those held by one of another size.
void mixed(unsigned worker, size_t bytes_max) {
  constexpr uint32_t kHeld = 1024;
  constexpr uint32_t kBatch = 500;
  const Sizes sizes(bytes_max);
  Random random(worker);
  char* held[kHeld];
  uint32_t next = worker * 1777;
  for (char*& block : held) block = take(sizes[next++]);
  while (goes_on()) {
    for (uint32_t i = 0; i < kBatch; ++i) {
      char*& block = held[random.next() % kHeld];
      std::free(block);
      block = take(sizes[next++]);
    }
    count(worker, kBatch);
  }
  for (char* block : held) std::free(block);
}

// ---- across threads -------------------------------------------------------------------------

// One producer, one consumer; each caches the other's index.
class Ring {
 public:
  bool try_push(char* block) {
    const uint64_t at = pushed_.load(std::memory_order_relaxed);
    if (at - popped_.load(std::memory_order_acquire) == kSlots) return false;
    slots_[at % kSlots] = block;
    pushed_.store(at + 1, std::memory_order_release);
    return true;
  }
  char* try_pop() {
    const uint64_t at = popped_.load(std::memory_order_relaxed);
    if (at == pushed_.load(std::memory_order_acquire)) return nullptr;
    char* block = slots_[at % kSlots];
    popped_.store(at + 1, std::memory_order_release);
    return block;
  }

 private:
  static constexpr uint64_t kSlots = 1024;
  alignas(128) std::atomic<uint64_t> pushed_{0};
  alignas(128) std::atomic<uint64_t> popped_{0};
  alignas(128) char* slots_[kSlots] = {};
};
Ring rings[kWorkersMax / 2];

// Workers form pairs: one takes blocks and hands them over, the other frees them.
void producer_consumer(unsigned worker, size_t bytes_max) {
  const Sizes sizes(bytes_max);
  Ring& ring = rings[worker / 2];
  uint64_t done = 0;
  if (worker % 2 == 1) {
    while (goes_on()) {
      char* block = ring.try_pop();
      if (block == nullptr) {
        sched_yield();
        continue;
      }
      std::free(block);
      if (++done % 256 == 0) count(worker, 256);
    }
    return;
  }
  for (uint32_t next = 0; goes_on(); ++next) {
    char* block = take(sizes[next]);
    while (!ring.try_push(block) && goes_on()) sched_yield();
  }
}

// Blocks that one thread left to the next.
struct Parcel {
  static constexpr uint32_t kBlocks = 500;
  char* blocks[kBlocks];
};
Parcel parcels[kWorkersMax + 1];
std::atomic<Parcel*> waiting{nullptr};  // a parcel without a holder
const Sizes* shared_sizes = nullptr;

struct Life {
  unsigned worker;
  uint32_t seed;
  Parcel* parcel;
};

// A short-lived thread: frees the blocks left to it, takes twice as many, frees half of those.
void* live_shortly(void* argument) {
  auto& [worker, seed, parcel] = *static_cast<Life*>(argument);
  for (char* block : parcel->blocks) std::free(block);
  uint32_t next = seed;
  for (char*& block : parcel->blocks) {
    block = take((*shared_sizes)[next++]);
    std::free(take((*shared_sizes)[next++]));
  }
  seed = next;
  count(worker, 2 * Parcel::kBlocks);
  return nullptr;
}

// A server's thread: replaces random blocks of those left to it, many times.
void* serve(void* argument) {
  auto& [worker, seed, parcel] = *static_cast<Life*>(argument);
  constexpr uint32_t kReplaced = 20 * Parcel::kBlocks;
  Random random(seed);
  for (uint32_t i = 0; i < kReplaced; ++i) {
    char*& block = parcel->blocks[random.next() % Parcel::kBlocks];
    std::free(block);
    block = take((*shared_sizes)[seed++]);
  }
  count(worker, kReplaced);
  return nullptr;
}

// One thread after the other, each with the blocks that another one left.
void generations(unsigned worker, void* (*function)(void*)) {
  Life life{worker, worker * 1777, &parcels[worker]};
  while (goes_on()) {
    run_in_new_thread(worker, function, &life);
    life.parcel = waiting.exchange(life.parcel, std::memory_order_acq_rel);
  }
}

void churn(unsigned worker, size_t) { generations(worker, &live_shortly); }
void larson(unsigned worker, size_t) { generations(worker, &serve); }

// As in xmalloc: every worker fills batches for all, and frees the batches of others. A batch is
// itself a block.
struct Batch {
  static constexpr uint32_t kBlocks = 120;
  Batch* next = nullptr;
  char* blocks[kBlocks];
};
class Queue {
 public:
  void push(Batch* batch) {
    lock();
    *last_ = batch;
    last_ = &batch->next;
    unlock();
  }
  // Requires: more batches than workers, so that it is never empty.
  Batch* pop() {
    lock();
    Batch* oldest = first_;
    first_ = oldest->next;
    if (first_ == nullptr) last_ = &first_;
    unlock();
    return oldest;
  }

 private:
  void lock() {
    while (locked_.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  void unlock() { locked_.clear(std::memory_order_release); }

  std::atomic_flag locked_;
  Batch* first_ = nullptr;
  Batch** last_ = &first_;
};
Queue queue;

void xmalloc(unsigned worker, size_t bytes_max) {
  constexpr unsigned kWaiting = 64;  // batches of each worker in flight
  const Sizes sizes(bytes_max);
  uint32_t next = worker * 1777;
  const auto push_batch = [&] {
    auto* batch = reinterpret_cast<Batch*>(take(sizeof(Batch)));
    batch->next = nullptr;
    for (char*& block : batch->blocks) block = take(sizes[next++]);
    queue.push(batch);
  };
  for (unsigned i = 0; i < kWaiting; ++i) push_batch();
  while (goes_on()) {
    push_batch();
    Batch* batch = queue.pop();
    for (char* block : batch->blocks) std::free(block);
    std::free(batch);
    count(worker, Batch::kBlocks + 1);
  }
}

// ---- the program ----------------------------------------------------------------------------

struct Workload {
  const char* name;
  void (*function)(unsigned worker, size_t bytes);
  size_t bytes;
};
constexpr Workload kWorkloads[] = {
    {"pairs-16", pairs, 16},
    {"pairs-64", pairs, 64},
    {"pairs-1K", pairs, 1024},
    {"pairs-32K", pairs, 32 << 10},
    {"bursts-64", bursts, 64},
    {"mixed-1K", mixed, 1 << 10},
    {"mixed-8K", mixed, 8 << 10},
    {"mixed-256K", mixed, 256 << 10},
    {"producer-consumer", producer_consumer, 1 << 10},
    {"thread-churn", churn, 1 << 10},
    {"larson", larson, 1 << 10},
    {"xmalloc", xmalloc, 1 << 10},
};
const Workload* workload = nullptr;

void* work(void* argument) {
  const auto worker = static_cast<unsigned>(static_cast<Counter*>(argument) - counters);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpus[worker], &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) fail("pinning a worker", std::strerror(errno));
  workload->function(worker, workload->bytes);
  return nullptr;
}

uint64_t operations_so_far() {
  uint64_t sum = 0;
  for (const Counter& counter : counters) {
    sum += counter.operations.load(std::memory_order_relaxed);
  }
  return sum;
}

void sleep_for(double seconds) {
  timespec time{static_cast<time_t>(seconds), 0};
  time.tv_nsec = static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
  nanosleep(&time, nullptr);
}

// `where`: prints the library that malloc is in, and the page size of a worker's block.
int print_where() {
  Dl_info malloc_is_in{};
  dladdr(dlsym(RTLD_DEFAULT, "malloc"), &malloc_is_in);
  void* taken = nullptr;
  pthread_join(start(
                   0, [](void*) -> void* { return take(100'000); }, nullptr),
               &taken);
  const auto block = reinterpret_cast<uintptr_t>(taken);
  std::FILE* maps = std::fopen("/proc/self/smaps", "r");
  char line[512];
  unsigned long begin = 0, end = 0, page_kib = 0;
  bool is_here = false;
  while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
    if (std::sscanf(line, "%lx-%lx ", &begin, &end) == 2) is_here = begin <= block && block < end;
    if (is_here && std::sscanf(line, "KernelPageSize: %lu kB", &page_kib) == 1) break;
  }
  std::printf("%s %lu\n", malloc_is_in.dli_fname, page_kib);
  return 0;
}

void parse(int argument_count, char** arguments) {
  if (argument_count != 5) fail("reading the arguments", "see the head of alloc_workloads.cc");
  for (const Workload& known : kWorkloads) {
    if (std::strcmp(known.name, arguments[1]) == 0) workload = &known;
  }
  if (workload == nullptr) fail(arguments[1], "no such workload");
  for (char* text = arguments[2]; worker_count < kWorkersMax; ++text) {
    cpus[worker_count++] = static_cast<unsigned>(std::strtoul(text, &text, 10));
    if (*text != ',') break;
  }
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count == 2 && std::strcmp(arguments[1], "where") == 0) return print_where();
  parse(argument_count, arguments);
  std::memset(stacks, 1, sizeof stacks);
  static const Sizes sizes(1 << 10);
  shared_sizes = &sizes;
  uint32_t next = 0;
  for (Parcel& parcel : parcels) {
    for (char*& block : parcel.blocks) block = take(sizes[next++]);
  }
  waiting = &parcels[kWorkersMax];
  pthread_t threads[kWorkersMax];
  for (unsigned i = 0; i < worker_count; ++i) threads[i] = start(i, &work, &counters[i]);
  sleep_for(std::atof(arguments[4]));
  const uint64_t operations_before = operations_so_far();
  const reading begin = read_costs();
  sleep_for(std::atof(arguments[3]));
  const uint64_t operations = operations_so_far() - operations_before;
  const reading end = read_costs();
  print_costs(1, begin, end, static_cast<double>(operations));
  must_stop = true;
  for (unsigned i = 0; i < worker_count; ++i) pthread_join(threads[i], nullptr);
}
