// The choice between pool memory and ordinary memory for the malloc of libbedplate-malloc.a. It is
// made once, at the first malloc of the process: before main and without a configuration file.
//
// The inputs are two settings, each yes, no, runtime or absent. They come from the environment
// (BEDPLATE_LEAVE_PINNED, BEDPLATE_LEAVE_PINNED_PIPELINE), or else from a constant of the program
// (below). One table maps them to the decision; "runtime" asks whether the machine has a device
// that bypasses the kernel. BEDPLATE_ALLOC_DISABLE or FAKEROOTKEY in the environment, with any
// value, decides for ordinary memory before the table is used. docs/allocator.md has the table for
// users.
//
// Nothing here allocates: it runs inside the first malloc.
#pragma once

#include <cstddef>

#include "platform/result.h"

// The defaults of the settings, for an environment without them: "yes", "no" or "runtime"; nullptr
// is absent. They are weak: a program overrides one by defining it, extern "C". A program that
// links libbedplate-malloc.a wants the pool, so bedplate_leave_pinned is "yes" unless overridden;
// bedplate_leave_pinned_pipeline is nullptr.
extern "C" const char* const bedplate_leave_pinned;
extern "C" const char* const bedplate_leave_pinned_pipeline;

namespace bedplate {

// In the order of the table's rows and columns.
enum class Wish { kYes, kNo, kRuntime, kAbsent };

// Parses "yes", "no", "runtime" or nullptr. Errors (kConfiguration): any other word; `where` names
// the setting in the message.
Result<Wish> parse_wish(const char* text, const char* where) noexcept;

struct InterceptionInputs {
  Wish leave_pinned = Wish::kAbsent;
  Wish leave_pinned_pipeline = Wish::kAbsent;
  const char* disabled_by = nullptr;  // the variable that disables the pool, or nullptr
  // Called at most once, and only if the table needs it.
  bool (*bypass_device_is_present)() noexcept = nullptr;
};

// The kind of memory that malloc hands out.
enum class HeapBacking {
  kOwn,       // libbedplate-malloc.a is not linked: malloc is the program's
  kOrdinary,  // linked, and it serves ordinary memory
  kPool,      // linked, and every block lies in the pool
};

enum class DeviceSearch { kNotAsked, kFound, kNotFound };

struct InterceptionDecision {
  HeapBacking backing = HeapBacking::kOwn;
  InterceptionInputs inputs;
  DeviceSearch search = DeviceSearch::kNotAsked;
};

// The decision for a program that links libbedplate-malloc.a. Pure, except for the device check.
InterceptionDecision decide_interception(const InterceptionInputs& inputs) noexcept;

// The decision of this process. The first call makes it; it never changes. A setting with an
// unknown word ends the process with exit code 2 and a message, even if the pool is disabled.
// Threads: the first call comes before other threads start.
const InterceptionDecision& interception_decision() noexcept;

// Ends the process with exit code 1 and a message if libbedplate-malloc.a is linked beside a
// sanitizer that needs malloc for itself. The heap calls it before the first block, perhaps before
// the sanitizer is set up.
void refuse_sanitizer() noexcept;

// Whether this machine has a device that bypasses the kernel: an entry in /sys/class/infiniband (an
// RDMA device) or /sys/class/uio (handed to user space), or a number in /dev/vfio (a group bound to
// VFIO; the entry vfio exists on every machine with the driver).
bool bypass_device_is_present() noexcept;

// As above, with the file tree below the directory `root_fd` in place of /. For tests.
bool bypass_device_is_present_below(int root_fd) noexcept;

// Writes the decision and its reason as the end of a sentence that begins with "malloc", truncated
// at `text_bytes`: "hands out pool memory, because ...". Returns `text`.
const char* explain_decision(const InterceptionDecision& decision, char* text,
                             size_t text_bytes) noexcept;

}  // namespace bedplate
