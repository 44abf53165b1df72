// The life of the thread that owns a shared table: a word in the table that the kernel clears when
// the thread ends, for whatever reason.
//
// It is a robust futex, in a list of our own: set_robust_list(2) has the kernel walk the list as
// the thread ends. The C library's robust mutexes would do the same, but their list leads through
// its records of the thread, and so shows addresses of the owner's to every reader of the table.
// Our links point only to the lives themselves: head, links and words lie in the tables, whose
// addresses readers know.
//
// A thread has one such list. While it holds a life, the C library's list is not registered: robust
// mutexes that it then holds stay locked when it dies.
//
// Invariants of a thread's list, which list_is_valid() checks before and after each change:
// 1. Each link is that of a life which this thread holds, and the last link leads back to the head.
// 2. The head lies in one of these lives, and no change is under way. 3. The kernel finds the word
// of a life from its link.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <linux/futex.h>

#include "platform/result.h"

namespace bedplate {

class OwnerLife {
 public:
  // Whether a thread holds it. Threads and processes: any. Cost: one relaxed load.
  bool is_held() const noexcept {
    return (word_.load(std::memory_order_relaxed) & FUTEX_TID_MASK) != 0;
  }

  // Whether another thread than the calling one holds it. Cost: a system call.
  bool is_held_by_another() const noexcept;

  // Has the calling thread hold it, until it releases it or ends. A thread can hold many lives.
  // Requires: nobody holds it; the memory stays mapped, writable, as long as it is held.
  // Errors: the kernel takes no list (a seccomp profile forbids it); then nobody holds it.
  Result<void> hold() noexcept;
  // Releases it. Requires: the calling thread holds it.
  void release() noexcept;

  // Whether the invariants of the calling thread's list hold. A list that the kernel does not know,
  // as in a forked child, counts as none. Cost: a system call, and a look at each life.
  static bool list_is_valid() noexcept;

 private:
  static OwnerLife& of(robust_list& link) noexcept;
  robust_list& last_of_all() noexcept;

  friend struct OwnerLifeLayout;

  std::atomic<uint32_t> word_ = 0;  // the holder's thread id in the low 30 bits; 0 there: nobody
  uint32_t reserved_ = 0;
  robust_list link_ = {};       // to the next life that the thread holds; the last: to a head
  uint64_t never_held_ = 0;     // read as a life's word if a walk takes the head for a link
  robust_list_head head_ = {};  // of all lives that the thread holds: used in one of them
};

struct OwnerLifeLayout {
  static constexpr long kWordFromLink =
      static_cast<long>(offsetof(OwnerLife, word_)) - static_cast<long>(offsetof(OwnerLife, link_));
  static constexpr size_t kLink = offsetof(OwnerLife, link_);
  static_assert(offsetof(OwnerLife, word_) == 0);
  static_assert(static_cast<long>(offsetof(OwnerLife, never_held_)) ==
                static_cast<long>(offsetof(OwnerLife, head_)) + kWordFromLink);
  static_assert(sizeof(OwnerLife) == 48);
};
static_assert(std::is_standard_layout_v<OwnerLife>);

}  // namespace bedplate
