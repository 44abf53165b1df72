// The choice between pool memory and ordinary memory for the malloc of libbedplate-malloc.a. It is
// made once, at the first malloc of the process: before main and without a configuration file.
//
// Two settings are asked, each yes, no, runtime or absent, from the environment
// (BEDPLATE_LEAVE_PINNED, BEDPLATE_LEAVE_PINNED_PIPELINE) or else from a constant of the program
// (below). One table makes a decision of them; "runtime" asks whether the machine has a device that
// bypasses the kernel. BEDPLATE_ALLOC_DISABLE or FAKEROOTKEY in the environment, whatever their
// values, switch off before the table is asked. docs/allocator.md has the table for users.
//
// Nothing here allocates: it runs inside the first malloc.
#pragma once

#include <cstddef>

#include "platform/result.h"

// A setting's default, for when the environment does not say: "yes", "no" or "runtime"; nullptr is
// absent. Weak: a program that defines one itself, extern "C", chooses another. Linking
// libbedplate-malloc.a is the wish for the pool, so by default leave_pinned is "yes", and the
// pipeline's is absent.
extern "C" const char* const bedplate_leave_pinned;
extern "C" const char* const bedplate_leave_pinned_pipeline;

namespace bedplate {

// In the order of the table's rows and columns.
enum class Wish { kYes, kNo, kRuntime, kAbsent };

// "yes", "no", "runtime" or nullptr. Errors (kConfiguration): any other word; `where` names the
// setting in the message.
Result<Wish> parse_wish(const char* text, const char* where) noexcept;

struct InterceptionInputs {
  Wish leave_pinned = Wish::kAbsent;
  Wish leave_pinned_pipeline = Wish::kAbsent;
  const char* disabled_by = nullptr;  // the variable that switches off; nullptr: none
  // Called at most once, and only when the table says so.
  bool (*bypass_device_is_present)() noexcept = nullptr;
};

// The kind of memory that malloc hands out.
enum class HeapBacking {
  kOwn,       // malloc is the program's: libbedplate-malloc.a is not linked
  kOrdinary,  // linked, and it serves ordinary memory
  kPool,      // linked, and every block lies in the pool
};

enum class DeviceSearch { kNotAsked, kFound, kNotFound };

struct InterceptionDecision {
  HeapBacking backing = HeapBacking::kOwn;
  InterceptionInputs inputs;
  DeviceSearch search = DeviceSearch::kNotAsked;
};

// The decision for a program that links libbedplate-malloc.a. Pure, but for asking for devices.
InterceptionDecision decide_interception(const InterceptionInputs& inputs) noexcept;

// The decision of this process. It falls at the first call and never changes. A setting that is
// none of the words ends the process with exit code 2 and a message.
// Threads: the first call comes before there are others.
const InterceptionDecision& interception_decision() noexcept;

// Ends the process with a message where libbedplate-malloc.a is linked beside a sanitizer that
// needs malloc for itself. Called before the first block is made: the sanitizer may not be set up
// then.
void refuse_sanitizer() noexcept;

// Whether this machine has a device that bypasses the kernel: an entry in /sys/class/infiniband (an
// RDMA device) or /sys/class/uio (handed to user space), or a number in /dev/vfio (a group that is
// bound to VFIO; the entry vfio is there on every machine that has the driver).
bool bypass_device_is_present() noexcept;

// The same for the file tree below `root_fd`, a directory: for tests.
bool bypass_device_is_present_below(int root_fd) noexcept;

// The decision and its reason in one sentence, cut off at `text_bytes`. Returns `text`.
const char* explain_decision(const InterceptionDecision& decision, char* text,
                             size_t text_bytes) noexcept;

}  // namespace bedplate
