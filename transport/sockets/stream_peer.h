// The peer of a StreamSession, as far as a protocol may ask about it.
#pragma once

#include "platform/version.h"

namespace bedplate {

// Threads: the session's.
class StreamPeer {
 public:
  // Its connected socket, to ask the kernel. Nobody reads, writes or closes it. -1: there is none.
  virtual int fd() const noexcept = 0;
  // Whether it has shown a certificate that one of the service's authorities signed.
  virtual bool is_certified() const noexcept = 0;
  // The pointer that the service gave with the peer's listener (StreamServer::add_listener).
  virtual void* listener() const noexcept { return nullptr; }

 protected:
  ~StreamPeer() = default;
};

}  // namespace bedplate
