#include "transport/coroutines/coroutine_frames.h"

#include <cstring>
#include <new>

#include "platform/assert.h"
#include "platform/sanitized_build.h"
#include "transport/loop/event_loop.h"

#ifdef BP_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes) (void)0
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) (void)0
#endif

namespace bedplate {

constinit thread_local CoroutineFrames* CoroutineFrames::current_ = nullptr;

void CoroutineFrames::create(const CoroutineFramesOptions& options) noexcept {
  BP_REQUIRE(loop_ == nullptr && options.loop != nullptr,
             "frames are created twice, or without a loop: CoroutineFrames::create");
  BP_REQUIRE(options.classes.size() > 0 && options.classes.size() <= kClassesMax,
             "frames have no class, or more than %u: CoroutineFrames::create", kClassesMax);
  BP_REQUIRE(options.memory.size() >= bytes_for(options.classes),
             "the memory of frames is too small: CoroutineFrames::bytes_for");
  BP_REQUIRE(reinterpret_cast<uintptr_t>(options.memory.data()) % kCacheLineBytes == 0,
             "the memory of frames is not aligned to a cache line: CoroutineFrames::create");
  loop_ = options.loop;
  refused_ = options.refused;
  std::byte* memory = options.memory.data();
  for (const FrameClass& each : options.classes) {
    Class& made = classes_[class_count_++];
    made.bytes = each.bytes;
    made.count = each.count;
    made.frames = this;
    BP_REQUIRE(each.bytes > 0 && each.count > 0 &&
                   (class_count_ == 1 || each.bytes > classes_[class_count_ - 2].bytes),
               "classes of frames do not ascend, or one is empty: CoroutineFrames::create");
    const uint64_t stride = stride_bytes(each.bytes);
    for (uint32_t i = each.count; i-- > 0;) {
      auto* block = new (memory + i * stride) Block;
      block->its_class = &made;
      ASAN_POISON_MEMORY_REGION(block + 1, made.bytes);
      made.spare.push(*block);
    }
    memory += each.count * stride;
  }
  BP_DCHECK_SLOW(is_valid());
}

bool CoroutineFrames::is_valid() const noexcept {
  uint64_t used = 0;
  for (uint32_t i = 0; i < class_count_; ++i) {
    const Class& each = classes_[i];
    used += each.used_count;
    if (each.used_count > each.count) return false;
    if (!each.spare.has_just(each.count - each.used_count,
                             [&](const Block& block) { return block.its_class == &each; })) {
      return false;
    }
  }
  return used == in_use();
}

CoroutineFrames::Class* CoroutineFrames::class_for(size_t bytes) noexcept {
  for (uint32_t i = 0; i < class_count_; ++i) {
    if (bytes <= classes_[i].bytes) return &classes_[i];
  }
  return nullptr;
}

void* CoroutineFrames::take_block(size_t bytes) noexcept {
  BP_REQUIRE_THREAD(loop_->is_own_thread(), "a coroutine of a shard's CoroutineFrames");
  last_bytes_ = bytes;
  Class* const fitting = class_for(bytes);
  if (fitting == nullptr || fitting->spare.is_empty()) {
    if (refused_ != nullptr) refused_->add(1);
    return nullptr;
  }
  Block& block = fitting->spare.pop();
  BP_DCHECK(block.its_class == fitting);
  ++fitting->used_count;
  in_use_.add(1);
  ASAN_UNPOISON_MEMORY_REGION(&block + 1, fitting->bytes);
  return &block + 1;
}

void* CoroutineFrames::take(size_t bytes) noexcept {
  BP_REQUIRE(current_ != nullptr,
             "a coroutine is called by neither start_coroutine(), a session nor a coroutine");
  return current_->take_block(bytes);
}

void CoroutineFrames::give_back(void* frame) noexcept {
  Block& block = *(static_cast<Block*>(frame) - 1);
  Class& its_class = *block.its_class;
  CoroutineFrames& frames = *its_class.frames;
  BP_REQUIRE_THREAD(frames.loop_->is_own_thread(), "the destructor of a Coroutine");
  BP_ASSERT(its_class.used_count > 0);
  if (BP_DEBUG) std::memset(frame, 0xdb, its_class.bytes);
  ASAN_POISON_MEMORY_REGION(frame, its_class.bytes);
  --its_class.used_count;
  frames.in_use_.set(frames.in_use() - 1);
  its_class.spare.push(block);
}

Result<void> CoroutineFrames::judge(const char* name, bool is_made) const noexcept {
  if (is_made) return {};
  const Class& largest = classes_[class_count_ - 1];
  Error error = error_while("making the coroutine %s", name);
  if (last_bytes_ > largest.bytes) {
    error.set_answer("its frame has %zu bytes, and the largest planned class has %u", last_bytes_,
                     largest.bytes);
    error.set_cure("plan a class for it: FrameClass::bytes of at least %zu", last_bytes_);
  } else {
    error.set_answer("its frame has %zu bytes, and all frames of its class are in use",
                     last_bytes_);
    error.set_cure("plan more of them: FrameClass::count");
  }
  return error;
}

}  // namespace bedplate
