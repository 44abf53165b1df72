// One side of `bedplate perf`: a runtime of its own with a small pool and one provider.
//
// The address selects the provider. tcp: means verbs: the two sides exchange their queue-pair data
// there. unix: means shared memory: the address is the socket of a pool that the server owns and
// the client joins.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "apps/perf/perf_protocol.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/assert.h"
#include "platform/result.h"
#include "transport/messages/messenger.h"

namespace bedplate {

struct PerfSideOptions {
  std::string address;      // "tcp:10.0.0.1:7471", "unix:/run/perf.sock"
  std::string device = {};  // verbs: "" and 0: the first usable one
  uint8_t port = 0;
  bool is_server = false;
};

// Properties of the connection, for people.
struct PerfConnection {
  std::string provider;
  std::string device = {};  // verbs
  std::string link = {};
  uint32_t mtu_bytes = 0;
  uint64_t pool_bytes = 0;
  PageSize page = PageSize::k4KiB;
};

class PerfSide {
 public:
  // Takes the pool: hugepages if enough are free. Requires: called once in a process. Errors: no
  // such address, no device, no memory; the server cannot listen; the client finds no server
  // (shared memory).
  static Result<std::unique_ptr<PerfSide>> open(const PerfSideOptions& options);

  PerfSide(const PerfSide&) = delete;
  PerfSide& operator=(const PerfSide&) = delete;
  virtual ~PerfSide() = default;

  virtual Messenger& messenger() noexcept = 0;
  // The client's endpoint to the server. It may not be connected yet: then sends return kAgain.
  virtual Result<Endpoint*> connect() = 0;
  // Whether `other`, which was connected, is known to be gone. If a side cannot know, the peer's
  // silence decides.
  virtual bool has_lost(const Endpoint& /*other*/) const noexcept { return false; }

  // Memory of the pool that the peer may read and write, kPerfBytesMax each. This side sends from
  // source() and receives into target().
  std::span<std::byte> source() const noexcept { return source_; }
  std::span<std::byte> target() const noexcept { return target_; }
  const PerfConnection& connection() const noexcept { return connection_; }

 protected:
  PerfSide() = default;

  // Chooses 2 MiB pages if enough for `bytes`, and two more, are free. Called before
  // take_segment().
  void choose_pages(uint64_t bytes);
  Result<Segment*> take_segment(const char* owner, uint64_t bytes);
  // Requires: 2 * kPerfBytesMax bytes.
  void set_area(std::span<std::byte> area) noexcept {
    BP_ASSERT(area.size() == 2 * kPerfBytesMax);
    source_ = area.first(kPerfBytesMax);
    target_ = area.last(kPerfBytesMax);
  }

  PerfConnection connection_;

 private:
  std::span<std::byte> source_;
  std::span<std::byte> target_;
};

// Defined in perf_shm_side.cc. The side over verbs: perf_verbs.h.
Result<std::unique_ptr<PerfSide>> open_shm_side(const PerfSideOptions& options);

}  // namespace bedplate
