#include "alloc/child_libc.h"

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include <pthread.h>

#include "alloc/child_heap.h"
#include "pinned_pool/layout.h"
#include "platform/assert.h"
#include "platform/log.h"

// libc's list of open streams, newest first: exported since 2.2.5, and declared in no header.
extern "C" {
// Weak, so that libc's own variable is used. A program would otherwise get a copy (copy
// relocation), set that, and libc would read the original.
[[gnu::weak]] extern FILE* _IO_list_all;
FILE* _IO_iter_begin() noexcept;
void _IO_list_lock() noexcept;  // recursive: fork() itself takes it, too
void _IO_list_unlock() noexcept;
void _IO_list_resetlock() noexcept;
}

namespace bedplate {
namespace {

constexpr pthread_key_t kKeysInThread = 32;  // glibc: values of further keys lie on the heap

constinit FILE* streams_of_parent = nullptr;
constinit std::atomic_flag has_warned = ATOMIC_FLAG_INIT;

// A new key gets the lowest free number, so that number shows how many are in use.
void warn_of_many_keys() noexcept {
  pthread_key_t next = 0;
  if (pthread_key_create(&next, nullptr) != 0) return;
  pthread_key_delete(next);
  if (next <= kKeysInThread || has_warned.test_and_set()) return;
  BP_LOG_WARNING("fork() empties the thread-specific values (pthread_setspecific) of this process's"
                 " other threads beyond the first %u keys, and %u are in use; start programs by "
                 "posix_spawn() or vfork()",
                 kKeysInThread, next);
}

// Shortens the list to the streams behind the last one in the pool. Other threads can neither open
// nor close streams until the fork is over; fork() would block them anyway.
void prepare() noexcept {
  warn_of_many_keys();
  _IO_list_lock();
  BP_ASSERT(_IO_list_all == _IO_iter_begin());
  streams_of_parent = _IO_list_all;
  for (FILE* stream = streams_of_parent; stream != nullptr; stream = stream->_chain) {
    if (in_pool_range(stream)) _IO_list_all = stream->_chain;
  }
}

void go_on_as_parent() noexcept {
  _IO_list_all = streams_of_parent;
  _IO_list_unlock();
}

// Without memory the child loses only the buffered bytes.
void move_buffer_out_of_pool(FILE* stream) noexcept {
  char* const shared = stream->_IO_buf_base;
  if (!in_pool_range(shared)) return;
  const auto bytes = static_cast<size_t>(stream->_IO_buf_end - shared);
  auto* own = static_cast<char*>(child_allocate_in_fork(bytes, alignof(max_align_t)));
  if (own != nullptr) std::memcpy(own, shared, bytes);
  for (char** pointer : {&stream->_IO_read_ptr, &stream->_IO_read_end, &stream->_IO_read_base,
                         &stream->_IO_write_base, &stream->_IO_write_ptr, &stream->_IO_write_end,
                         &stream->_IO_buf_base, &stream->_IO_buf_end}) {
    const auto offset = static_cast<size_t>(*pointer - shared);
    if (offset <= bytes) *pointer = own == nullptr ? nullptr : own + offset;
  }
}

void begin_as_child() noexcept {
  _IO_list_resetlock();
  move_buffer_out_of_pool(stdin);
  move_buffer_out_of_pool(stdout);
  move_buffer_out_of_pool(stderr);
}

}  // namespace

void guard_libc_from_children() noexcept {
  const int outcome = pthread_atfork(&prepare, &go_on_as_parent, &begin_as_child);
  BP_ASSERT(outcome == 0);
}

}  // namespace bedplate
