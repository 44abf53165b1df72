// `cpp-peer SOCKET NAME [KIND...]` joins a pool, prints what holds in it as JSON, and leaves. Of
// single copy it allows the KINDs alone ("none": nothing); without any, what the owner configured.
// With the KIND "verbs" it registers what it may with the first RDMA device, before it is ready.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pinned_pool/audit.h"
#include "transport/joined_process.h"
#include "transport/verbs/verbs_device.h"

using namespace bedplate;
namespace {

constexpr uint64_t kPageBytes = 4096;

// Whether `unmap` is refused for the last page of every segment. If not, the page is gone.
template <typename Unmap>
bool is_refused(Unmap&& unmap) {
  const PinnedPool& pool = process_pool();
  bool is = true;
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const Segment& segment = pool.segment(i);
    is = unmap(segment.address + segment.bytes - kPageBytes) == -1 && errno == EPERM && is;
  }
  return is;
}

// What it registered, and of how many segments memory has a key then.
struct Registered {
  std::unique_ptr<VerbsDevice> device;
  KeyTable keys;

  Result<void> make(PinnedPool& pool) {
    auto opened = VerbsDevice::open({});
    if (!opened.ok()) return opened.error();
    device = opened.take();
    return keys.create(pool, *device);
  }
  int keyed_segment_count() const {
    int count = 0;
    for (uint32_t i = 0; i < process_pool().segment_count(); ++i) {
      count += keys.key(process_pool().segment(i).address, 1).key != kNoKey;
    }
    return count;
  }
};

void print_facts(const JoinedProcess& process, const Registered& registered) {
  const SingleCopy* taken = process.single_copy();
  static PoolMap map;
  process_pool().write_map(&map);
  auto audited = audit_maps(map, 0);
  const bool in_libc = is_refused([](void* page) { return munmap(page, kPageBytes); });
  const bool in_kernel =
      is_refused([](void* page) { return syscall(SYS_munmap, page, kPageBytes); });
  const RegistrationCounts registrations = registration_counts();
  std::printf("{\"registrations\": %llu, \"after_seal\": %llu, \"keyed_segments\": %d, ",
              static_cast<unsigned long long>(registrations.total),
              static_cast<unsigned long long>(registrations.after_seal),
              registered.keyed_segment_count());
  std::printf("\"single_copy\": \"%s\", \"segments\": %u, \"sealed\": %s, \"audit\": \"%s\", "
              "\"munmap_refused_in_libc\": %s, \"munmap_refused_by_kernel\": %s}\n",
              taken != nullptr ? taken->name() : "none", map.segment_count,
              map.is_sealed != 0 ? "true" : "false",
              audited.ok() ? audited.value().text : audited.error().answer,
              in_libc ? "true" : "false", in_kernel ? "true" : "false");
}

}  // namespace
int main(int count, char** words) {
  if (count < 3) return std::fputs("usage: cpp-peer SOCKET NAME [KIND...]\n", stderr), 2;
  std::vector<SingleCopyKind> allowed;
  for (const SingleCopyKind kind : kSingleCopyKinds) {
    for (int i = 3; i < count; ++i) {
      if (std::strcmp(words[i], name_of(kind)) == 0) allowed.push_back(kind);
    }
  }
  JoinedProcessOptions options;
  options.join.socket_path = words[1];
  options.join.process = words[2];
  if (count > 3) options.single_copy = allowed;
  Registered registered;
  if (count > 3 && std::strcmp(words[3], "verbs") == 0) {
    options.before_ready = [&registered](PinnedPool& pool) { return registered.make(pool); };
  }
  auto joined = JoinedProcess::join(options);
  if (!joined.ok()) {
    char text[1024];
    std::fprintf(stderr, "cpp-peer: %s\n", format_error(joined.error(), text, sizeof text));
    return 1;
  }
  joined.value()->leave();
  print_facts(*joined.value(), registered);
  return 0;
}
