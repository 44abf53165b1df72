// An appliance in the test's thread, for unit tests of services (docs/testing.md). It works with
// any test framework, and under AddressSanitizer.
//
//     Echo echo;
//     TestAppliance appliance({&echo});
//     EXPECT_EQ("", appliance.boot("[echo]\nlisten = [\"tcp:127.0.0.1:7007\"]\n"
//                                  "journal = \"/journal\"\n"));
//     TestClient client = appliance.connect("echo", "listen");
//     client.send("hello\n");
//     EXPECT_EQ("hello\n", client.receive(6));
//     EXPECT_TRUE(appliance.drain());
//
// The service gets its configuration, its plan and its context from the runtime's own code. Some
// parts stand in for those of a real appliance:
//
//     shards     have no threads: run() runs the loops of all shards in turn
//     the clock  stands still, except in advance()
//     sockets    are real, through epoll; listeners are Unix sockets, whatever the addresses say
//     files      lie in memory (memory_files.h)
//     processes  are MessagePeers (message_peer.h)
//     the pool   is ordinary memory, given back at the end; it is not sealed, no device knows it
//
// Threads: one. One object at a time in a process: all put their pool at the same addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/boot/service_context.h"
#include "apps/configuration/configuration.h"
#include "apps/services/service.h"
#include "apps/services/service_plan.h"
#include "apps/testing/memory_files.h"
#include "apps/testing/message_peer.h"
#include "apps/testing/test_client.h"

namespace bedplate::testing {

class TestAppliance {
 public:
  // `services`: as in run_program(). They outlive this object, and their destructors use nothing
  // that a context gave them.
  explicit TestAppliance(std::vector<Service*> services);
  TestAppliance(const TestAppliance&) = delete;
  TestAppliance& operator=(const TestAppliance&) = delete;
  // Calls stop().
  ~TestAppliance();

  // ---- The boot. These return all problems, one a line, in the words of `check`; empty: none ----

  // Reads a configuration, and plans. `tables` is its text; [appliance], [pool] and a [[shard]]
  // called "main" are added if it has none. Problems name the file "configuration", and positions
  // in `tables`. Call it once.
  std::string plan(std::string_view tables);
  // Takes memory, opens sockets, and calls prepare(), create() and sealed() of each service. Then
  // the peers join. Requires: plan() has found no problem. Call it once.
  std::string create();
  // Calls start() of each service, for each shard. Requires: create() has found no problem.
  void start();
  // All three steps.
  std::string boot(std::string_view tables);

  // ---- Between plan() and create() ----

  // A file that `service` has planned: its content is empty, or zeros up to its bytes_min.
  // Requires: it is planned.
  MemoryFile& file(std::string_view service, std::string_view name);
  // A process called `name`, which the first shard can reach. Ownership: the appliance's.
  MessagePeer& add_peer(std::string name);

  // ---- Running, after start() ----

  // One round of each loop, and a poll of each peer. Returns how much there was to do.
  uint32_t run_round();
  // Rounds until there is nothing to do, or kRoundsMax. Returns how much there was to do.
  uint32_t run();
  static constexpr uint32_t kRoundsMax = 10'000;
  // The time that all loops show.
  uint64_t now_ns() const noexcept;
  // Moves the clock on by `ns`. Each timer that is due meanwhile expires at its own time, and the
  // loops run.
  void advance(uint64_t ns);
  // Calls tick() of each service.
  void tick();
  // Asks all services to drain, and runs. Returns whether they are drained within
  // drain_timeout_ms, by the clock of the test.
  bool drain();
  // Ends all operations on files, and calls stopped() of each service. Does nothing on a second
  // call, or before create().
  void stop();

  // A client of the address number `index` under `key` of the service's table. Requires: it is
  // planned (ServicePlan::listen), and create() was called.
  TestClient connect(std::string_view service, std::string_view key, size_t index = 0);
  // A client whose other end, in *other, is the test's: for a service that gets a connection in
  // another way.
  TestClient socket_pair(Fd* other);

  // Calls the method "SERVICE.METHOD" of a service, with its parameters as a JSON object. Returns
  // the line that a client of the control socket would get, without its newline.
  std::string call(std::string_view method, std::string_view parameters = "{}");
  // The value of a counter that `service` has planned; of a histogram, how many values it has.
  // Nothing: no such counter is planned.
  std::optional<uint64_t> counter(std::string_view service, std::string_view name,
                                  std::string_view instance = "");

  // The last traces of requests that ended on `shard`, oldest first until the ring is full; those
  // with the number 0 are empty. Requires: the shard exists, and create() was called.
  std::span<const TraceRecord> traces(uint32_t shard);

  // ---- The services' plans and contexts. Requires, here and below: plan(); for a context,
  // create() ----

  const Configuration& configuration() const noexcept;
  // Requires: the configuration has a table of `service`.
  const ServiceNeeds& needs(const Service& service) const;
  ServiceContext& context(const Service& service);

 private:
  struct Parts;
  std::string take_memory();
  std::string open_sockets();
  Result<void> create_shards();
  Result<void> create_services();
  size_t index_of(std::string_view service) const;

  std::unique_ptr<Parts> parts_;
};

}  // namespace bedplate::testing
