#include "transport/verbs/device/window_probe.h"

#include <optional>

#include "platform/clock.h"
#include "transport/verbs/device/queue_pair.h"

namespace bedplate {
namespace {

constexpr uint64_t kBytes = 4096;
constexpr uint64_t kWindowBytes = 1000;
constexpr uint64_t kTargetOffset = 8192;
constexpr uint64_t kPatienceNs = kNsPerSecond;

// All objects of the probe; the destructor frees them.
struct Rig {
  ibv_cq* completions = nullptr;
  ibv_mr* region = nullptr;
  ibv_mw* window = nullptr;
  QueuePair reader;
  QueuePair owner;
  alignas(4096) std::byte memory[4 * kBytes];

  ~Rig() {
    // The window goes first (device_quirks.h).
    if (window != nullptr) ibv_dealloc_mw(window);
    reader.destroy();
    owner.destroy();
    if (region != nullptr) ibv_dereg_mr(region);
    if (completions != nullptr) ibv_destroy_cq(completions);
  }

  bool create(const VerbsDevice& device) noexcept {
    completions = ibv_create_cq(device.context(), 16, nullptr, nullptr, 0);
    region = ibv_reg_mr(device.domain(), memory, sizeof memory,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    window = ibv_alloc_mw(device.domain(), IBV_MW_TYPE_2);
    if (completions == nullptr || region == nullptr || window == nullptr) return false;
    const QueuePairOptions options = {.completions = completions, .send_count_max = 4};
    const RetryOptions retry = {.timeout_log2 = 14, .count = 1};
    const ibv_mtu mtu = device.port().mtu;
    return reader.create(device, options).ok() && owner.create(device, options).ok() &&
           reader.connect(1, mtu, owner.address(2, mtu), retry).ok() &&
           owner.connect(2, mtu, reader.address(1, mtu), retry).ok();
  }

  // Posts `request` and waits for its end. nullopt: the post failed, or it did not end in time.
  std::optional<ibv_wc_status> run(QueuePair& queue_pair, ibv_send_wr& request) noexcept {
    BP_DCHECK(queue_pair.handle()->state == IBV_QPS_RTS && request.next == nullptr);
    request.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(queue_pair.handle(), &request, &bad) != 0) return std::nullopt;
    const uint64_t deadline_ns = monotonic_ns() + kPatienceNs;
    ibv_wc completion = {};
    while (ibv_poll_cq(completions, 1, &completion) == 0) {
      if (monotonic_ns() > deadline_ns) return std::nullopt;
    }
    return completion.status;
  }

  bool bind() noexcept {
    static_assert(kWindowBytes < kBytes);  // there are bytes past its end
    ibv_send_wr request = {};
    request.opcode = IBV_WR_BIND_MW;
    request.bind_mw.mw = window;
    request.bind_mw.rkey = ibv_inc_rkey(window->rkey);
    request.bind_mw.bind_info = {region, reinterpret_cast<uintptr_t>(memory), kWindowBytes,
                                 IBV_ACCESS_REMOTE_READ};
    if (run(owner, request) != IBV_WC_SUCCESS) return false;
    window->rkey = request.bind_mw.rkey;
    return true;
  }

  std::optional<ibv_wc_status> read(uint64_t bytes) noexcept {
    BP_DCHECK(bytes > 0 && bytes <= kBytes && window != nullptr);
    ibv_sge piece = {reinterpret_cast<uintptr_t>(memory) + kTargetOffset,
                     static_cast<uint32_t>(bytes), region->lkey};
    ibv_send_wr request = {};
    request.opcode = IBV_WR_RDMA_READ;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.wr.rdma = {reinterpret_cast<uintptr_t>(memory), window->rkey};
    return run(reader, request);
  }
};

}  // namespace

bool probe_windows(const VerbsDevice& device) noexcept {
  static_assert(kTargetOffset >= kBytes && kTargetOffset + kBytes <= sizeof(Rig::memory));
  Rig rig;
  // The read past the end must fail with the right error: another failure or a timeout proves
  // nothing.
  return rig.create(device) && rig.bind() && rig.read(kWindowBytes) == IBV_WC_SUCCESS &&
         rig.read(kWindowBytes + 1) == IBV_WC_REM_ACCESS_ERR;
}

}  // namespace bedplate
