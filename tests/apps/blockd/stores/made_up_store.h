// A store played by a test: operations wait until the test completes them, in any order, with any
// error. It models a power cut: written data stay in a volatile cache until a flush or a durable
// write has completed.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "apps/blockd/stores/volume_store.h"

namespace bedplate::test {

class MadeUpStore final : public VolumeStore {
 public:
  static constexpr uint32_t kBlockBytes = 512;

  explicit MadeUpStore(uint64_t bytes, bool has_extents = true, bool zeroes_fast = true)
      : VolumeStore(nullptr, bytes, kBlockBytes,
                    {.has_extents = has_extents, .zeroes_fast = zeroes_fast}),
        seen(bytes),
        durable(bytes) {}

  // A deliberate defect, which the test of power cuts must find.
  enum class Defect : uint8_t { kNone, kFlushIsNone, kDurableIsNone, kCompletesEarly };
  Defect defect = Defect::kNone;

  void begin(StoreOperation& operation) noexcept override { begun.push_back(&operation); }

  // Completes operation `index` of `begun`: performs it if `error` is 0, else fails it with
  // `error`. With kCompletesEarly, put_off() performs it later.
  void complete(size_t index = 0, int error = 0) {
    StoreOperation& operation = *begun.at(index);
    begun.erase(begun.begin() + static_cast<std::ptrdiff_t>(index));
    const bool is_early =
        defect == Defect::kCompletesEarly && error == 0 && operation.action != StoreAction::kRead;
    const int64_t result = error != 0 ? -error : is_early ? put_off(operation) : act(operation);
    ++completed_count;
    operation.completed(operation.context, result);
  }
  void complete_all() {
    while (!begun.empty()) complete();
  }
  void cut_power() {
    seen = durable;
    put_off_.clear();
  }
  void grow(uint64_t bytes) { grow_to(bytes); }

  std::deque<StoreOperation*> begun;
  std::vector<std::byte> seen;  // the content that a read returns
  std::vector<std::byte> durable;
  std::vector<FileExtent> extents;  // the extents that it reports
  uint64_t completed_count = 0;

 private:
  struct PutOff {
    StoreOperation operation;
    std::vector<std::byte> data;
  };
  // Performs the operations put off earlier, and puts this one off until the next call.
  int64_t put_off(const StoreOperation& operation) {
    while (!put_off_.empty()) {
      put_off_.front().operation.memory = put_off_.front().data.data();
      act(put_off_.front().operation);
      put_off_.pop_front();
    }
    PutOff& kept = put_off_.emplace_back();
    kept.operation = operation;
    if (operation.action == StoreAction::kWrite) {
      kept.data.assign(operation.memory, operation.memory + operation.bytes);
    }
    return 0;
  }
  int64_t act(StoreOperation& operation) {
    std::byte* const target = &seen[0] + operation.offset;
    switch (operation.action) {
      case StoreAction::kRead:
        std::memcpy(operation.memory, target, operation.bytes);
        return static_cast<int64_t>(operation.bytes);
      case StoreAction::kWrite:
        std::memcpy(target, operation.memory, operation.bytes);
        if (operation.is_durable && defect != Defect::kDurableIsNone) harden(operation);
        return 0;
      case StoreAction::kFlush:
        if (defect != Defect::kFlushIsNone) durable = seen;
        return 0;
      case StoreAction::kWriteZeroes:
      case StoreAction::kDiscard: std::memset(target, 0, operation.bytes); return 0;
      case StoreAction::kExtents: break;
    }
    const size_t count = std::min<size_t>(extents.size(), operation.extent_count_max);
    std::memcpy(operation.memory, extents.data(), count * sizeof(FileExtent));
    return static_cast<int64_t>(count);
  }
  void harden(const StoreOperation& operation) {
    std::memcpy(&durable[0] + operation.offset, &seen[0] + operation.offset, operation.bytes);
  }

  std::deque<PutOff> put_off_;
};

}  // namespace bedplate::test
