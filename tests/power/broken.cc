// The program with a store that promises too much, which a checker of power cuts must detect. It is
// `bedplate`, linked so that the stores' calls to files, devices and drives pass through this file.
// BROKEN in the environment selects one of these faults, or several joined by +:
//
//   flush  a flush is not passed on
//   fua    a durable write is passed on as an ordinary one
//   early  a write is acknowledged while it is held back until the next write
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "platform/units.h"
#include "transport/files/files.h"
#include "transport/nvme/nvme_io_datapath.h"

using bedplate::File;
using bedplate::FileAction;
using bedplate::FileOperation;
using bedplate::NvmeAction;
using bedplate::NvmeIo;
using bedplate::NvmeOperation;

// The real functions, and the broken ones that are linked in their place.
void real_begin(File& file, FileOperation& operation) noexcept
    asm("__real__ZN8bedplate4File5beginERNS_13FileOperationE");
void broken_begin(File& file, FileOperation& operation) noexcept
    asm("__wrap__ZN8bedplate4File5beginERNS_13FileOperationE");
void real_begin(NvmeIo& io, NvmeOperation& operation, uint64_t now_ns) noexcept
    asm("__real__ZN8bedplate6NvmeIo5beginERNS_13NvmeOperationEm");
void broken_begin(NvmeIo& io, NvmeOperation& operation, uint64_t now_ns) noexcept
    asm("__wrap__ZN8bedplate6NvmeIo5beginERNS_13NvmeOperationEm");

namespace {

// The longest write that is held back. Its memory is from the heap, so from the pool, where the
// drive can read it.
constexpr size_t kKeptBytes = 64 * bedplate::kKiB;
constexpr size_t kPage = 4 * bedplate::kKiB;
std::byte* memory() {
  auto* taken = static_cast<std::byte*>(std::aligned_alloc(kPage, kKeptBytes));
  if (taken == nullptr) std::abort();
  return taken;
}

bool is_broken(std::string_view how) {
  static const char* const named = std::getenv("BROKEN");
  return named != nullptr && std::string_view(named).find(how) != std::string_view::npos;
}

// Facts that the two kinds of operations have under different names.
size_t bytes_of(const FileOperation& operation) { return operation.bytes; }
size_t bytes_of(const NvmeOperation& operation) {
  return operation.block_count << operation.space->block_log2;
}
void set_to_first_block(FileOperation& operation) {
  operation.bytes = kPage;
  operation.offset = 0;
}
void set_to_first_block(NvmeOperation& operation) {
  operation.first_block = 0;
  operation.block_count = 1;
}
void written(void* is_in_flight, int64_t) noexcept { *static_cast<bool*>(is_in_flight) = false; }
void set_completed(FileOperation& operation) { operation.completed = written; }
void set_completed(NvmeOperation& operation) {
  operation.done = [](void* is_in_flight, int) noexcept { written(is_in_flight, 0); };
}

// Holds one write back, while the previous one may be in flight.
template <typename Operation>
class Broken {
 public:
  using Action = decltype(Operation::action);

  // `begin` begins an operation with the real function.
  template <typename Begin>
  void begin(Operation& operation, Action flush, const Begin& begin) {
    if (is_broken("fua")) operation.is_durable = false;
    if (operation.action == flush && is_broken("flush")) {
      turn_into_read(operation);
      set_to_first_block(operation);
    } else if (operation.action == Action::kWrite && is_broken("early") &&
               keep_back(operation, begin)) {
      turn_into_read(operation);
    }
    begin(operation);
  }

 private:
  // Copies the operation's bytes, and begins the write that was held back before. Returns false if
  // there is no room.
  template <typename Begin>
  bool keep_back(const Operation& operation, const Begin& begin) {
    const int index = next_;
    const int before = 1 - index;
    if (bytes_of(operation) > kKeptBytes || is_in_flight_[index]) return false;
    Operation& copy = operation_[index];
    copy = operation;
    std::memcpy(copy_[index], operation.memory, bytes_of(operation));
    copy.memory = copy_[index];
    copy.context = &is_in_flight_[index];
    set_completed(copy);
    if (has_one_) {
      is_in_flight_[before] = true;
      begin(operation_[before]);
    }
    has_one_ = true;
    next_ = before;
    return true;
  }

  // Makes the operation one that changes nothing.
  void turn_into_read(Operation& operation) {
    operation.action = Action::kRead;
    operation.memory = nowhere_;
    operation.is_durable = false;
  }

  Operation operation_[2] = {};
  std::byte* copy_[2] = {memory(), memory()};
  std::byte* nowhere_ = memory();
  bool is_in_flight_[2] = {};
  int next_ = 0;
  bool has_one_ = false;
};
Broken<FileOperation> broken_file;
Broken<NvmeOperation> broken_nvme;

}  // namespace

void broken_begin(File& file, FileOperation& operation) noexcept {
  broken_file.begin(operation, FileAction::kSyncData,
                    [&](FileOperation& each) { real_begin(file, each); });
}

void broken_begin(NvmeIo& io, NvmeOperation& operation, uint64_t now_ns) noexcept {
  broken_nvme.begin(operation, NvmeAction::kFlush,
                    [&](NvmeOperation& each) { real_begin(io, each, now_ns); });
}
