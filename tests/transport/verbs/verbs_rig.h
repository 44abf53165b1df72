// Two appliances in one process: two providers of one device, a and b, that a test polls by hand.
//
// a dials b, over a Unix socket, over TCP, or by rdma_cm (is_by_manager()). Their keys cover the
// process's pool: any memory that the test allocates can be sent.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include <unistd.h>

#include "pinned_pool/boot_segment.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "tests/support/patience.h"
#include "tests/support/soft_roce.h"
#include "transport/messages/messenger.h"
#include "transport/verbs/channel/verbs_provider.h"

namespace bedplate::test {

struct VerbsSide {
  std::unique_ptr<Messenger> messenger;
  VerbsCounters counters;
  void* memory = nullptr;
  std::unique_ptr<VerbsProvider> verbs;

  ~VerbsSide() {
    verbs.reset();
    std::free(memory);
  }
  Endpoint& to(const char* name) {
    auto endpoint = messenger->connect({.name = name});
    BP_ASSERT(endpoint.ok());
    return *endpoint.value();
  }
};

struct VerbsRigOptions {
  VerbsShape shape = {.peer_count_max = 2};
  LinkTiming timing = {.retry = {.timeout_log2 = 14, .count = 3}};
  std::span<std::byte> exported = {};  // with all rights
  std::span<std::byte> readable = {};
  bool listens_by_tcp = false;
  bool has_a = true;  // a or b may be in another process, at the same address
  bool has_b = true;
  std::string address = {};
  const char* name_of_a = "a";
  Doorbell* loop_bell_of_b = nullptr;
  bool trust_windows = false;
  bool both_dial = false;
  bool by_manager = is_by_manager();  // connects by rdma_cm; requires has_managed_device()
  bool has_c = false;                 // b knows a third peer, which the test plays
  DeviceQuirks denied = {};           // quirks that are not worked around
};

class VerbsRig {
 public:
  // Requires: has_verbs_device().
  explicit VerbsRig(const VerbsRigOptions& options = {}) : options_(options) {
    BP_ASSERT(!options.by_manager || has_managed_device());
    auto opened = VerbsDevice::open(
        {.device = options.by_manager ? kManagedDevice : "", .denied = options.denied});
    BP_ASSERT(opened.ok());
    device_ = opened.take();
    BP_ASSERT(keys_.create(process_pool(), *device_).ok());
    if (!options.exported.empty()) {
      BP_ASSERT(device_->add_export(process_pool(), options.exported, kAllRights).ok());
    }
    if (!options.readable.empty()) {
      BP_ASSERT(device_->add_export(process_pool(), options.readable, kRead).ok());
    }
    static int count = 0;
    const std::string number = std::to_string(++count);
    address_ = "unix:/tmp/bedplate-verbs-" + std::to_string(getpid()) + "-" + number;
    address_of_a_ = address_ + "-a";
    if (options.by_manager || options.listens_by_tcp) {
      // Below the ports that the kernel gives to outgoing connections.
      const int port = 20000 + getpid() % 5000 + count;
      const std::string host = options.by_manager ? kManagedAddress : "127.0.0.1";
      address_ = "tcp:" + host + ":" + std::to_string(port);
      address_of_a_ = "tcp:" + host + ":" + std::to_string(port + 6000);
    }
    if (!options.address.empty()) address_ = options.address;
    const std::string dialed_by_b = options.both_dial ? address_of_a_ : "";
    if (options.has_a) start(a, options.name_of_a, "b", address_, dialed_by_b);
    if (options.has_b) start(b, "b", "a", dialed_by_b, address_);
  }
  VerbsRig(const VerbsRig&) = delete;
  VerbsRig& operator=(const VerbsRig&) = delete;
  ~VerbsRig() {
    a.verbs.reset();
    b.verbs.reset();
    keys_.destroy();
    if (address_.starts_with("unix:") && options_.has_b) unlink(address_.c_str() + 5);
    if (options_.both_dial) unlink(address_of_a_.c_str() + 5);
  }

  // Makes b again, as after a restart: another instance.
  void restart_b() {
    b.verbs.reset();
    std::free(b.memory);
    start(b, "b", "a", "", address_);
  }

  void poll() {
    if (a.verbs) a.messenger->poll(64);
    if (b.verbs) b.messenger->poll(64);
  }
  // Polls until `is_done`; yields to the connectors.
  bool poll_until(const std::function<bool()>& is_done) { return poll_for(kPatienceNs, is_done); }
  bool poll_for(uint64_t duration_ns, const std::function<bool()>& is_done) {
    const uint64_t deadline_ns = monotonic_ns() + duration_ns;
    while (!is_done()) {
      if (monotonic_ns() > deadline_ns) return false;
      poll();
      usleep(0);
    }
    return true;
  }
  // Waits until both directions are connected.
  bool connect() {
    Endpoint& there = a.to("b");
    Endpoint& back = b.to("a");
    return poll_until(
        [&] { return VerbsProvider::is_connected(there) && VerbsProvider::is_connected(back); });
  }

  VerbsDevice& device() { return *device_; }
  const KeyTable& keys() { return keys_; }
  const std::string& address() const { return address_; }
  // The address of a, if both dial.
  const std::string& address_of_a() const { return address_of_a_; }

 private:
  // Outlive the sides.
  VerbsRigOptions options_;
  std::unique_ptr<VerbsDevice> device_;
  KeyTable keys_;
  std::string address_;
  std::string address_of_a_;

 public:
  VerbsSide a;
  VerbsSide b;

 private:
  void start(VerbsSide& side, const char* name, const char* peer, const std::string& dials,
             const std::string& listens) {
    const uint64_t bytes = verbs_memory_bytes(options_.shape);
    side.memory = std::aligned_alloc(4096, bytes);
    side.messenger = std::make_unique<Messenger>();
    side.verbs = std::make_unique<VerbsProvider>();
    VerbsProviderOptions options;
    options.device = device_.get();
    options.keys = &keys_;
    options.pool = &process_pool();
    options.memory = {static_cast<std::byte*>(side.memory), bytes};
    options.name = name;
    options.peers = {{peer}};
    if (options_.has_c && &side == &b) options.peers.push_back({"c"});
    if (!dials.empty()) options.peers[0].address = parse_socket_address(dials).take();
    if (!listens.empty()) options.listen = parse_socket_address(listens).take();
    options.shape = options_.shape;
    options.timing = options_.timing;
    if (&side == &b) options.loop_bell = options_.loop_bell_of_b;
    options.trust_windows = options_.trust_windows;
    options.connects_by_manager = options_.by_manager;
    options.counters = &side.counters;
    const auto created = side.verbs->create(options, side.messenger->dispatcher());
    if (!created.ok()) log_error(created.error());
    BP_ASSERT(created.ok());
    side.messenger->add_provider(*side.verbs);
  }
};

}  // namespace bedplate::test
