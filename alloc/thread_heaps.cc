#include "alloc/thread_heaps.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alloc/fork_mark.h"
#include "alloc/heap_owner.h"
#include "alloc/interception_decision.h"
#include "mimalloc.h"
#include "mimalloc-internal.h"
#include "platform/assert.h"
#include "platform/text_words.h"

extern mi_decl_thread mi_heap_t* _mi_heap_default;

namespace bedplate {

__thread uintptr_t heap_identity = kNoIdentity;

namespace {

// A thread that has heaps. Lies in the thread's own static data.
struct ThreadHeaps {
  // By owner; heaps[0] exists as long as the thread does. No heap is deleted before the thread
  // ends.
  mi_heap_t* heaps[kHeapOwnerCountMax];
  mi_heap_t* default_heap;   // the content of *default_word before it was taken away
  mi_heap_t** default_word;  // the two words of the fast paths
  uintptr_t* identity_word;
  pid_t tid;
  bool is_away;  // its words were taken away: the thread does not touch its heaps
  bool is_making_heap;
  int inside_count;
  ThreadHeaps* next;
  ThreadHeaps* previous;

  bool is_in_use() const noexcept { return heaps[0] != nullptr; }
};

__thread ThreadHeaps this_thread;

// A thread that has just freed much often sleeps soon, so running threads are tried again.
constexpr int kPassesMax = 3;

// Guards the list of threads, and the words of threads that are away. The holder makes system
// calls; a thread that waits for the lock is marked as inside, or is away. The holder blocks all
// signals: a handler that blocks would keep all other threads waiting, and a handler whose
// allocation is refused would wait for its own thread.
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
ThreadHeaps* threads = nullptr;

void lock_threads(sigset_t* signals_before) noexcept {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, signals_before);
  pthread_mutex_lock(&mutex);
}

void unlock_threads(const sigset_t& signals_before) noexcept {
  pthread_mutex_unlock(&mutex);
  pthread_sigmask(SIG_SETMASK, &signals_before, nullptr);
}

class Lock {
 public:
  Lock() noexcept { lock_threads(&signals_before_); }
  ~Lock() { unlock_threads(signals_before_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  sigset_t signals_before_;
};

mi_heap_t* empty_heap() noexcept { return const_cast<mi_heap_t*>(&_mi_heap_empty); }

// Atomic, because the other thread reads its words without a lock.
void take_words(ThreadHeaps& thread) noexcept {
  thread.default_heap = __atomic_load_n(thread.default_word, __ATOMIC_RELAXED);
  __atomic_store_n(thread.default_word, empty_heap(), __ATOMIC_RELAXED);
  __atomic_store_n(thread.identity_word, kNoIdentity, __ATOMIC_RELAXED);
}

void give_words_back(ThreadHeaps& thread) noexcept {
  // The thread may have chosen another heap while its words were being taken.
  if (__atomic_load_n(thread.default_word, __ATOMIC_RELAXED) == empty_heap()) {
    __atomic_store_n(thread.default_word, thread.default_heap, __ATOMIC_RELAXED);
  }
  __atomic_store_n(thread.identity_word, thread.heaps[0]->thread_id, __ATOMIC_RELAXED);
  thread.is_away = false;
}

// Reads a small file of /proc without the heap. Returns false if there is none.
bool read_task_file(pid_t tid, const char* name, char* text, size_t text_bytes) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/%s", static_cast<int>(tid), name);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t length = read(fd, text, text_bytes - 1);
  close(fd);
  if (length <= 0) return false;
  text[length] = '\0';
  return true;
}

// Whether /proc uses the same thread numbers as gettid: it does not if it was mounted in another
// PID namespace.
bool proc_is_ours() noexcept {
  char target[16];
  const ssize_t length = readlink("/proc/self", target, sizeof target);
  pid_t self = 0;
  return length > 0 && parse_number({target, static_cast<size_t>(length)}, &self) &&
         self == getpid();
}

// Whether a signal stays unblocked while its handler runs (SA_NODEFER). Then the signal mask does
// not show whether a thread is in the handler.
bool handlers_are_hidden() noexcept {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    struct sigaction action;
    if (sigaction(number, nullptr, &action) != 0 || (action.sa_flags & SA_NODEFER) == 0) continue;
    if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) return true;
  }
  return false;
}

// The system calls that replace the thread's signal mask while they wait, and the number of the
// argument with the new mask. /proc does not show the thread's own mask meanwhile.
struct MaskingCall {
  long number;
  int argument;
};
constexpr MaskingCall kMaskingCalls[] = {{SYS_rt_sigsuspend, 0},
                                         {SYS_ppoll, 3},
                                         {SYS_pselect6, 5},
                                         {SYS_epoll_pwait, 4},
                                         {SYS_epoll_pwait2, 4}};

