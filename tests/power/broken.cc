// The program with a store that promises too much: what a checker of power cuts must find. It is
// `bedplate`, linked so that what stores ask of files and drives comes by here first. BROKEN in the
// environment says how:
//
//   flush  a flush is not passed on
//   fua    a write that is to last is passed on as any other
//   early  a write is acknowledged while it is kept back until the next one
//
// Tested by tests/power/power_test.py.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "platform/units.h"
#include "transport/files.h"
#include "transport/nvme/nvme_io_datapath.h"

using bedplate::File;
using bedplate::FileAction;
using bedplate::FileOperation;
using bedplate::NvmeAction;
using bedplate::NvmeIo;
using bedplate::NvmeOperation;

// What was linked instead, and what it stands for.
void real_begin(File& file, FileOperation& operation) noexcept
    asm("__real__ZN8bedplate4File5beginERNS_13FileOperationE");
void broken_begin(File& file, FileOperation& operation) noexcept
    asm("__wrap__ZN8bedplate4File5beginERNS_13FileOperationE");
void real_begin(NvmeIo& io, NvmeOperation& operation, uint64_t now_ns) noexcept
    asm("__real__ZN8bedplate6NvmeIo5beginERNS_13NvmeOperationEm");
void broken_begin(NvmeIo& io, NvmeOperation& operation, uint64_t now_ns) noexcept
    asm("__wrap__ZN8bedplate6NvmeIo5beginERNS_13NvmeOperationEm");

namespace {

// Of the heap, and so of the pool: a drive writes from it. Longer writes are not kept back.
constexpr size_t kKeptBytes = 64 * bedplate::kKiB;
constexpr size_t kPage = 4 * bedplate::kKiB;
std::byte* memory() {
  auto* taken = static_cast<std::byte*>(std::aligned_alloc(kPage, kKeptBytes));
  if (taken == nullptr) std::abort();
  return taken;
}

// One is kept back, the one before it may be under way.
template <typename Operation>
struct Kept {
  Operation operation[2] = {};
  std::byte* copy[2] = {memory(), memory()};
  std::byte* nowhere = memory();
  bool is_under_way[2] = {};
  int next = 0;
  bool has_one = false;
};
Kept<FileOperation> kept_file;
Kept<NvmeOperation> kept_nvme;

bool is_broken(std::string_view how) {
  static const char* const named = std::getenv("BROKEN");
  return named != nullptr && how == named;
}

void file_written(void* is_under_way, int64_t) noexcept {
  *static_cast<bool*>(is_under_way) = false;
}
void nvme_written(void* is_under_way, int) noexcept { *static_cast<bool*>(is_under_way) = false; }

// Returns whether `operation` may be turned into one that changes nothing: its bytes are kept.
template <typename Operation, typename Begin>
bool keep_back(Kept<Operation>& kept, const Operation& operation, size_t bytes,
               const Begin& begin) {
  const int place = kept.next;
  if (bytes > kKeptBytes || kept.is_under_way[place]) return false;
  Operation& copy = kept.operation[place];
  copy = operation;
  std::memcpy(kept.copy[place], operation.memory, bytes);
  copy.memory = kept.copy[place];
  copy.context = &kept.is_under_way[place];
  const int before = 1 - place;
  if (kept.has_one) {
    kept.is_under_way[before] = true;
    begin(kept.operation[before]);
  }
  kept.has_one = true;
  kept.next = before;
  return true;
}

}  // namespace

void broken_begin(File& file, FileOperation& operation) noexcept {
  if (operation.action == FileAction::kSyncData && is_broken("flush")) {
    operation.action = FileAction::kRead;
    operation.memory = kept_file.nowhere;
    operation.bytes = kPage;
    operation.offset = 0;
  }
  if (is_broken("fua")) operation.is_durable = false;
  if (operation.action == FileAction::kWrite && is_broken("early")) {
    const auto begin = [&](FileOperation& earlier) { real_begin(file, earlier); };
    if (keep_back(kept_file, operation, operation.bytes, begin)) {
      FileOperation& kept = kept_file.operation[1 - kept_file.next];
      kept.completed = file_written;
      operation.action = FileAction::kRead;
      operation.is_durable = false;
      operation.memory = kept_file.nowhere;
    }
  }
  real_begin(file, operation);
}

void broken_begin(NvmeIo& io, NvmeOperation& operation, uint64_t now_ns) noexcept {
  if (operation.action == NvmeAction::kFlush && is_broken("flush")) {
    operation.action = NvmeAction::kRead;
    operation.memory = kept_nvme.nowhere;
    operation.first_block = 0;
    operation.block_count = 1;
  }
  if (is_broken("fua")) operation.is_durable = false;
  if (operation.action == NvmeAction::kWrite && is_broken("early")) {
    const size_t bytes = operation.block_count << operation.space->block_log2;
    const auto begin = [&](NvmeOperation& earlier) { real_begin(io, earlier, now_ns); };
    if (keep_back(kept_nvme, operation, bytes, begin)) {
      NvmeOperation& kept = kept_nvme.operation[1 - kept_nvme.next];
      kept.done = nvme_written;
      operation.action = NvmeAction::kRead;
      operation.is_durable = false;
      operation.memory = kept_nvme.nowhere;
    }
  }
  real_begin(io, operation, now_ns);
}
