// A service: code that is placed on the shards of an appliance.
//
// A program lists its services (apps/program/program.h). A service of the list runs if the
// configuration has its table. The runtime calls it in this order, on the main thread unless
// another is named:
//
//     describe   its table of the configuration, [NAME]
//     plan       all that it will ever take: memory, connections, timers, sources, counters
//     preflight  looks for other problems before anything is taken; also for `check`
//     prepare    all memory is taken, and no other thread runs yet; still as root, if started so
//     create     gets its planned parts, and adds itself to the loops of its shards; from here on
//                as [appliance] user, if set, with the rights of ServicePlan::capability
//     sealed     from here on nothing of the pool moves, and nothing is registered
//     start      on each shard, on its thread, before the loop runs
//     tick       about every half second; more often for a supervisor and in a drain
//     request_drain, is_drained   finish all that has begun, take nothing new
//     stopped    the shards have stopped, or boot has failed
//
// A service may use services that the program lists before it: they are created before it, and
// planned after it, so that they know its demands (datagram_network()).
//
// An error in any of them ends the boot, with its kind as exit code, and all that was taken is
// released. A service is made for one appliance and outlives it. An exception that leaves describe,
// plan, preflight, prepare, create or sealed becomes an error which names the service; an exception
// in a noexcept function ends the process.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "apps/configuration/configuration_table.h"
#include "apps/services/control_methods.h"
#include "platform/result.h"
#include "platform/version.h"

namespace bedplate {

class DatagramNetwork;
class ServiceContext;
class ServicePlan;

class Service {
 public:
  virtual ~Service() = default;

  // The name of its table and its counters; "heap:NAME" owns its heap memory. 1..32 bytes of a-z,
  // 0-9 and -. The same static text at each call. Threads: any.
  virtual const char* name() const noexcept = 0;

  // 0: it has one table, [NAME]. Else up to this many [[NAME]]; describe() is called for each in
  // the file, in order.
  virtual uint32_t table_count_max() const noexcept { return 0; }

  // Describes its table, which may contain tables. The variables are the service's own, and hold
  // the defaults. Also called to list the keys (ConfigurationTable::is_sample), so it has no other
  // effect.
  virtual void describe(ConfigurationTable& /*table*/) {}

  // Tells `plan`, which knows the configuration, what it needs. Called several times: the same
  // configuration gives the same plan. Errors: why it cannot be planned; the kind becomes
  // kConfiguration.
  virtual Result<void> plan(ServicePlan& /*plan*/) { return {}; }

  // The network that the configuration calls `name`, if this service has it: other services open
  // their datagram sockets on it, through transport/sockets/datagram_network.h. nullptr: the
  // service has no network of this name. Called after the configuration is read.
  virtual DatagramNetwork* datagram_network(std::string_view /*name*/) noexcept { return nullptr; }

  // Appends what this machine lacks to `problems`. Takes nothing and leaves nothing behind.
  virtual void preflight(std::vector<Error>* /*problems*/) {}

  // The last step with all of root's rights, and the only one that can still change rights for all
  // threads, which inherit them. It must start no thread: with [appliance] user, boot refuses to go
  // on if another thread exists.
  virtual Result<void> prepare() { return {}; }

  // `context` outlives the appliance's loops.
  virtual Result<void> create(ServiceContext& /*context*/) { return {}; }

  virtual Result<void> sealed() { return {}; }

  // Threads: the thread of the shard with the index `shard` among [[shard]].
  virtual void start(uint32_t /*shard*/) noexcept {}

  // Threads: the main thread, while the shards run; it may block for a moment. The log names a
  // service whose tick, request_drain or is_drained takes more than a second.
  virtual void tick() noexcept {}

  // Adds the methods that it answers over the control socket. Called after create(), and also to
  // print a program's table, so it has no other effect.
  virtual void methods(ControlMethods& /*methods*/) {}

  // Finishes all that has begun, and takes nothing new; is_drained() tells when it is done. Called
  // once: when the appliance ends, or for this service alone while the appliance serves. When the
  // appliance ends, a service that is not drained in time ([appliance] drain_timeout_ms) is named
  // in the log, and stopped; a service that drains alone has no time limit. Threads: the main
  // thread, while the shards run; EventLoop::submit() reaches the shards.
  virtual void request_drain() noexcept {}
  // Called after request_drain(). Threads: the main thread, while the shards run.
  virtual bool is_drained() const noexcept { return true; }
  // Whether it may drain while the appliance keeps serving; false for a service that the machine
  // itself needs. Threads: any.
  virtual bool drains_alone() const noexcept { return true; }

  // The shards have stopped, or boot has failed at any step. The service ends its own threads here:
  // everything that the context handed out is destroyed next. Returns false if a thread hangs in
  // the kernel and may still use that: the process then ends without destroying it. Called once or
  // twice. Threads: the main thread's.
  virtual bool stopped() noexcept { return true; }

  // The interface that the service's own code was compiled against: run_program() refuses another
  // one. This is no virtual function, which such a service might not have.
  CompiledAgainst compiled_against() const noexcept { return compiled_against_; }

 private:
  // The first member in every version, so that the service of any version can be asked.
  CompiledAgainst compiled_against_;
};

}  // namespace bedplate
