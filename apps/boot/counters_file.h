// The counters file: NAME.stats in the runtime directory, a small file on tmpfs that the appliance
// maps and writes and `bedplate stats` maps read-only.
//
// Each counter is written by one thread with relaxed stores, so reading costs the appliance
// nothing. The file is removed on a clean stop and kept after a crash. A lock on it (fcntl, for
// the life of the process) tells its readers a running appliance from one that crashed; nothing
// else depends on it, since any process that reads the file can lock it once the appliance is gone
// (name_lock.h is what keeps a name from running twice).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alloc/heap_owner.h"
#include "alloc/heap_walk.h"
#include "apps/boot/configuration.h"
#include "apps/boot/counter_table.h"
#include "apps/boot/name_lock.h"
#include "pinned_pool/membership.h"
#include "pinned_pool/pool_map.h"
#include "platform/file.h"
#include "platform/result.h"
#include "transport/event_loop.h"
#include "transport/shm/shm_provider.h"
#include "transport/stream_sockets.h"
#include "transport/verbs/verbs_provider.h"

namespace bedplate {

inline constexpr uint32_t kShardCountMax = 64;
inline constexpr uint32_t kOwnerCountMax = 256;
inline constexpr uint32_t kGroupCountMax = kSegmentCountMax;  // each has one for its FIFOs
inline constexpr uint32_t kMemberStateCount = 5;
static_assert(static_cast<uint32_t>(MemberState::kQuiet) == kMemberStateCount - 1);

struct alignas(kCacheLineBytes) ShardCounters {
  OwnerName name;
  int32_t cpu = 0;
  char backend[16] = {};
  EventLoopCounters loop;
  SocketCounters sockets;
};

// What the owner of the pool cannot know: how much of a heap the process has used that it is of.
inline constexpr uint64_t kUnknownBytes = ~uint64_t{0};

struct OwnerCounters {
  OwnerName name;
  Counter bytes;
  Counter used_bytes;  // may be kUnknownBytes
};

// An owner of heap memory.
struct HeapOwnerCounters {
  OwnerName name;
  Counter limit_bytes;  // kNoLimit: none
  Counter used_bytes;
  Counter refused;
};

// A size class of the heap (alloc/heap_walk.h).
struct HeapClassCounters {
  Counter block_bytes;
  Counter used_bytes;
  Counter free_bytes;
};

struct HeapCounters {
  Counter free_bytes;
  Counter largest_free_bytes;
  Counter class_count;
  HeapClassCounters classes[kHeapClassCountMax];
};

// A group, and what the appliance's own member of it has counted.
struct alignas(kCacheLineBytes) GroupCounters {
  OwnerName name;
  GroupKind kind = GroupKind::kLazy;
  Counter members[kMemberStateCount];      // how many are in each MemberState
  alignas(kCacheLineBytes) ShmCounters shm;  // its shard writes
};

struct PeerCounters {
  OwnerName name;
  Counter state;  // PeerState
};

// What there is of [verbs]; `device` is empty where it has none.
struct alignas(kCacheLineBytes) PeersCounters {
  char device[160] = {};  // and its port: VerbsPort::text()
  uint32_t peer_count = 0;
  uint32_t has_datagrams = 0;
  Counter refused;        // exchanges
  Counter async_events;   // of the device
  alignas(kCacheLineBytes) VerbsCounters verbs;  // its shard writes
  alignas(kCacheLineBytes) PeerCounters peers[kVerbsPeerCountMax];
};

// One counter of a service: CounterDescription.
struct CounterRecord {
  char name[48] = {};
  char unit[16] = {};
  char help[160] = {};
  uint32_t kind = 0;    // CounterKind
  uint32_t offset = 0;  // from its set's values
};

// One struct of counters of a service: CounterSet.
struct CounterSetRecord {
  OwnerName owner;
  OwnerName name;
  OwnerName instance;
  uint32_t first = 0;   // its counters are so many records from here
  uint32_t count = 0;
  uint64_t values = 0;  // where they lie in the file, on a cache line
};

// How the file begins. Services' counters follow: records of sets, records of counters, values.
// Changing it changes kCountersVersion.
struct CountersLayout {
  std::atomic<uint64_t> magic{0};  // stored last at creation, with release
  uint32_t version = 0;
  int32_t pid = 0;
  OwnerName appliance;
  Counter pool_total_bytes;
  Counter stoppers;  // bits of Stopper: what is in force against taking memory away
  Counter registrations;
  Counter registrations_after_seal;
  Counter exhaustions;       // allocations that were refused
  Counter checked_pointers;  // debug builds: pointers seen to lie in the pool
  Counter bad_pointers;      // of frees and the like, refused (alloc/bad_pointer.h)
  Counter support_level;     // the bits of SupportLevel
  PoolMap map;
  uint32_t owner_count = 0;
  uint32_t shard_count = 0;
  OwnerCounters owners[kOwnerCountMax];
  ShardCounters shards[kShardCountMax];
  HeapCounters heap;
  Counter heap_owner_count;  // set after the entry that it counts
  HeapOwnerCounters heap_owners[kHeapOwnerCountMax];
  uint32_t group_count = 0;
  GroupCounters groups[kGroupCountMax];
  uint32_t has_verbs = 0;
  PeersCounters peers;
  uint32_t set_count = 0;
  uint32_t record_count = 0;  // of all sets
  uint64_t file_bytes = 0;

