// Frames for coroutines, in memory of the test's own.
#pragma once

#include <cstddef>
#include <memory>

#include "platform/cache_line.h"
#include "platform/counter.h"
#include "transport/coroutines/coroutine_frames.h"

namespace bedplate::test {

// Two classes: a coroutine of few variables fits the first.
inline constexpr FrameClass kTestFrames[] = {{.bytes = 512, .count = 16},
                                             {.bytes = 4096, .count = 4}};

struct FramesRig {
  explicit FramesRig(EventLoop& loop) {
    frames.create(
        {.loop = &loop, .classes = kTestFrames, .memory = memory->bytes, .refused = &refused});
  }

  struct alignas(kCacheLineBytes) Memory {
    std::byte bytes[CoroutineFrames::bytes_for(kTestFrames)];
  };
  std::unique_ptr<Memory> memory = std::make_unique<Memory>();
  Counter refused;
  CoroutineFrames frames;
};

}  // namespace bedplate::test
