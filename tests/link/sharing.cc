// A program that links this may seal its pool: its heap is shared memory.
#include "pinned_pool/pinned_pool.h"

[[gnu::used]] void (bedplate::PinnedPool::*const volatile seals)() noexcept =
    &bedplate::PinnedPool::seal;
