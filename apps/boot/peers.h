// The interface to the peers of an appliance ([verbs]). Its implementation opens the device,
// registers the pool with it, opens exports (and the heap, with remote = "read"), and exchanges
// messages with peers on one shard.
//
// The implementation is in libbedplate-verbs.a, which needs libibverbs and librdmacm. A program
// without peers links none of them: this base class acts as an appliance without peers. A program
// that links the archive asks for bedplate_peers_part (-Wl,-u, in bedplate-verbs.pc).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/peers_needs.h"
#include "apps/boot/shard_messenger.h"
#include "apps/configuration/configuration.h"
#include "apps/counters/counters_file.h"
#include "pinned_pool/join/process_terms.h"
#include "pinned_pool/pinned_pool.h"
#include "transport/loop/event_loop.h"
#include "transport/registration.h"

struct ibv_pd;

namespace bedplate {

class VerbsProvider;

class Peers {
 public:
  Peers() noexcept = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  virtual ~Peers() = default;

  // Opens the device and checks the plan against its limits. Takes nothing of the pool, and does
  // nothing without [verbs]. Appends what is missing to `problems`; with [verbs] required = false,
  // logs it instead.
  virtual void open(const Configuration& /*configuration*/, const AppliancePlan& /*plan*/,
                    std::vector<Error>* /*problems*/) {}

  // Carves the planned memory. If there is a device, opens it anew, with the rights that the
  // process has by now, adds the peers as a provider to `messenger`, which the shard's loop polls,
  // and adds one more source to `loop`. `pool`, `loop`, `messenger` and `file` outlast close().
  // Requires: open(); `pool` is reserved by the configuration's plan and not sealed; `loop` does
  // not run yet; `messenger` is not nullptr if there is [verbs]. Errors: the device's, if it is
  // required.
  virtual Result<void> create(const Configuration& /*configuration*/, PinnedPool& /*pool*/,
                              EventLoop& /*loop*/, ShardMessenger* /*messenger*/,
                              CountersFile& /*file*/) {
    return {};
  }

  // Dials the peers whose address is known. Threads: the shard's, before its loop runs.
  virtual void begin() noexcept {}

  // Sends all accepted messages; does not wait for peers that are not connected. is_drained() tells
  // when it is done. Threads, of both: any.
  virtual void request_drain() noexcept {}
  virtual bool is_drained() const noexcept { return true; }

  // Closes the connections to peers, which notice it, and the device: nothing stays registered.
  // Requires: the loop does not run. A second call does nothing.
  virtual void close() noexcept {}

  // Updates the gauges that are not written as they change. Threads: one.
  virtual void refresh_counters() noexcept {}

  // Whether there is a device for peers. False before create() and after close().
  virtual bool is_there() const noexcept { return false; }
  // The terms for processes with verbs = true: the device that peers are reached through.
  virtual ProcessTerms terms() const noexcept {
    ProcessTerms terms;
    terms.verbs = ProcessTerms::Verbs::kNoDevice;
    return terms;
  }
  // The provider that sends datagrams to the same peers (VerbsProvider::send_datagram); a peer's
  // datagrams arrive as messages. nullptr: no device, or [verbs] datagrams = 0.
  virtual VerbsProvider* datagrams() noexcept { return nullptr; }
  // The key of the memory for the device, as KeyTable::key() gives it; kNoKey without a device.
  // Threads: any, while the device is open.
  virtual KeyedRange key(const void* /*memory*/, uint64_t /*bytes*/) const noexcept { return {}; }
  // The device's protection domain; nullptr: no device. Ownership: the peers'.
  virtual ibv_pd* domain() const noexcept { return nullptr; }
  // The memory of an export, even without a device; empty: no export has that name.
  virtual std::span<std::byte> exported(std::string_view /*name*/) const noexcept { return {}; }
};

// The report of `doctor` about the machine's RDMA devices.
struct PortsReport {
  bool has_usable = false;
  std::string text;    // every port with its address, and the drivers
  std::string advice;  // if no device is usable
};

// The functions that libbedplate-verbs.a brings to the runtime.
struct PeersPart {
  std::unique_ptr<Peers> (*make)();
  PeersNeeds (*plan)(const Configuration& configuration);
  std::vector<VerbsContextPlan> (*plan_contexts)(const Configuration& configuration,
                                                 const PoolPlan& pool);
  PortsReport (*look_at_ports)();
  // Whether there is a usable port `port` (0: any) on `device` ("": any).
  bool (*has_port)(const std::string& device, uint8_t port);
};

// nullptr: the program was linked without libbedplate-verbs.a.
const PeersPart* peers_part() noexcept;

// The peers of [verbs]; the base class if the archive is not linked. Never nullptr.
std::unique_ptr<Peers> make_peers();

}  // namespace bedplate
