// What an appliance does with [verbs], as the runtime sees it: it opens the device, registers the
// pool with it, opens exports (and the heap, with remote = "read"), and exchanges messages with its
// peers on one shard.
//
// The code is in libbedplate-verbs.a, with libibverbs and librdmacm behind it, and a program that
// needs no peers links none of it: this class by itself is an appliance without peers. A program
// that links the archive asks for bedplate_peers_part (-Wl,-u, which bedplate-verbs.pc says).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/configuration.h"
#include "apps/boot/counters_file.h"
#include "apps/boot/shard_messenger.h"
#include "pinned_pool/pinned_pool.h"
#include "transport/event_loop.h"
#include "pinned_pool/join/process_terms.h"

namespace bedplate {

class VerbsProvider;

class Peers {
 public:
  Peers() noexcept = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  virtual ~Peers() = default;

  // Opens the device and holds the plan against what it has. Takes nothing of the pool, and does
  // nothing without [verbs]. Appends what is missing to `problems`; what [verbs] required = false
  // lets go without goes to the log instead.
  virtual void open(const Configuration& /*configuration*/, const AppliancePlan& /*plan*/,
                    std::vector<Error>* /*problems*/) {}

  // Carves what was planned and, where there is a device, opens that anew, with the rights that the
  // process has by now, and makes all of it, as a way of `messenger`, which the shard's loop polls;
  // this is one more source of `loop`. All of them outlast close().
  // Requires: open(); `pool` is reserved by the configuration's plan and not sealed; `loop` does
  // not run yet. Errors: the device's, where it is required.
  virtual Result<void> create(const Configuration& /*configuration*/, PinnedPool& /*pool*/,
                              EventLoop& /*loop*/, ShardMessenger* /*messenger*/,
                              CountersFile& /*file*/) {
    return {};
  }

  // Dials those whose address is known. Threads: the shard's, before its loop runs.
  virtual void begin() noexcept {}

  // Sends out what was accepted; peers that are not connected are not waited for. Threads: any.
  virtual void request_drain() noexcept {}
  virtual bool is_drained() const noexcept { return true; }

  // Peers notice, and nothing is registered any more. Requires: the loop does not run.
  virtual void close() noexcept {}

  // Brings up to date what nobody counts. Threads: one.
  virtual void refresh_counters() noexcept {}

  virtual bool is_there() const noexcept { return false; }
  // What processes with verbs = true are told: the device that peers are reached through.
  virtual ProcessTerms terms() const noexcept {
    ProcessTerms terms;
    terms.verbs = ProcessTerms::Verbs::kNoDevice;
    return terms;
  }
  // The same peers by datagrams (VerbsProvider::send_datagram); what they send comes as messages.
  // nullptr: there are none.
  virtual VerbsProvider* datagrams() noexcept { return nullptr; }
  // The memory of an export; empty: there is none of that name.
  virtual std::span<std::byte> exported(std::string_view /*name*/) const noexcept { return {}; }
};

// What `doctor` says of the machine's RDMA devices.
struct PortsReport {
  bool has_usable = false;
  std::string text;    // every port with its address, and the drivers
  std::string advice;  // where none is usable
};

// What libbedplate-verbs.a brings to the runtime.
struct PeersPart {
  std::unique_ptr<Peers> (*make)();
  std::vector<SegmentRequest> (*plan)(const Configuration& configuration);
  std::vector<VerbsContextPlan> (*plan_contexts)(const Configuration& configuration,
                                                 const PoolPlan& pool);
  PortsReport (*look_at_ports)();
  // Whether there is one to use: of `device` and `port` what is given ("", 0: any).
  bool (*has_port)(const std::string& device, uint8_t port);
};

// nullptr: the program was linked without libbedplate-verbs.a.
const PeersPart* peers_part() noexcept;

// Those of [verbs], or an appliance without peers where they are not linked in.
std::unique_ptr<Peers> make_peers();

}  // namespace bedplate
