// The life of the thread that owns a shared table: a word in the table that the kernel clears when
// the thread ends in any way.
//
// It is a robust futex in a list of our own: after set_robust_list(2) the kernel walks the list
// when the thread ends. The C library's robust mutexes do the same, but their list leads through
// the library's records of the thread, and so shows addresses of the owner to every reader of the
// table. Our links point only to lives: head, links and words lie in the tables, whose addresses
// readers know.
//
// A thread has one such list. While it holds a life, the C library's list is not registered: robust
// mutexes that it then holds stay locked when it dies.
//
// Invariants of a thread's list, which list_is_valid() checks before and after each change:
// 1. Each link belongs to a life that this thread holds, and the last link leads back to the head.
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
  // Whether a thread holds this life. Threads and processes: any. Cost: one relaxed load.
  bool is_held() const noexcept {
    return (word_.load(std::memory_order_relaxed) & FUTEX_TID_MASK) != 0;
  }

  // Whether a thread other than the caller holds it. Cost: a system call.
  bool is_held_by_another() const noexcept;

  // Makes the calling thread hold it, until that thread releases it or ends. A thread can hold many
  // lives.
  // Requires: no thread holds it; the memory stays mapped, writable, as long as it is held.
  // Errors: the kernel gives or takes no list (a seccomp profile forbids it); then no thread holds
  // this life.
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

  std::atomic<uint32_t> word_ = 0;  // low 30 bits: the holder's thread id; 0: no holder
  uint32_t reserved_ = 0;
  robust_list link_ = {};       // to the thread's next life; in the last life: to the head
  uint64_t never_held_ = 0;     // the life's word, if a walk takes the head for a link
  robust_list_head head_ = {};  // of the thread's list: used in one of its lives
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
