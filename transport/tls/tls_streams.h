// TlsStreams: the TLS of a server's connections on one shard. It makes their streams, in planned
// memory, and calls those that have asked to go on, when the loop polls it.
//
// Invariants, which is_valid() looks at around each poll: 1. The woken streams are among those that
// were made. 2. The limit on handshakes is valid (time_limit.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/cache_line.h"
#include "platform/tail_queue.h"
#include "platform/units.h"
#include "transport/loop/time_limit.h"
#include "transport/sockets/stream_layer.h"
#include "transport/tls/tls_stream.h"

namespace bedplate {

// Threads: the constructor and make() before the loop runs; then the shard's. Lifetime: as long as
// the loop runs.
class TlsStreams final : public StreamLayers {
 public:
  // The memory that `count` streams take.
  static constexpr uint64_t bytes_for(uint64_t count) noexcept { return count * kStrideBytes; }

  // `local`, `elsewhere`: the use of TLS on listeners that only this machine can reach, and on all
  // others. Before the seal: it allocates a timer's slot. Requires: `memory` is aligned to a cache
  // line. Ownership: `memory`, and all that `environment` names, outlive this.
  TlsStreams(const TlsEnvironment& environment, std::span<std::byte> memory, LayerUse local,
             LayerUse elsewhere) noexcept;

  StreamLayer& make() noexcept override { return make_stream(); }
  LayerUse use_on(int fd) const noexcept override;
  // The first byte of a handshake record (RFC 8446, 5.1). No text begins with it.
  bool is_begun_by(std::byte first) const noexcept override { return first == kHandshake; }
  uint32_t poll(uint32_t budget) noexcept override;

  TlsStream& make_stream() noexcept;
  const TlsEnvironment& environment() const noexcept { return environment_; }
  // `stream` asks for run(). Called by a stream that is not in the list.
  void wake(TlsStream& stream) noexcept { woken_.push(stream); }
  // The limit on the time of handshakes; a stream is limited while it is in one.
  TimeLimit& handshakes() noexcept { return handshakes_; }

  bool is_valid() const noexcept;

 private:
  static constexpr uint64_t kStrideBytes = align_up(sizeof(TlsStream), kCacheLineBytes);
  static constexpr std::byte kHandshake{22};

  const TlsEnvironment environment_;
  const std::span<std::byte> memory_;
  const LayerUse local_;
  const LayerUse elsewhere_;
  uint64_t made_count_ = 0;
  TailQueue<&TlsStream::next_woken> woken_;
  TimeLimit handshakes_;
};

}  // namespace bedplate
