// The two sides over RDMA.
#include <optional>

#include "apps/perf/perf_verbs.h"
#include "pinned_pool/boot_segment.h"
#include "transport/registration.h"
#include "transport/sockets/socket_address.h"
#include "transport/verbs/channel/verbs_provider.h"

namespace bedplate {
namespace {

// The runtime's own shape, except the message length: as long as shared memory copies.
constexpr VerbsShape kShape = {
    .peer_count_max = 1, .message_bytes = 4096 + 64, .bounce_bytes = 4096};

class VerbsSide final : public PerfSide {
 public:
  ~VerbsSide() override {
    verbs_.reset();
    keys_.destroy();
  }

  Messenger& messenger() noexcept override { return messenger_; }
  Result<Endpoint*> connect() override { return messenger_.connect({.name = kPerfServerName}); }
  bool has_lost(const Endpoint& other) const noexcept override {
    return !VerbsProvider::is_connected(other);
  }

  Result<void> create(const PerfSideOptions& options) {
    auto opened = VerbsDevice::open({.device = options.device, .port = options.port});
    if (!opened.ok()) return opened.error();
    device_ = opened.take();
    const VerbsPort& port = device_->port();
    connection_.provider = "verbs";
    connection_.device = port.text();
    connection_.link = port.is_ethernet ? "Ethernet" : "InfiniBand";
    connection_.mtu_bytes = 128u << port.mtu;

    PinnedPool& pool = process_pool();
    const uint64_t memory_bytes = verbs_memory_bytes(kShape);
    const uint64_t bytes = 2 * kPerfBytesMax + memory_bytes;
    choose_pages(bytes);
    auto segment = take_segment("perf", bytes);
    if (!segment.ok()) return segment.error();
    const std::span<std::byte> memory = pool.carve(*segment.value(), "perf:verbs", memory_bytes);
    const std::span<std::byte> area = pool.carve(*segment.value(), "perf:area", 2 * kPerfBytesMax);
    BP_TRY(keys_.create(pool, *device_));
    auto exported = device_->add_export(pool, area, kAllRights);
    if (!exported.ok()) return exported.error();
    set_area(area);
    BP_TRY(create_provider(options, memory));
    pool.seal();
    return {};
  }

 private:
  Result<void> create_provider(const PerfSideOptions& side, std::span<std::byte> memory) {
    auto address = parse_socket_address(side.address);
    if (!address.ok()) return address.error();
    VerbsProviderOptions options;
    options.device = device_.get();
    options.keys = &keys_;
    options.pool = &process_pool();
    options.memory = memory;
    options.shape = kShape;
    options.name = side.is_server ? kPerfServerName : kPerfClientName;
    options.peers = {{side.is_server ? kPerfClientName : kPerfServerName}};
    if (side.is_server) options.listen = address.take();
    else options.peers[0].address = address.take();
    verbs_.emplace();
    BP_TRY(verbs_->create(options, messenger_.dispatcher()));
    messenger_.add_provider(*verbs_);
    return {};
  }

  std::unique_ptr<VerbsDevice> device_;
  KeyTable keys_;
  Messenger messenger_;
  std::optional<VerbsProvider> verbs_;
};

Result<std::unique_ptr<PerfSide>> open_verbs_side(const PerfSideOptions& options) {
  auto side = std::make_unique<VerbsSide>();
  BP_TRY(side->create(options));
  return std::unique_ptr<PerfSide>(std::move(side));
}

}  // namespace
}  // namespace bedplate

extern "C" const bedplate::PerfVerbsPart bedplate_perf_verbs_part;
const bedplate::PerfVerbsPart bedplate_perf_verbs_part = {&bedplate::open_verbs_side,
                                                          &bedplate::measure_register_cost};
