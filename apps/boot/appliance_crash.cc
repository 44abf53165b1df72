#include "apps/boot/appliance_crash.h"

#include <string_view>

#include "alloc/heap_owner.h"
#include "platform/crash_handler.h"
#include "platform/crash_record.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constinit thread_local const char* shard_of_thread = nullptr;  // nullptr: it is no shard's

constexpr CrashStep kCrashSteps[] = {{&stop_other_threads}, {&record_cause}, {&record_calls}};

}  // namespace

void catch_appliance_crashes() noexcept {
  name_crash_places(&write_crash_place);
  if (auto caught = catch_crashes(kCrashSteps); !caught.ok()) log_error(caught.error());
}

void this_thread_is_shard(const char* name) noexcept { shard_of_thread = name; }

void write_crash_place(TextWriter& to) noexcept {
  if (shard_of_thread != nullptr) to.text(", shard ").text(shard_of_thread);
  const HeapOwner owner = current_heap_owner();
  if (owner.index >= heap_owner_count()) return;  // the crash has damaged it
  const OwnerName name = heap_owner_use(owner).name;
  constexpr std::string_view kServices = "heap:";
  const bool is_service = name.view().starts_with(kServices) && owner.index != kRuntimeOwner.index;
  if (is_service) to.text(", service ").text(name.view().substr(kServices.size()));
}

}  // namespace bedplate
