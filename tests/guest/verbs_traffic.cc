// One of two hosts that are connected by verbs, for tests/guest/two_guests_test.py:
//
//   verbs_traffic talk KEY=VALUE...      an appliance with one peer: verified traffic in both
//                                        directions (traffic.h) until it is stopped
//   verbs_traffic hostile KEY=VALUE...   a stranger under the name of a listed peer (attacks.h)
//   verbs_traffic device KEY=VALUE...    only makes `interface` an RDMA device
//
//   name=a          its own name                 listen=tcp:10.0.0.1:7471    where it is dialed
//   peer=b          the peer's                   dial=tcp:10.0.0.2:7471      where the peer listens
//   listed=c        another known peer           interface=eth1              made an RDMA device
//   give_up_ms=N    then sends say kGone         silent=1                    only waits
//   windows=1       lends through memory windows
//   quirk_off=NAME  does not work around the quirk NAME (device_quirks.h)
//
// SIGUSR1: begins nothing new, waits until all operations have ended, and prints the account.
// SIGUSR2: continues.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>

#include "pinned_pool/boot_segment.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "tests/guest/attacks.h"
#include "tests/guest/traffic.h"
#include "tests/support/soft_roce.h"

extern "C" const uint64_t bedplate_boot_bytes = 64 * bedplate::kMiB;

using namespace bedplate;
using namespace bedplate::traffic;

namespace {

constexpr uint64_t kPaceNs = 5 * kNsPerMs;
constexpr uint64_t kDrainNsMax = 20 * kNsPerSecond;

volatile std::sig_atomic_t last_signal = 0;

using Settings = std::map<std::string, std::string>;

SocketAddress address_of(const std::string& text) {
  auto address = parse_socket_address(text);
  if (!address.ok()) stop_with(address.error());
  return address.take();
}

DeviceQuirks quirks_off(const std::string& name) {
  return {.reset_keeps_reads = name == "reset_keeps_reads",
          .ends_without_answer = name == "ends_without_answer"};
}

std::unique_ptr<VerbsDevice> open_device(Settings& settings) {
  test::has_verbs_device(settings["interface"].c_str());
  auto device = VerbsDevice::open({.denied = quirks_off(settings["quirk_off"])});
  if (!device.ok()) stop_with(device.error());
  std::printf("traffic: device %s\n", device.value()->port().text().c_str());
  return device.take();
}

// Prints the account once nothing is under way, or when that takes too long.
class Stop {
 public:
  bool is_asked() const noexcept { return since_ns_ != 0; }
  void ask() noexcept {
    since_ns_ = monotonic_ns();
    was_told_ = false;
  }
  void revoke() noexcept { since_ns_ = 0; }
  void look(const Traffic& traffic, const VerbsCounters& counters) noexcept {
    if (!is_asked() || was_told_) return;
    if (!traffic.is_drained() && monotonic_ns() < since_ns_ + kDrainNsMax) return;
    was_told_ = true;
    std::printf("traffic: account %s\n", traffic.account(counters).c_str());
  }

 private:
  uint64_t since_ns_ = 0;
  bool was_told_ = false;
};

VerbsProviderOptions provider_options(Settings& settings) {
  VerbsProviderOptions options;
  options.pool = &process_pool();
  options.name = settings["name"];
  options.peers = {{settings["peer"]}};
  if (!settings["dial"].empty()) options.peers[0].address = address_of(settings["dial"]);
  if (!settings["listed"].empty()) options.peers.push_back({settings["listed"]});
  if (!settings["listen"].empty()) options.listen = address_of(settings["listen"]);
  options.shape.peer_count_max = 2;
  options.trust_windows = !settings["windows"].empty();
  const uint64_t give_up_ms = std::strtoull(settings["give_up_ms"].c_str(), nullptr, 10);
  if (give_up_ms != 0) options.timing.give_up_ns = give_up_ms * kNsPerMs;
  return options;
}

[[noreturn]] void talk(Settings& settings) {
  const auto device = open_device(settings);
  KeyTable keys;
  if (auto made = keys.create(process_pool(), *device); !made.ok()) stop_with(made.error());
  const std::span<std::byte> area = {static_cast<std::byte*>(std::aligned_alloc(4096, kAreaBytes)),
                                     kAreaBytes};
  std::memset(area.data(), 0, area.size());
  auto exported = device->add_export(process_pool(), area, kAllRights);
  if (!exported.ok()) stop_with(exported.error());
  std::printf("traffic: export %llu,%llu,%u\n",
              static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(area.data())),
              static_cast<unsigned long long>(area.size()), exported.value()->remote_key);

  VerbsCounters counters;
  VerbsProviderOptions options = provider_options(settings);
  options.device = device.get();
  options.keys = &keys;
  options.counters = &counters;
  const uint64_t bytes = verbs_memory_bytes(options.shape);
  options.memory = {static_cast<std::byte*>(std::aligned_alloc(4096, bytes)), bytes};
  Messenger messenger;
  VerbsProvider verbs;
  if (auto made = verbs.create(options, messenger.dispatcher()); !made.ok()) {
    stop_with(made.error());
  }
  messenger.add_provider(verbs);
  auto peer = messenger.connect({.name = settings["peer"].c_str()});
  if (!peer.ok()) stop_with(peer.error());
  std::random_device random;
  Traffic traffic({.messenger = &messenger,
                   .peer = peer.value(),
                   .peer_name = settings["peer"],
                   .area = area,
                   .instance = uint64_t{random()} << 32 | random() | 1});
  std::printf("traffic: begins\n");
  Stop stop;
  bool is_silent = !settings["silent"].empty();
  uint64_t next_ns = 0;
  for (;;) {
    if (last_signal == SIGUSR1) stop.ask();
    if (last_signal == SIGUSR2) {
      stop.revoke();
      is_silent = false;
    }
    last_signal = 0;
    if (const uint64_t now_ns = monotonic_ns(); now_ns >= next_ns && !is_silent) {
      next_ns = now_ns + kPaceNs;
      traffic.step(!stop.is_asked());
    }
    stop.look(traffic, counters);
    if (messenger.poll(64) == 0) messenger.wait(kNsPerMs);
  }
}

}  // namespace

int main(int count, char** words) {
  std::setvbuf(stdout, nullptr, _IOLBF, 2048);
  for (const int number : {SIGUSR1, SIGUSR2}) {
    std::signal(number, [](int received) { last_signal = received; });
  }
  Settings settings = {{"interface", "eth1"}};
  for (int i = 2; i < count; ++i) {
    const char* value = std::strchr(words[i], '=');
    if (value == nullptr) break;
    settings[std::string(words[i], static_cast<size_t>(value - words[i]))] = value + 1;
  }
  const std::string what = count > 1 ? words[1] : "";
  if (what == "talk") talk(settings);
  if (what != "hostile" && what != "device") {
    std::fprintf(stderr, "usage: verbs_traffic talk|hostile|device KEY=VALUE...; see its source\n");
    return 2;
  }
  const auto device = open_device(settings);
  if (what == "device") return 0;
  KeyTable keys;
  if (auto made = keys.create(process_pool(), *device); !made.ok()) stop_with(made.error());
  AttackOptions options = {.device = device.get(),
                           .keys = &keys,
                           .address = address_of(settings["dial"]),
                           .name = settings["name"]};
  unsigned long long address = 0;
  unsigned long long bytes = 0;
  std::sscanf(settings["export"].c_str(), "%llu,%llu,%u", &address, &bytes, &options.key);
  options.export_address = address;
  options.export_bytes = bytes;
  return attack(settings["attack"], options);
}
