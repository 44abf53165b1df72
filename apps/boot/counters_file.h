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
#include <string>
#include <vector>

#include "alloc/heap_owner.h"
#include "alloc/heap_walk.h"
#include "apps/blockd/block_server_counters.h"
#include "apps/boot/configuration.h"
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

// The file's content. Changing it changes kCountersVersion.
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
  uint32_t has_blockd = 0;
  ConnectionCounters connections;
  VolumeCounters volumes;
};

inline constexpr uint64_t kCountersMagic = 0x31'73'74'61'74'73'70'62;  // "bpstats1"
inline constexpr uint32_t kCountersVersion = 8;

// Finds out whether CountersFile::create would succeed now, and leaves everything as it was.
Result<void> check_counters_file(const NameLock& lock);

// The appliance's end.
class CountersFile {
 public:
  CountersFile() noexcept = default;
  CountersFile(const CountersFile&) = delete;
  CountersFile& operator=(const CountersFile&) = delete;
  // Removes the file. A process that crashes does not get here, so its file stays.
  ~CountersFile();

  // Creates the file, with all its blocks, in place of what a crashed one left. Errors: the
  // directory cannot be written, or its file system is full. Requires: `lock` is taken, and stays
  // so as long as this is there.
  Result<void> create(const NameLock& lock);
  // The counters are complete: readers may look.
  void publish() noexcept;

  CountersLayout& layout() noexcept { return *layout_; }

 private:
  Result<void> map_file(const Fd& fd, const NameLock& lock);

  std::string path_;
  Fd fd_;
  CountersLayout* layout_ = nullptr;
};

// The reader's end: a copy of what was in the file, which is all that a report needs.
struct CountersSnapshot {
  const CountersLayout* layout = nullptr;  // mapped read-only for the life of the process
  bool is_running = false;                 // false: it crashed, and these are its last counters
};

// Opens NAME.stats in `directory`; with an empty `name`, the only one there.
Result<CountersSnapshot> open_counters(const std::string& directory, const std::string& name);

}  // namespace bedplate