// `call` is a line of /proc/self/task/TID/syscall: the number, the arguments.
bool hides_signal_mask(const char* call) noexcept {
  char* rest = nullptr;
  const long number = std::strtol(call, &rest, 10);
  for (const MaskingCall& masking : kMaskingCalls) {
    if (number != masking.number) continue;
    unsigned long long argument = 0;
    for (int i = 0; i <= masking.argument; ++i) argument = std::strtoull(rest, &rest, 16);
    return argument != 0;
  }
  return false;
}

// Whether a signal is both caught and blocked: its handler may be running, and may have interrupted
// malloc.
bool may_be_in_signal_handler(pid_t tid) noexcept {
  char status[4096];
  if (!read_task_file(tid, "status", status, sizeof status)) return true;
  const char* blocked = std::strstr(status, "\nSigBlk:");
  const char* caught = std::strstr(status, "\nSigCgt:");
  if (blocked == nullptr || caught == nullptr) return true;
  constexpr size_t kTitle = sizeof "\nSigBlk:" - 1;
  return (std::strtoull(blocked + kTitle, nullptr, 16) &
          std::strtoull(caught + kTitle, nullptr, 16)) != 0;
}

// [proc_pid_syscall]: the file begins with the number of the system call that the thread is blocked
// in, with "running", or with -1 if it is blocked elsewhere (a page fault, a debugger). To answer,
// the kernel waits until the thread is off its core, so the thread sees all earlier writes when it
// goes on. Handlers are checked before, too: a handler may have made the system call and returned
// since.
bool is_blocked_in_system_call(pid_t tid) noexcept {
  char text[256];
  return !may_be_in_signal_handler(tid) && read_task_file(tid, "syscall", text, sizeof text) &&
         text[0] >= '0' && text[0] <= '9' && !hides_signal_mask(text) &&
         !may_be_in_signal_handler(tid);
}

bool is_inside(const ThreadHeaps& thread) noexcept {
  return __atomic_load_n(&thread.inside_count, __ATOMIC_RELAXED) != 0;
}

// Only a guess while the thread runs.
bool holds_memory(const ThreadHeaps& thread, uint32_t owner) noexcept {
  for (uint32_t i = 0; i < kHeapOwnerCountMax; ++i) {
    const mi_heap_t* heap = thread.heaps[i];
    if (heap == nullptr || (owner != i && owner != kEveryOwner)) continue;
    if (heap->page_count > 0) return true;
  }
  return false;
}

// Empties all heaps of the thread, not only the heap of the wanted owner: a segment with pages in
// use stays with the thread, and so would an abandoned page in it, which no heap has any more.
// Requires: the words are taken away, and the thread is blocked, or was when they were taken.
void empty(ThreadHeaps& thread) noexcept {
  for (mi_heap_t* heap : thread.heaps) {
    if (heap == nullptr) continue;
    const WithoutReclaim without(*heap);
    _mi_heap_collect_abandon(heap);
  }
}

// Takes the words of `thread` away if it is idle. Requires: the lock.
bool put_aside(ThreadHeaps& thread) noexcept {
  take_words(thread);
  thread.is_away = is_blocked_in_system_call(thread.tid) && !is_inside(thread) &&
                   __atomic_load_n(thread.default_word, __ATOMIC_RELAXED) == empty_heap();
  if (!thread.is_away) give_words_back(thread);
  return thread.is_away;
}

// Empties the heaps of idle threads. Returns false if a running thread holds memory.
bool empty_those_asleep(uint32_t owner) noexcept {
  bool is_complete = true;
  for (ThreadHeaps* thread = threads; thread != nullptr; thread = thread->next) {
    if (thread == &this_thread || !holds_memory(*thread, owner)) continue;
    if (!thread->is_away && is_inside(*thread)) continue;  // it collects its own heaps
    if (thread->is_away || put_aside(*thread)) {
      empty(*thread);
    } else {
      is_complete = false;
    }
  }
  return is_complete;
}

// A thread of the parent was about to tell the owner of `page` of a free. That block is lost.
void end_delayed_free(mi_page_t* page) noexcept {
  const mi_thread_free_t word = mi_atomic_load_relaxed(&page->xthread_free);
  if (mi_tf_delayed(word) != MI_DELAYED_FREEING) return;
  mi_atomic_store_release(&page->xthread_free, mi_tf_set_delayed(word, MI_USE_DELAYED_FREE));
}

sigset_t signals_before_fork;

}  // namespace

void hold_thread_heaps() noexcept {
  sigset_t before;
  lock_threads(&before);
  signals_before_fork = before;
}

void release_thread_heaps() noexcept {
  const sigset_t before = signals_before_fork;
  unlock_threads(before);
}

