// Files in C: their part of bedplate_service.h.
#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

#include "apps/c_interface/messages_c.h"
#include "apps/c_interface/service_c.h"
#include "apps/services/service_plan.h"
#include "platform/assert.h"
#include "transport/files/files.h"

using namespace bedplate;

static_assert(sizeof(FileOperation) <= sizeof(bp_file_operation::reserved));
static_assert(sizeof(bp_extent) == sizeof(FileExtent));
static_assert(offsetof(bp_extent, has_data) == offsetof(FileExtent, has_data));

// A bp_file is a File.
static File& file_of(bp_file* file) noexcept { return *reinterpret_cast<File*>(file); }

extern "C" {

void bp_plan_file(bp_plan* plan, const char* name, unsigned shard, const char* path,
                  const char* key, unsigned flags, unsigned operations_max) {
  plan->service.files.push_back({shard,
                                 {.name = name,
                                  .path = path == nullptr ? "" : path,
                                  .key = key == nullptr ? "" : key,
                                  .is_writable = (flags & BP_FILE_WRITABLE) != 0,
                                  .create = (flags & BP_FILE_CREATE) != 0,
                                  .is_direct = (flags & BP_FILE_DIRECT) != 0,
                                  .excludes_writers = (flags & BP_FILE_EXCLUDES_WRITERS) != 0,
                                  .is_whole_blocks = (flags & BP_FILE_WHOLE_BLOCKS) != 0,
                                  .tells_extents = (flags & BP_FILE_EXTENTS) != 0,
                                  .is_polled = (flags & BP_FILE_POLLED) != 0,
                                  .operation_count_max = operations_max,
                                  .is_renamed = (flags & BP_FILE_RENAMED) != 0}});
}
void bp_plan_file_bytes(bp_plan* plan, const char* name, uint64_t bytes_min, uint64_t bytes_max) {
  std::vector<FileNeed>& all = plan->service.files;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const FileNeed& file) { return file.plan.name == name; });
  BP_REQUIRE(found != all.end(), "the file %s is not planned: bp_plan_file_bytes", name);
  found->plan.bytes_min = bytes_min;
  found->plan.bytes_max = bytes_max;
}
bp_file* bp_file_of(bp_context* context, const char* name) {
  auto file = of(context).context->file(name);
  if (!file.ok()) return c_fail(file.error()), nullptr;
  return reinterpret_cast<bp_file*>(file.value());
}
uint64_t bp_file_bytes(const bp_file* file) { return reinterpret_cast<const File*>(file)->bytes(); }
uint32_t bp_file_alignment(const bp_file* file) {
  return reinterpret_cast<const File*>(file)->alignment_bytes();
}

struct Extra {
  bool is_durable = false;
  uint32_t extent_count_max = 0;
};
static void begin_on_file(bp_file* file, FileAction action, bp_file_operation* operation,
                          void* memory, uint64_t bytes, uint64_t offset,
                          void (*done)(void* context, int64_t result), void* context,
                          const Extra& extra = {}) {
  operation->done = done;
  operation->context = context;
  auto* own = new (operation->reserved) FileOperation;
  own->action = action;
  own->is_durable = extra.is_durable;
  own->extent_count_max = extra.extent_count_max;
  own->memory = memory;
  own->bytes = bytes;
  own->offset = offset;
  own->context = operation;
  own->completed = [](void* self, int64_t result) noexcept {
    const auto& ended = *static_cast<bp_file_operation*>(self);
    ended.done(ended.context, result);
  };
  file_of(file).begin(*own);
}
void bp_file_read(bp_file* file, bp_file_operation* operation, void* into, size_t bytes,
                  uint64_t offset, void (*done)(void* context, int64_t result), void* context) {
  begin_on_file(file, FileAction::kRead, operation, into, bytes, offset, done, context);
}
void bp_file_write(bp_file* file, bp_file_operation* operation, const void* from, size_t bytes,
                   uint64_t offset, void (*done)(void* context, int64_t result), void* context) {
  begin_on_file(file, FileAction::kWrite, operation, const_cast<void*>(from), bytes, offset, done,
                context);
}
void bp_file_write_durable(bp_file* file, bp_file_operation* operation, const void* from,
                           size_t bytes, uint64_t offset,
                           void (*done)(void* context, int64_t result), void* context) {
  begin_on_file(file, FileAction::kWrite, operation, const_cast<void*>(from), bytes, offset, done,
                context, {.is_durable = true});
}
void bp_file_sync(bp_file* file, bp_file_operation* operation, int data_only,
                  void (*done)(void* context, int64_t result), void* context) {
  begin_on_file(file, data_only != 0 ? FileAction::kSyncData : FileAction::kSync, operation,
                nullptr, 0, 0, done, context);
}
void bp_file_allocate(bp_file* file, bp_file_operation* operation, uint64_t bytes, uint64_t offset,
                      void (*done)(void* context, int64_t result), void* context) {
  begin_on_file(file, FileAction::kAllocate, operation, nullptr, bytes, offset, done, context);
}
void bp_file_write_zeroes(bp_file* file, bp_file_operation* operation, uint64_t bytes,
                          uint64_t offset, void (*done)(void* context, int64_t result),
                          void* context) {
  begin_on_file(file, FileAction::kWriteZeroes, operation, nullptr, bytes, offset, done, context);
}
void bp_file_discard(bp_file* file, bp_file_operation* operation, uint64_t bytes, uint64_t offset,
                     void (*done)(void* context, int64_t result), void* context) {
  begin_on_file(file, FileAction::kDiscard, operation, nullptr, bytes, offset, done, context);
}
void bp_file_extents(bp_file* file, bp_file_operation* operation, bp_extent* extents,
                     unsigned count_max, uint64_t bytes, uint64_t offset,
                     void (*done)(void* context, int64_t result), void* context) {
  begin_on_file(file, FileAction::kExtents, operation, extents, bytes, offset, done, context,
                {.extent_count_max = count_max});
}

}  // extern "C"
