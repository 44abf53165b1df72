#include "alloc/block_ledger.h"

#include <atomic>
#include <bit>

#include <sys/mman.h>

#include "platform/assert.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr size_t kWordBytes = sizeof(void*);  // the smallest block; every block is aligned to it
constexpr unsigned kBitsPerEntry = 64;
constexpr uint32_t kLedgerCountMax = 64;  // mimalloc has no more arenas
constexpr uint64_t kSearchBytesMax = kGiB;

struct Ledger {
  const std::byte* arena = nullptr;
  uint64_t bytes = 0;
  std::atomic<uint64_t>* entries = nullptr;
};

constinit Ledger ledgers[kLedgerCountMax];
constinit std::atomic<uint32_t> ledger_count{0};

// The ledger bit of a pointer; no entry: it lies in no arena, or no block can begin there.
struct Position {
  std::atomic<uint64_t>* entry = nullptr;
  uint64_t bit = 0;
};

const Ledger* ledger_of(const void* pointer) noexcept {
  // Acquire: pairs with the release in ledger_create.
  const uint32_t count = ledger_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    const auto offset =
        static_cast<uint64_t>(static_cast<const std::byte*>(pointer) - ledgers[i].arena);
    if (offset < ledgers[i].bytes) return &ledgers[i];
  }
  return nullptr;
}

Position position_of(const void* pointer) noexcept {
  const Ledger* ledger = ledger_of(pointer);
  if (ledger == nullptr || reinterpret_cast<uintptr_t>(pointer) % kWordBytes != 0) return {};
  const auto word =
      static_cast<uint64_t>(static_cast<const std::byte*>(pointer) - ledger->arena) / kWordBytes;
  return {&ledger->entries[word / kBitsPerEntry], uint64_t{1} << word % kBitsPerEntry};
}

}  // namespace

bool ledger_create(std::span<std::byte> arena) noexcept {
  const uint32_t index = ledger_count.load(std::memory_order_relaxed);
  if (index == kLedgerCountMax) return false;
  static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
  // Private memory costs nothing until it is touched; pool memory is locked at boot, and so taken.
  void* memory = mmap(nullptr, arena.size() / kWordBytes / 8, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  ledgers[index] = {arena.data(), arena.size(), static_cast<std::atomic<uint64_t>*>(memory)};
  ledger_count.store(index + 1, std::memory_order_release);
  return true;
}

void ledger_enter(const void* block) noexcept {
  const Position position = position_of(block);
  BP_ASSERT(position.entry != nullptr);
  // Relaxed: the block's pointer passes between threads with synchronisation of its own.
  position.entry->fetch_or(position.bit, std::memory_order_relaxed);
}

bool ledger_leave(const void* block) noexcept {
  const Position position = position_of(block);
  if (position.entry == nullptr) return false;
  return (position.entry->fetch_and(~position.bit, std::memory_order_relaxed) & position.bit) != 0;
}

bool ledger_has(const void* pointer) noexcept {
  const Position position = position_of(pointer);
  return position.entry != nullptr &&
         (position.entry->load(std::memory_order_relaxed) & position.bit) != 0;
}

const void* ledger_block_before(const void* pointer) noexcept {
  const Ledger* ledger = ledger_of(pointer);
  if (ledger == nullptr) return nullptr;
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(pointer) - ledger->arena);
  // The last word that begins before `pointer`; an unaligned pointer lies within that word.
  if (offset == 0) return nullptr;
  uint64_t word = (offset - 1) / kWordBytes;
  uint64_t mask = ~uint64_t{0} >> (kBitsPerEntry - 1 - word % kBitsPerEntry);
  const uint64_t words_max = kSearchBytesMax / kWordBytes;
  const uint64_t last_index = word > words_max ? (word - words_max) / kBitsPerEntry : 0;
  for (uint64_t index = word / kBitsPerEntry;; --index, mask = ~uint64_t{0}) {
    const uint64_t found = ledger->entries[index].load(std::memory_order_relaxed) & mask;
    if (found != 0) {
      const uint64_t bit = kBitsPerEntry - 1 - static_cast<uint64_t>(std::countl_zero(found));
      return ledger->arena + (index * kBitsPerEntry + bit) * kWordBytes;
    }
    if (index == last_index) return nullptr;
  }
}

}  // namespace bedplate
