// What an appliance tells the process that it runs in, at moments that only the appliance knows.
// The first process of an image listens (apps/init), and an application that is built around an
// appliance (apps/examples/remote_read.cc); `bedplate run` has nobody who does.
#pragma once

#include <cstdint>

#include "platform/result.h"
#include "transport/event_loop.h"

namespace bedplate {

class Appliance;

class Supervisor {
 public:
  virtual ~Supervisor() = default;

  // First of all: the one that all which follows is about. It goes before this object does.
  virtual void boot_begins(Appliance& /*appliance*/) {}
  // All memory is taken and the listeners are open; no thread but this one runs. An error ends the
  // boot, here and in about_to_serve().
  virtual Result<void> memory_taken() { return {}; }
  // The loop of shard `index` is there, and its sleeper: the shard's sockets. What an application
  // adds is sources (EventLoop::add_source) and timers. Before the seal.
  virtual void loop_made(uint32_t /*index*/, EventLoop& /*loop*/) {}
  // The pool is sealed; in a moment the shards begin.
  virtual Result<void> about_to_serve() { return {}; }
  // On the shard's thread, which will run its loop next.
  virtual void loop_begins(uint32_t /*index*/) noexcept {}
  // The first signal was taken: from now on it drains and stops.
  virtual void draining() noexcept {}
  // About every half second from the control thread while it serves, more often while it drains.
  virtual void tick() noexcept {}
};

}  // namespace bedplate
