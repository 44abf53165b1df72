#include "apps/perf/perf_side.h"

#include "alloc/confined_heap.h"
#include "apps/perf/perf_verbs.h"
#include "pinned_pool/boot_segment.h"
#include "platform/assert.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {

Result<std::unique_ptr<PerfSide>> PerfSide::open(const PerfSideOptions& options) {
  Error error =
      configuration_error_while("reading the address %s", options.address.c_str())
          .set_cure("write tcp:ADDRESS:PORT, numeric, for verbs, or unix:PATH for shared memory");
  auto parsed = parse_socket_address(options.address);
  if (!parsed.ok()) return error.set_answer("%s", parsed.error().answer);
  const bool is_shared = parsed.value().kind == SocketAddress::Kind::kUnix;
  if (is_shared && (!options.device.empty() || options.port != 0)) {
    error.set_answer("it is shared memory, which uses no RDMA device");
    return error.set_cure("leave out --device and --port, or write tcp:ADDRESS:PORT");
  }
  const PerfVerbsPart* verbs = nullptr;
  if (!is_shared) {
    BP_TRY_ASSIGN(verbs, perf_verbs_part());
  }
  heap_create();
  boot_segment();
  switch (parsed.value().kind) {
    case SocketAddress::Kind::kTcp4:
    case SocketAddress::Kind::kTcp6: return verbs->open_side(options);
    case SocketAddress::Kind::kUnix: return open_shm_side(options);
    case SocketAddress::Kind::kActivation: break;
  }
  return error.set_answer("perf gets no sockets from a service manager");
}

void PerfSide::choose_pages(uint64_t bytes) {
  BP_ASSERT(connection_.pool_bytes == 0);
  const uint64_t page = page_bytes(PageSize::k2MiB);
  const bool has_huge = hugepage_counts(PageSize::k2MiB).available_count >= bytes / page + 2;
  connection_.page = has_huge ? PageSize::k2MiB : PageSize::k4KiB;
}

Result<Segment*> PerfSide::take_segment(const char* owner, uint64_t bytes) {
  const uint64_t rounded = align_up(bytes, page_bytes(connection_.page));
  connection_.pool_bytes += rounded;
  return process_pool().create_segment(owner, rounded, connection_.page, 1);
}

}  // namespace bedplate
