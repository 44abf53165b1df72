#include "alloc/interception_decision.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "platform/environment.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/sanitizer.h"

extern "C" __attribute__((weak)) const char* const bedplate_leave_pinned = "yes";
extern "C" __attribute__((weak)) const char* const bedplate_leave_pinned_pipeline = nullptr;

// Defined by interception.cc: linked exactly if libbedplate-malloc.a is.
extern "C" __attribute__((weak)) const char bedplate_malloc_is_linked;

namespace bedplate {
namespace {

constexpr const char* kLeavePinned = "BEDPLATE_LEAVE_PINNED";
constexpr const char* kLeavePinnedPipeline = "BEDPLATE_LEAVE_PINNED_PIPELINE";
constexpr const char* kSwitches[] = {"BEDPLATE_ALLOC_DISABLE", "FAKEROOTKEY"};
constexpr const char* kWords[] = {"yes", "no", "runtime", "absent"};

// kAskDevice: the pool if a bypass device is present.
enum class Cell : uint8_t { kPool, kOrdinary, kAskDevice };
constexpr Cell kYes = Cell::kPool, kNo = Cell::kOrdinary, kAsk = Cell::kAskDevice;

// Rows: leave_pinned; columns: leave_pinned_pipeline.
constexpr Cell kMatrix[4][4] = {
    //            yes    no    runtime  absent
    /* yes     */ {kYes, kYes, kYes, kYes},
    /* no      */ {kYes, kNo, kNo, kNo},
    /* runtime */ {kYes, kNo, kAsk, kAsk},
    /* absent  */ {kYes, kNo, kAsk, kAsk},
};

const char* to_text(Wish wish) noexcept { return kWords[static_cast<size_t>(wish)]; }

Wish read_wish(const char* variable, const char* const volatile& linked) noexcept {
  // Volatile: the linker may replace a weak constant, so the compiler must not fold its value.
  const char* text = environment_text(variable);
  auto wish = parse_wish(text != nullptr ? text : linked, variable);
  if (!wish.ok()) stop_with(wish.error());
  return wish.value();
}

InterceptionInputs inputs_of_this_process() noexcept {
  InterceptionInputs inputs;
  inputs.leave_pinned = read_wish(kLeavePinned, bedplate_leave_pinned);
  inputs.leave_pinned_pipeline = read_wish(kLeavePinnedPipeline, bedplate_leave_pinned_pipeline);
  for (const char* variable : kSwitches) {
    if (inputs.disabled_by == nullptr && environment_text(variable) != nullptr) {
      inputs.disabled_by = variable;
    }
  }
  inputs.bypass_device_is_present = &bypass_device_is_present;
  return inputs;
}

// Whether the directory `path` has an entry, besides "." and "..", that `counts`. Makes the system
// call itself, because opendir allocates.
bool has_entry(int root_fd, const char* path, bool (*counts)(const char* name)) noexcept {
  const Fd directory(openat(root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open()) return false;
  alignas(dirent64) char entries[1024];
  long bytes;
  while ((bytes = syscall(SYS_getdents64, directory.number(), entries, sizeof entries)) > 0) {
    for (long at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      if (entry->d_name[0] != '.' && counts(entry->d_name)) return true;
      at += entry->d_reclen;
    }
  }
  return false;
}

constinit bool is_decided = false;
constinit InterceptionDecision the_decision;

}  // namespace

Result<Wish> parse_wish(const char* text, const char* where) noexcept {
  if (text == nullptr) return Wish::kAbsent;
  for (const Wish wish : {Wish::kYes, Wish::kNo, Wish::kRuntime}) {
    if (std::strcmp(text, to_text(wish)) == 0) return wish;
  }
  return configuration_error_while("deciding whether malloc hands out pool memory")
      .set_answer("%s is \"%.64s\"", where, text)
      .set_cure("set it to yes, no or runtime, or unset it");
}

InterceptionDecision decide_interception(const InterceptionInputs& inputs) noexcept {
  InterceptionDecision decision;
  decision.inputs = inputs;
  decision.backing = HeapBacking::kOrdinary;
  if (inputs.disabled_by != nullptr) return decision;
  Cell cell = kMatrix[static_cast<size_t>(inputs.leave_pinned)]
                     [static_cast<size_t>(inputs.leave_pinned_pipeline)];
  if (cell == Cell::kAskDevice) {
    const bool is_present = inputs.bypass_device_is_present();
    decision.search = is_present ? DeviceSearch::kFound : DeviceSearch::kNotFound;
    cell = is_present ? Cell::kPool : Cell::kOrdinary;
  }
  if (cell == Cell::kPool) decision.backing = HeapBacking::kPool;
  return decision;
}

const InterceptionDecision& interception_decision() noexcept {
  if (!is_decided) {
    if (&bedplate_malloc_is_linked != nullptr) {
      the_decision = decide_interception(inputs_of_this_process());
    }
    is_decided = true;
  }
  return the_decision;
}

void refuse_sanitizer() noexcept {
  if (&bedplate_malloc_is_linked == nullptr) return;
  const Sanitizer sanitizer = linked_sanitizer();
  if (sanitizer.name.empty()) return;
  // Makes the system calls themselves: functions that a sanitizer intercepts fail before its setup.
  constexpr std::string_view kDoing =
      "bedplate: making the first block of malloc: this program has ";
  constexpr std::string_view kRest =
      ", which needs malloc for itself; link libbedplate.a without libbedplate-malloc.a "
      "(docs/debugging.md)\n";
  const std::string_view parts[] = {kDoing, sanitizer.name, kRest};
  iovec pieces[std::size(parts)];
  for (size_t i = 0; i < std::size(parts); ++i) {
    pieces[i] = {const_cast<char*>(parts[i].data()), parts[i].size()};
  }
  syscall(SYS_writev, STDERR_FILENO, pieces, std::size(pieces));
  syscall(SYS_exit_group, static_cast<int>(ErrorKind::kSystem));
}

bool bypass_device_is_present_below(int root_fd) noexcept {
  return has_entry(root_fd, "sys/class/infiniband", [](const char*) { return true; }) ||
         has_entry(root_fd, "sys/class/uio", [](const char*) { return true; }) ||
         has_entry(root_fd, "dev/vfio",
                   [](const char* name) { return *name >= '0' && *name <= '9'; });
}

bool bypass_device_is_present() noexcept {
  const Fd root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  return root.is_open() && bypass_device_is_present_below(root.number());
}

const char* explain_decision(const InterceptionDecision& decision, char* text,
                             size_t text_bytes) noexcept {
  if (decision.backing == HeapBacking::kOwn) {
    std::snprintf(text, text_bytes, "is the program's own: libbedplate-malloc.a is not linked");
    return text;
  }
  const char* outcome = decision.backing == HeapBacking::kPool ? "hands out pool memory"
                                                               : "hands out ordinary memory";
  if (decision.inputs.disabled_by != nullptr) {
    std::snprintf(text, text_bytes, "%s, because %s is set", outcome, decision.inputs.disabled_by);
    return text;
  }
  const char* device = decision.search == DeviceSearch::kFound ? " and a bypass device is present"
                       : decision.search == DeviceSearch::kNotFound
                           ? " and no bypass device is present"
                           : "";
  std::snprintf(text, text_bytes, "%s, because leave_pinned is %s, leave_pinned_pipeline is %s%s",
                outcome, to_text(decision.inputs.leave_pinned),
                to_text(decision.inputs.leave_pinned_pipeline), device);
  return text;
}

}  // namespace bedplate
