// The memory of coroutines' frames: planned blocks in classes of sizes, on one shard.
//
//     constexpr FrameClass kFrames[] = {{.bytes = 512, .count = 64}};
//     plan.segment("echo", {{"frames:echo", CoroutineFrames::bytes_for(kFrames)}}, ...);
//     frames.create({.loop = ..., .classes = kFrames, .memory = carve});     // in create()
//     BP_TRY(check_coroutine(frames, "Echo::serve", [&] { return sample.serve(); }));
//
// Only the compiler knows the size of a coroutine's frame, and it tells it to operator new alone.
// So a service checks in create() that each of its coroutines fits a class (coroutine.h), and boot
// names one that does not. A frame takes a block of the smallest class that it fits. If no block of
// that class is spare, the coroutine is refused: larger ones are planned for others.
//
// Invariant, which is_valid() checks: the blocks of each class are in use, or in its list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/cache_line.h"
#include "platform/counter.h"
#include "platform/free_list.h"
#include "platform/result.h"
#include "platform/units.h"

namespace bedplate {

class CoroutinePromise;
class EventLoop;

// At most `count` frames of at most `bytes` exist at once. Both over 0.
struct FrameClass {
  uint32_t bytes = 0;
  uint32_t count = 0;
};

struct CoroutineFramesOptions {
  EventLoop* loop = nullptr;                 // the shard's
  std::span<const FrameClass> classes = {};  // ascending
  std::span<std::byte> memory = {};          // bytes_for(classes), aligned to a cache line
  Counter* refused = nullptr;                // counts refused coroutines; nullptr: nobody does
};

// Threads: before the shard runs, the one that sets it up; then the shard's, except for in_use().
// Ownership: all that the options name, except for the classes, outlives this. At the stop of the
// shards, a coroutine that still waits is neither resumed nor destroyed.
class CoroutineFrames {
 public:
  static constexpr uint32_t kClassesMax = 8;

  static constexpr uint64_t bytes_for(std::span<const FrameClass> classes) noexcept {
    uint64_t bytes = 0;
    for (const FrameClass& each : classes) bytes += each.count * stride_bytes(each.bytes);
    return bytes;
  }

  CoroutineFrames() noexcept = default;
  CoroutineFrames(const CoroutineFrames&) = delete;
  CoroutineFrames& operator=(const CoroutineFrames&) = delete;

  // Requires: called once; `options` is as stated there.
  void create(const CoroutineFramesOptions& options) noexcept;

  EventLoop& loop() const noexcept { return *loop_; }
  // How many coroutines exist. Threads: any. A service that has drained all else is drained when
  // this is 0.
  uint64_t in_use() const noexcept { return in_use_.read(); }
  bool is_valid() const noexcept;

  // ---- For coroutine.h ----

  // Coroutines that the thread makes during the life of a Scope get their frames from `frames`.
  class Scope {
   public:
    explicit Scope(CoroutineFrames& frames) noexcept : before_(current_) { current_ = &frames; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { current_ = before_; }

   private:
    CoroutineFrames* before_;
  };

  // Memory for a frame, from those of the innermost Scope; nullptr: none is spare. Requires: a
  // Scope.
  static void* take(size_t bytes) noexcept;
  static void give_back(void* frame) noexcept;
  static CoroutineFrames& current() noexcept { return *current_; }
  // The outcome of an attempt to make the coroutine `name`.
  Result<void> judge(const char* name, bool is_made) const noexcept;

 private:
  friend class CoroutinePromise;

  struct Class;
  // In front of each frame.
  struct alignas(2 * sizeof(void*)) Block {
    Class* its_class = nullptr;
    Block* next_spare = nullptr;
  };
  struct Class {
    uint32_t bytes = 0;
    uint32_t count = 0;
    uint32_t used_count = 0;
    CoroutineFrames* frames = nullptr;
    FreeList<&Block::next_spare> spare;
  };

  static constexpr uint64_t stride_bytes(uint64_t frame_bytes) noexcept {
    return align_up(sizeof(Block) + frame_bytes, kCacheLineBytes);
  }
  Class* class_for(size_t bytes) noexcept;
  void* take_block(size_t bytes) noexcept;

  static constinit thread_local CoroutineFrames* current_;

  EventLoop* loop_ = nullptr;
  Counter* refused_ = nullptr;
  Counter in_use_;
  Class classes_[kClassesMax];
  uint32_t class_count_ = 0;
  size_t last_bytes_ = 0;  // of the frame that was requested last
  // For the promises: the coroutine that runs next in the chain of the one that runs, and the end
  // of a chain.
  CoroutinePromise* next_ = nullptr;
  CoroutinePromise* ended_ = nullptr;
};

}  // namespace bedplate
