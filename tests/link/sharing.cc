// A program that links this can seal its pool, so its heap is shared memory.
#include "pinned_pool/pinned_pool.h"

[[gnu::used]] void (bedplate::PinnedPool::*const volatile seals)() noexcept =
    &bedplate::PinnedPool::seal;
