// A recording: the transport stream, without RTP, in one file or in several in turn.
//
// Each packet is written from where it lies, several at a time, each at its own place of the file.
// Where it is time for the next file, and that is not empty yet, the present one goes on: emptying
// a file may take long, so the control thread does it (prepare()), and no packet waits for it.
//
// Invariants, which is_valid() looks at: 1. Each write is free or under way, and writing_count_
// counts the latter, as do those of the files together. 2. Exactly one file is written to. (its
// state is kWritten) 3. Nothing is under way to a file that is empty.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "apps/tsrelay/packet_ring_datapath.h"
#include "apps/tsrelay/relay_counters.h"
#include "platform/free_list.h"
#include "transport/files.h"

namespace bedplate::relay {

struct RecordingOptions {
  uint64_t rotate_bytes = 0;  // 0: no size ends a file
  uint64_t rotate_ns = 0;     // likewise
  RecordingCounters* counters = nullptr;
};

class Recording final : public RingTap {
 public:
  static constexpr uint32_t kWritesMax = 64;  // at a time

  // Before the seal: it allocates. Requires: at least one file; what is given outlives this.
  // Errors (kSystem): a file cannot be emptied.
  Result<void> create(PacketRing& ring, const std::vector<File*>& files,
                      const RecordingOptions& options);
  // Empties the file that is next. Threads: the control thread.
  void prepare() noexcept;

  // Says in its counters whether the next file is empty.
  void tell() noexcept;

  uint32_t pump(uint64_t now_ns) noexcept override;
  void missed(const Packet& packet) noexcept override;
  bool is_idle() const noexcept override { return writing_count_ == 0; }
  // Threads: the shard's.
  bool is_valid() const noexcept;

 private:
  enum State : uint32_t { kFull, kEmpty, kWritten };

  struct Target {
    File* file = nullptr;
    std::atomic<uint32_t> state{kFull};
    std::atomic<uint32_t> writing_count{0};
  };
  struct Write {
    FileOperation operation;
    Recording* self = nullptr;
    Target* target = nullptr;
    uint32_t packet = 0;
    Write* next_free = nullptr;
  };

  Target& next_target() noexcept { return targets_[(current_ + 1) % targets_.size()]; }
  void rotate(uint32_t bytes, uint64_t now_ns) noexcept;
  void written(Write& write, int64_t result) noexcept;

  PacketRing* ring_ = nullptr;
  RecordingOptions options_;
  std::vector<Target> targets_;
  std::atomic<size_t> current_{0};
  uint64_t offset_ = 0;
  uint64_t begun_ns_ = 0;  // 0: nothing was written to it
  uint32_t writing_count_ = 0;
  FreeList<&Write::next_free> free_;
  Write writes_[kWritesMax];
};

}  // namespace bedplate::relay
