// Records the transport stream, without RTP, into one file or several files in rotation.
//
// Each packet is written from its receive buffer. Several writes are in flight, each at its own
// file offset. Meanwhile prepare() empties the next file, on a thread of its own, since it may take
// long. If the present file is full before the next one is empty, packets wait in the ring; if the
// next file cannot be emptied, packets are dropped. No file grows beyond its limit.
//
//     for each packet:  the present file has space and time left   write it there
//                       the next file is empty                     make it the present one; write
//                       no file can be emptied                     count the packet as dropped
//                       otherwise                                  leave it in the ring
//
// A packet with a bad sync byte is not written, and counts as foreign. A packet that is longer than
// a file may be is dropped.
//
// Invariants, which is_valid() checks: 1. Each write is free or in flight. writing_count_ counts
// the writes in flight; it is the sum of the files' counts. 2. Exactly one file is the present one
// (state kWritten). 3. No write to an empty file is in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "apps/tsrelay/packet_ring_datapath.h"
#include "apps/tsrelay/recording_files.h"
#include "apps/tsrelay/relay_counters.h"
#include "platform/free_list.h"
#include "transport/files/files.h"
#include "transport/loop/doorbell.h"

namespace bedplate::relay {

struct RecordingOptions {
  uint64_t rotate_bytes = 0;  // 0: no size limit
  uint64_t rotate_ns = 0;     // 0: no time limit
  RecordingFiles* names = nullptr;
  RecordingCounters* counters = nullptr;
  Doorbell* preparer = nullptr;  // of the thread that calls prepare()
  Doorbell* shard = nullptr;
};

class Recording final : public RingTap {
 public:
  static constexpr uint32_t kWritesMax = 64;  // in flight at once

  // Before the seal: it allocates. Continues after the last whole packet of the youngest file.
  // Requires: called once; `files` are those of `names`; there are several if it rotates; the ring,
  // the files and all that the options point to outlive this.
  // Errors (kSystem): a file cannot be examined.
  Result<void> create(PacketRing& ring, const std::vector<File*>& files,
                      const RecordingOptions& options);
  // Empties the next file, unless it is empty or writes to it are in flight. Threads: one, from the
  // seal on.
  void prepare() noexcept;

  // Updates the counters is_next_ready and is_stuck. Threads: the shard's.
  void tell() noexcept;

  uint32_t pump(uint64_t now_ns) noexcept override;
  void missed(const Packet& packet) noexcept override;
  bool is_idle() const noexcept override { return writing_count_ == 0; }
  // Threads: the shard's.
  bool is_valid() const noexcept;

 private:
  // The thread changes kFull to kEmpty or kGivenUp; the shard makes all other changes. kGivenUp:
  // the file was moved away or removed.
  enum State : uint32_t { kFull, kEmpty, kWritten, kGivenUp };
  enum class Room { kIsThere, kWillBe, kIsNot };

  struct Target {
    File* file = nullptr;
    uint64_t number = 0;  // in its name; in state kFull the thread owns it
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

  // Returns the next file after `current` that is not given up, or nullptr if there is none.
  Target* next_target(size_t current) noexcept;
  Room room_for(uint32_t bytes, uint64_t now_ns) noexcept;
  void go_on_with(Target& next, uint64_t now_ns) noexcept;
  void written(Write& write, int64_t result) noexcept;
  bool try_prepare(Target& next) noexcept;
  // Logs that no next file is available, because of `why`; with nullptr, that one is available
  // again.
  void say_stuck(const Error* why) noexcept;

  PacketRing* ring_ = nullptr;
  RecordingOptions options_;
  std::vector<Target> targets_;
  std::atomic<size_t> current_{0};
  std::atomic<bool> is_stuck_{false};  // no next file is available
  uint64_t offset_ = 0;
  uint64_t begun_ns_ = 0;  // the first write to the present file; 0: none yet
  uint32_t writing_count_ = 0;
  FreeList<&Write::next_free> free_;
  Write writes_[kWritesMax];
};

}  // namespace bedplate::relay