void forget_other_threads() noexcept {
  threads = nullptr;
  if (!this_thread.is_in_use()) return;
  threads = &this_thread;
  this_thread.next = this_thread.previous = nullptr;
  this_thread.tid = static_cast<pid_t>(syscall(SYS_gettid));
  for (mi_heap_t* heap : this_thread.heaps) {
    if (heap == nullptr) continue;
    for (const mi_page_queue_t& queue : heap->pages) {
      for (mi_page_t* page = queue.first; page != nullptr; page = page->next) {
        end_delayed_free(page);
      }
    }
  }
}

InsideHeap::InsideHeap() noexcept { ++this_thread.inside_count; }
InsideHeap::~InsideHeap() { --this_thread.inside_count; }
bool is_inside_heap() noexcept { return this_thread.inside_count != 0; }

WithoutReclaim::WithoutReclaim(mi_heap_t& heap) noexcept : heap_(heap), before_(heap.no_reclaim) {
  heap_.no_reclaim = true;
}
WithoutReclaim::~WithoutReclaim() { heap_.no_reclaim = before_; }

mi_heap_t* heap_of_thread() noexcept {
  mi_heap_t* heap = mi_get_default_heap();
  if (mi_heap_is_initialized(heap)) return heap;
  if (!this_thread.is_in_use()) {
    refuse_sanitizer();
    mi_thread_init();
    return mi_get_default_heap();
  }
  const Lock lock;
  give_words_back(this_thread);
  return mi_get_default_heap();
}

bool choose_heap_of_owner(uint32_t owner) noexcept {
  BP_ASSERT(owner < kHeapOwnerCountMax);
  if (is_forked_child()) return true;  // a child has one small heap, and must not use its parent's
  mi_heap_t* current = heap_of_thread();
  if (!mi_heap_is_initialized(current)) return false;
  mi_heap_t* heap = owner == 0 ? current->tld->heap_backing : this_thread.heaps[owner];
  if (heap == nullptr) {
    this_thread.is_making_heap = true;
    heap = mi_heap_new();
    this_thread.is_making_heap = false;
    if (heap == nullptr) return false;
    this_thread.heaps[owner] = heap;
  }
  __atomic_store_n(&_mi_heap_default, heap, __ATOMIC_RELAXED);
  return true;
}

// Making a heap for an owner uses the runtime's reserve, so that an owner can reach its own reserve
// even if the rest of the heap is exhausted.
uint32_t whose_reserve(uint32_t owner) noexcept {
  return this_thread.is_making_heap ? kRuntimeOwner.index : owner;
}

uint32_t heap_of_thread_in_use(mi_heap_t* heap) noexcept {
  if (this_thread.is_in_use()) {
    uint32_t owner = 0;
    while (this_thread.heaps[owner] != heap) {
      ++owner;
      BP_ASSERT(owner < kHeapOwnerCountMax);
    }
    return owner;
  }
  this_thread.heaps[0] = heap->tld->heap_backing;
  this_thread.default_word = &_mi_heap_default;
  this_thread.identity_word = &heap_identity;
  this_thread.tid = static_cast<pid_t>(syscall(SYS_gettid));
  heap_identity = heap->thread_id;
  const InsideHeap inside;
  const Lock lock;
  this_thread.previous = nullptr;
  this_thread.next = threads;
  if (threads != nullptr) threads->previous = &this_thread;
  threads = &this_thread;
  return 0;
}

void heap_of_thread_done() noexcept {
  if (!this_thread.is_in_use()) return;
  const Lock lock;
  if (this_thread.is_away) give_words_back(this_thread);
  if (this_thread.next != nullptr) this_thread.next->previous = this_thread.previous;
  (this_thread.previous != nullptr ? this_thread.previous->next : threads) = this_thread.next;
  for (mi_heap_t*& heap : this_thread.heaps) heap = nullptr;
  heap_identity = kNoIdentity;
}

void return_empty_pages() noexcept {
  if (is_forked_child() || !this_thread.is_in_use()) return;
  const InsideHeap inside;
  (void)heap_of_thread();  // restores heaps that were emptied while the thread slept
  for (mi_heap_t* heap : this_thread.heaps) {
    if (heap == nullptr || heap->page_count == 0) continue;
    const WithoutReclaim without(*heap);
    mi_heap_collect(heap, true);
  }
}

void empty_idle_heaps(uint32_t owner) noexcept {
  const InsideHeap inside;
  const Lock lock;
  static const bool can_ask = proc_is_ours();
  if (!can_ask || handlers_are_hidden()) return;
  for (int pass = 0; pass < kPassesMax && !empty_those_asleep(owner); ++pass) sched_yield();
}

}  // namespace bedplate
