// A recording: the transport stream, without RTP, in one file or in several in turn.
//
// Each packet is written from where it lies, several at a time, each at its own place of the file.
// The next file is emptied while the present one is written to (prepare(), on a thread of its own,
// since it may take long). If the present file is full before the next one is empty, packets wait
// in the ring; if the next one cannot be emptied, they are dropped. No file grows beyond its limit.
//
//     for each packet:  has the present file room and time?        write it there
//                       is the next file empty?                    make it the present one; write
//                       can it not be emptied?                     count the packet as dropped
//                       else                                       leave it in the ring
//
// Invariants, which is_valid() checks: 1. Each write is free or under way. writing_count_ counts
// those under way; it is the sum of the files' counts. 2. Exactly one file is written to (its state
// is kWritten). 3. No write is under way to an empty file.
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
  uint64_t rotate_bytes = 0;  // 0: no size ends a file
  uint64_t rotate_ns = 0;     // 0: no time ends a file
  RecordingFiles* names = nullptr;
  RecordingCounters* counters = nullptr;
  Doorbell* preparer = nullptr;  // of the thread that calls prepare()
  Doorbell* shard = nullptr;
};

class Recording final : public RingTap {
 public:
  static constexpr uint32_t kWritesMax = 64;  // at a time

  // Before the seal: it allocates. It goes on behind the last whole packet of the youngest file.
  // Requires: `files` are those of `names`; a rotation has several; all arguments outlive this.
  // Errors (kSystem): a file cannot be looked at.
  Result<void> create(PacketRing& ring, const std::vector<File*>& files,
                      const RecordingOptions& options);
  // Empties the next file. Threads: one, from the seal on.
  void prepare() noexcept;

  // Sets the counter that tells if the next file is empty.
  void tell() noexcept;

  uint32_t pump(uint64_t now_ns) noexcept override;
  void missed(const Packet& packet) noexcept override;
  bool is_idle() const noexcept override { return writing_count_ == 0; }
  // Threads: the shard's.
  bool is_valid() const noexcept;

 private:
  // The thread changes kFull to kEmpty or kGivenUp; the shard makes all other changes. kGivenUp:
  // the file was moved away.
  enum State : uint32_t { kFull, kEmpty, kWritten, kGivenUp };
  enum class Room { kIsThere, kWillBe, kIsNot };

  struct Target {
    File* file = nullptr;
    uint64_t number = 0;  // in its name; the thread's in the state kFull
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

  // The next file after `current` that is not given up; nullptr: there is none.
  Target* next_target(size_t current) noexcept;
  Room room_for(uint32_t bytes, uint64_t now_ns) noexcept;
  void go_on_with(Target& next, uint64_t now_ns) noexcept;
  void written(Write& write, int64_t result) noexcept;
  bool try_prepare(Target& next) noexcept;
  // Logs that no next file can be had. `why`: the cause; nullptr: there is one again.
  void say_stuck(const Error* why) noexcept;

  PacketRing* ring_ = nullptr;
  RecordingOptions options_;
  std::vector<Target> targets_;
  std::atomic<size_t> current_{0};
  std::atomic<bool> is_stuck_{false};  // no file can be had behind the present one
  uint64_t offset_ = 0;
  uint64_t begun_ns_ = 0;  // 0: nothing was written to the present file
  uint32_t writing_count_ = 0;
  FreeList<&Write::next_free> free_;
  Write writes_[kWritesMax];
};

}  // namespace bedplate::relay
