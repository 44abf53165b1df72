#include "pinned_pool/fork_rule.h"

#include <cstddef>
#include <cstring>
#include <iterator>

#include "pinned_pool/boot_segment.h"
#include "platform/environment.h"
#include "platform/log.h"

extern "C" __attribute__((weak)) const char* const bedplate_fork = nullptr;
// Defined by shared_segments.cc, if that is linked.
extern "C" __attribute__((weak)) const char bedplate_shares_segments;

namespace bedplate {
namespace {

constexpr const char* kVariable = "BEDPLATE_FORK";
constexpr const char* kWords[] = {"copy", "share", "refuse"};  // in the order of ForkRule

bool shares_segments() noexcept { return &bedplate_shares_segments != nullptr; }

// The reason why the heap cannot be private; nullptr: it can.
const char* obstacle() noexcept {
  if (shares_segments()) return "this program has code for devices or processes that use its heap";
  if (is_huge(boot_page())) return "the copy of a hugepage needs another free hugepage";
  return nullptr;
}

[[noreturn]] void refuse_setting(const char* where, const char* text) noexcept {
  stop_with(configuration_error_while("deciding what a fork means for the heap")
                .set_answer("%s is \"%.64s\"", where, text)
                .set_cure("set it to copy, share or refuse, or unset it"));
}

[[noreturn]] void refuse_copy(const char* why) noexcept {
  stop_with(configuration_error_while("making a heap that a fork copies")
                .set_answer("%s", why)
                .set_cure("%s", cure_for_uncopied_heap()));
}

ForkRule decide() noexcept {
  const char* text = environment_text(kVariable);
  const char* where = text != nullptr ? kVariable : "bedplate_fork";
  // Volatile: the linker may replace a weak constant, so the compiler must not fold its value.
  const char* const volatile& linked = bedplate_fork;
  if (text == nullptr) text = linked;
  const char* why_not = obstacle();
  if (text == nullptr) return why_not == nullptr ? ForkRule::kCopy : ForkRule::kShare;
  for (size_t i = 0; i < std::size(kWords); ++i) {
    if (std::strcmp(text, kWords[i]) != 0) continue;
    const auto rule = static_cast<ForkRule>(i);
    if (rule == ForkRule::kCopy && why_not != nullptr) refuse_copy(why_not);
    return rule;
  }
  refuse_setting(where, text);
}

constinit bool is_decided = false;
constinit ForkRule the_rule = ForkRule::kShare;

}  // namespace

ForkRule fork_rule() noexcept {
  if (!is_decided) {
    the_rule = decide();
    is_decided = true;
  }
  return the_rule;
}

const char* cure_for_uncopied_heap() noexcept {
  if (shares_segments()) return "make malloc use ordinary memory: BEDPLATE_LEAVE_PINNED=no";
  if (is_huge(boot_page())) return "use pages of 4 KiB: unset BEDPLATE_BOOT_PAGE_BYTES";
  return "copy the heap: BEDPLATE_FORK=copy";
}

}  // namespace bedplate
