// The program with a store that promises too much: what a checker of power cuts must find. It is
// `bedplate`, linked so that what stores ask of files and devices comes by here first. BROKEN in
// the environment says how:
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

using bedplate::File;
using bedplate::FileAction;
using bedplate::FileOperation;

// What was linked instead, and what it stands for.
void real_begin(File& file, FileOperation& operation) noexcept
    asm("__real__ZN8bedplate4File5beginERNS_13FileOperationE");
void broken_begin(File& file, FileOperation& operation) noexcept
    asm("__wrap__ZN8bedplate4File5beginERNS_13FileOperationE");

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
struct Kept {
  FileOperation operation[2] = {};
  std::byte* copy[2] = {memory(), memory()};
  std::byte* nowhere = memory();
  bool is_under_way[2] = {};
  int next = 0;
  bool has_one = false;
};
Kept kept;

bool is_broken(std::string_view how) {
  static const char* const named = std::getenv("BROKEN");
  return named != nullptr && how == named;
}

void written(void* is_under_way, int64_t) noexcept { *static_cast<bool*>(is_under_way) = false; }

// Takes the operation's bytes and begins the write that it kept before. Returns false where it has
// no room.
bool keep_back(File& file, const FileOperation& operation) {
  const int place = kept.next;
  const int before = 1 - place;
  if (operation.bytes > kKeptBytes || kept.is_under_way[place]) return false;
  FileOperation& copy = kept.operation[place];
  copy = operation;
  std::memcpy(kept.copy[place], operation.memory, operation.bytes);
  copy.memory = kept.copy[place];
  copy.context = &kept.is_under_way[place];
  copy.completed = written;
  if (kept.has_one) {
    kept.is_under_way[before] = true;
    real_begin(file, kept.operation[before]);
  }
  kept.has_one = true;
  kept.next = before;
  return true;
}

// What is asked of the file instead: it changes nothing.
void turn_into_read(FileOperation& operation) {
  operation.action = FileAction::kRead;
  operation.memory = kept.nowhere;
  operation.is_durable = false;
}

}  // namespace

void broken_begin(File& file, FileOperation& operation) noexcept {
  if (is_broken("fua")) operation.is_durable = false;
  if (operation.action == FileAction::kSyncData && is_broken("flush")) {
    turn_into_read(operation);
    operation.bytes = kPage;
    operation.offset = 0;
  } else if (operation.action == FileAction::kWrite && is_broken("early") &&
             keep_back(file, operation)) {
    turn_into_read(operation);
  }
  real_begin(file, operation);
}