  // Where what follows lies in the file.
  uint64_t sets_offset() const noexcept;
  uint64_t records_offset() const noexcept;
};

inline constexpr uint64_t kCountersMagic = 0x31'73'74'61'74'73'70'62;  // "bpstats1"
inline constexpr uint32_t kCountersVersion = 9;

// Finds out whether CountersFile::create would succeed now, and leaves everything as it was.
Result<void> check_counters_file(const NameLock& lock, std::span<const CounterSet> sets = {});

// The appliance's end.
class CountersFile {
 public:
  CountersFile() noexcept = default;
  CountersFile(const CountersFile&) = delete;
  CountersFile& operator=(const CountersFile&) = delete;
  // Removes the file. A process that crashes does not get here, so its file stays.
  ~CountersFile();

  // Creates the file, with all its blocks, in place of what a crashed one left; `sets` are
  // described in it. Errors: the directory cannot be written, or its file system is full.
  // Requires: `lock` is taken, and stays so as long as this is there.
  Result<void> create(const NameLock& lock, std::span<const CounterSet> sets = {});
  // The counters are complete: readers may look.
  void publish() noexcept;

  CountersLayout& layout() noexcept { return *layout_; }
  // Where the values of `set` lie, zeroed and on a cache line. Requires: it was given to create().
  void* values(const CounterSet& set) noexcept;

 private:
  Result<void> map_file(const Fd& fd, const NameLock& lock, uint64_t bytes);
  void describe(std::span<const CounterSet> sets) noexcept;

  std::string path_;
  Fd fd_;
  CountersLayout* layout_ = nullptr;
};

// The reader's end: a copy of what was in the file, which is all that a report needs.
struct CountersSnapshot {
  const CountersLayout* layout = nullptr;  // mapped read-only for the life of the process
  bool is_running = false;                 // false: it crashed, and these are its last counters
  int fd = -1;                             // of the file, for the life of the process

  // Whether it runs now: as long as it has the file's lock.
  bool still_runs() const noexcept;

  std::span<const CounterSetRecord> sets() const noexcept;
  // Those of one of sets().
  std::span<const CounterRecord> counters(const CounterSetRecord& set) const noexcept;
  // Of a histogram value() is what its first bucket has counted: ask for the histogram.
  uint64_t value(const CounterSetRecord& set, const CounterRecord& counter) const noexcept;
  const Histogram& histogram(const CounterSetRecord& set,
                             const CounterRecord& counter) const noexcept;
};

// Opens NAME.stats in `directory`; with an empty `name`, the only one there.
Result<CountersSnapshot> open_counters(const std::string& directory, const std::string& name);
// The file at `path`, wherever it came from.
Result<CountersSnapshot> open_counters_file(const std::string& path);

}  // namespace bedplate
