// `cpp-peer SOCKET NAME [KIND...]` joins a pool, prints facts about it as JSON, and leaves. It
// allows only the KINDs of single copy ("none": no kind); without a KIND, those that the owner
// configured.
// `cpp-peer SOCKET NAME verbs [ADDRESS OWNER]` uses the owner's RDMA device, too; with an ADDRESS
// it is a peer of the owner there, by the name "dialler", and sends it a message out of its own
// heap, and datagrams.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pinned_pool/audit.h"
#include "platform/clock.h"
#include "transport/messages/joined_process.h"
#include "transport/verbs/channel/verbs_provider.h"
#include "transport/verbs/joined/joined_verbs.h"

using namespace bedplate;
namespace {

constexpr uint64_t kPageBytes = 4096;

// True if `unmap` is refused for the last page of every segment. If not, the page is gone.
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

constexpr VerbsShape kShape = {.peer_count_max = 1, .datagram_count = 64};

// The RDMA device and, with an ADDRESS, the owner as a peer.
struct Verbs {
  JoinedVerbs joined;
  Messenger messenger;
  VerbsProvider provider;
  const char* address = nullptr;
  const char* owner = nullptr;

  Result<void> open(JoinedProcess& process) {
    if (address == nullptr) return joined.open(process);
    BP_TRY(joined.open(process, VerbsProvider::kExportCount));
    const uint64_t bytes = verbs_memory_bytes(kShape);
    VerbsProviderOptions options;
    options.device = &joined.device();
    options.keys = &joined.keys();
    options.pool = &process_pool();
    options.memory = {static_cast<std::byte*>(std::aligned_alloc(kPageBytes, bytes)), bytes};
    options.name = "dialler";
    options.peers = {{owner, parse_socket_address(address).take()}};
    options.shape = kShape;
    BP_TRY(provider.create(options, messenger.dispatcher()));
    messenger.add_provider(provider);
    return {};
  }
  // Whether the owner has the message. The arrival of datagrams is not checked.
  bool say_hello() {
    Endpoint& to = *messenger.connect({.name = owner}).take();
    const uint64_t deadline_ns = monotonic_ns() + 60 * kNsPerSecond;
    bool is_sent = false;
    uint32_t datagram_count = 0;
    while (monotonic_ns() < deadline_ns) {
      messenger.poll(16);
      is_sent = is_sent || to.am_send(1, std::as_bytes(std::span("hello"))) == SendStatus::kDone;
      if (!is_sent) continue;
      if (datagram_count < 100) {
        datagram_count += provider.send_datagram(to, 2, {}) == SendStatus::kDone;
      } else if (provider.settle()) {
        return true;
      }
    }
    return false;
  }
  int keyed_segment_count() const {
    int count = 0;
    for (uint32_t i = 0; i < process_pool().segment_count(); ++i) {
      count += joined.keys().key(process_pool().segment(i).address, 1).key != kNoKey;
    }
    return count;
  }
};

void print_facts(const JoinedProcess& process, const Verbs& verbs) {
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
              verbs.keyed_segment_count());
  std::printf("\"device\": \"%s\", ", process.terms().device);
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
      if (std::strcmp(words[i], to_text(kind)) == 0) allowed.push_back(kind);
    }
  }
  JoinedProcessOptions options;
  options.join.socket_path = words[1];
  options.join.process = words[2];
  options.join.timeout_ns = 60 * kNsPerSecond;  // only a hang takes so long
  if (count > 3) options.single_copy = allowed;
  static Verbs verbs;
  if (count > 3 && std::strcmp(words[3], "verbs") == 0) {
    options.before_ready = [](JoinedProcess& process) { return verbs.open(process); };
  }
  if (count > 5) verbs.address = words[4], verbs.owner = words[5];
  auto joined = JoinedProcess::join(options);
  if (!joined.ok()) {
    char text[1024];
    std::fprintf(stderr, "cpp-peer: %s\n", format_error(joined.error(), text, sizeof text));
    return 1;
  }
  if (verbs.address != nullptr && !verbs.say_hello()) {
    return std::fputs("cpp-peer: the owner has not got it\n", stderr), 1;
  }
  print_facts(*joined.value(), verbs);
  joined.value()->leave();
  return 0;
}
