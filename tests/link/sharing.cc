// Linked into a program, this makes it one that may seal its pool: its heap is shared memory.
#include "pinned_pool/pinned_pool.h"

[[gnu::used]] void (bedplate::PinnedPool::*const volatile seals)() noexcept =
    &bedplate::PinnedPool::seal;
