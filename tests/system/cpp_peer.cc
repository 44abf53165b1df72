// `cpp-peer SOCKET NAME [KIND...]` joins a pool, prints what holds in it as JSON, and leaves. Of
// single copy it allows the KINDs alone ("none": nothing); without any, what the owner configured.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pinned_pool/audit.h"
#include "transport/joined_process.h"

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

void print_facts(const JoinedProcess& process) {
  const SingleCopy* taken = process.single_copy();
  static PoolMap map;
  process_pool().write_map(&map);
  auto audited = audit_maps(map, 0);
  const bool in_libc = is_refused([](void* page) { return munmap(page, kPageBytes); });
  const bool in_kernel =
      is_refused([](void* page) { return syscall(SYS_munmap, page, kPageBytes); });
  std::printf("{\"single_copy\": \"%s\", \"segments\": %u, \"sealed\": %s, \"audit\": \"%s\", "
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
  auto joined = JoinedProcess::join(options);
  if (!joined.ok()) {
    char text[1024];
    std::fprintf(stderr, "cpp-peer: %s\n", format_error(joined.error(), text, sizeof text));
    return 1;
  }
  joined.value()->leave();
  print_facts(*joined.value());
  return 0;
}
