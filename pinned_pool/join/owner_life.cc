#include "pinned_pool/join/owner_life.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/forbidden_calls.h"

namespace bedplate {
namespace {

// This thread's list, registered while lives are held, and the list registered before it.
constinit thread_local robust_list_head* our_head = nullptr;
constinit thread_local robust_list_head* head_before = nullptr;

// Gets the robust list that the kernel has for this thread. Returns false if the call fails.
bool find_registered_head(robust_list_head** head) noexcept {
  size_t bytes = 0;
  return syscall(SYS_get_robust_list, 0, head, &bytes) == 0;
}

bool try_to_register_head(robust_list_head* head) noexcept {
  return syscall(SYS_set_robust_list, head, sizeof *head) == 0;
}

// While a list is held these calls succeed: they did so before.
[[maybe_unused]] robust_list_head* registered_head() noexcept {
  robust_list_head* head = nullptr;
  BP_ASSERT(find_registered_head(&head));
  return head;
}

void register_head(robust_list_head* head) noexcept { BP_ASSERT(try_to_register_head(head)); }

Error no_list(const char* call) noexcept {
  Error error =
      error_from_errno("registering a thread, so that others see when it ends (%s)", call);
  return set_cure_of_forbidden(&error, call);
}

bool is_callers(uint32_t word) noexcept {
  return (word & FUTEX_TID_MASK) == static_cast<uint32_t>(gettid());
}

// Orders the stores before it before the stores after it, for the kernel's walk if the thread ends
// in between. The walk runs on the same thread, so a compiler fence is enough.
void in_this_order() noexcept { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // namespace

OwnerLife& OwnerLife::of(robust_list& link) noexcept {
  return *reinterpret_cast<OwnerLife*>(reinterpret_cast<std::byte*>(&link) -
                                       OwnerLifeLayout::kLink);
}

// The last link of this thread's list, which leads back to the head; in an empty list, the head.
robust_list& OwnerLife::last_of_all() noexcept {
  robust_list* last = &our_head->list;
  while (last->next != &our_head->list) last = last->next;
  return *last;
}

bool OwnerLife::is_held_by_another() const noexcept {
  return is_held() && !is_callers(word_.load(std::memory_order_relaxed));
}

bool OwnerLife::list_is_valid() noexcept {
  constexpr uint32_t kCountMax = 1 << 16;  // more lives than possible: the ring lacks its head
  if (our_head == nullptr || registered_head() != our_head) return true;
  if (our_head->futex_offset != OwnerLifeLayout::kWordFromLink ||
      our_head->list_op_pending != nullptr) {
    return false;
  }
  bool has_head = false;
  uint32_t count = 0;
  for (robust_list* link = our_head->list.next; link != &our_head->list; link = link->next) {
    if (link == nullptr || ++count > kCountMax) return false;
    const OwnerLife& life = of(*link);
    if (!is_callers(life.word_.load(std::memory_order_relaxed))) return false;
    has_head = has_head || &life.head_ == our_head;
  }
  return has_head;
}

Result<void> OwnerLife::hold() noexcept {
  BP_DCHECK_SLOW(list_is_valid());
  BP_ASSERT(!is_held());
  robust_list_head* registered = nullptr;
  if (!find_registered_head(&registered)) return no_list("get_robust_list");
  // A forked child has these variables, but its kernel list is another one.
  if (our_head == nullptr || registered != our_head) {
    head_ = {{&head_.list}, OwnerLifeLayout::kWordFromLink, nullptr};
    if (!try_to_register_head(&head_)) return no_list("set_robust_list");
    head_before = registered;
    our_head = &head_;
  }
  // The kernel's walk also clears the pending life, so it may be in the list or not yet.
  our_head->list_op_pending = &link_;
  in_this_order();
  word_.store(static_cast<uint32_t>(gettid()), std::memory_order_release);
  link_.next = our_head->list.next;
  in_this_order();
  our_head->list.next = &link_;
  in_this_order();
  our_head->list_op_pending = nullptr;
  BP_DCHECK_SLOW(list_is_valid());
  return {};
}

void OwnerLife::release() noexcept {
  BP_ASSERT(is_callers(word_.load(std::memory_order_relaxed)));
  BP_DCHECK(registered_head() == our_head);
  BP_DCHECK_SLOW(list_is_valid());
  our_head->list_op_pending = &link_;
  in_this_order();
  robust_list* before = &our_head->list;
  while (before->next != &link_) before = before->next;
  before->next = link_.next;
  in_this_order();
  word_.store(0, std::memory_order_release);
  in_this_order();
  our_head->list_op_pending = nullptr;
  if (our_head->list.next == &our_head->list) {
    register_head(head_before);
    our_head = nullptr;
  } else if (our_head == &head_) {
    // The list continues without this table. A kernel walk that began at the old head may reach the
    // new head, and takes it for the link of a life that no thread holds.
    robust_list_head& next = of(*head_.list.next).head_;
    next = {{head_.list.next}, OwnerLifeLayout::kWordFromLink, nullptr};
    last_of_all().next = &next.list;
    in_this_order();
    our_head = &next;
    register_head(our_head);
  }
  BP_DCHECK_SLOW(list_is_valid());
}

}  // namespace bedplate
