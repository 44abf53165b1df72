// A provider that reports `found` at each poll, so that a messenger's other providers are quiet by
// comparison.
#pragma once

#include "transport/messages/provider.h"

namespace bedplate::test {

class TalkativeProvider final : public Provider {
 public:
  const char* name() const noexcept override { return "talkative"; }
  Result<Endpoint*> connect(const PeerAddress&) override { return Error(); }
  uint32_t poll(uint32_t) noexcept override { return found; }
  void release(const Loan&) noexcept override {}
  void announce_sleep() noexcept override {}
  void announce_awake() noexcept override {}
  void sleep(uint64_t) noexcept override {}
  bool can_sleep() const noexcept override { return false; }

  uint32_t found = 1;
};

}  // namespace bedplate::test
