#include "transport/tls/tls_streams.h"

#include <new>

#include "platform/assert.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {

TlsStreams::TlsStreams(const TlsEnvironment& environment, std::span<std::byte> memory,
                       LayerUse local, LayerUse elsewhere) noexcept
    : environment_(environment), memory_(memory), local_(local), elsewhere_(elsewhere) {
  BP_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % kCacheLineBytes == 0);
  BP_ASSERT(environment.sockets != nullptr && environment.credentials != nullptr);
  BP_ASSERT(environment.counters != nullptr && environment.log_limit != nullptr);
  handshakes_.create(
      environment.sockets->loop(), environment.handshake_ns_max,
      [](void*, Limited& late) noexcept { static_cast<TlsStream&>(late).handshake_overdue(); },
      nullptr);
}

bool TlsStreams::is_valid() const noexcept {
  const auto is_made = [this](const TlsStream& stream) {
    const auto* place = reinterpret_cast<const std::byte*>(&stream);
    return place >= memory_.data() && place < memory_.data() + bytes_for(made_count_);
  };
  return bytes_for(made_count_) <= memory_.size() &&
         woken_.count(made_count_, is_made).has_value() && handshakes_.is_valid();
}

TlsStream& TlsStreams::make_stream() noexcept {
  BP_ASSERT(bytes_for(made_count_ + 1) <= memory_.size());
  return *new (memory_.data() + bytes_for(made_count_++)) TlsStream(*this);
}

LayerUse TlsStreams::use_on(int fd) const noexcept {
  return is_local_socket(fd) ? local_ : elsewhere_;
}

uint32_t TlsStreams::poll(uint32_t budget) noexcept {
  BP_DCHECK(environment_.sockets->loop().is_own_thread());
  BP_KEEPS_VALID(*this);
  uint32_t count = 0;
  for (; count < budget && !woken_.is_empty(); ++count) woken_.pop().run();
  return count;
}

}  // namespace bedplate
