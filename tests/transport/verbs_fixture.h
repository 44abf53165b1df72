// What tests of two connected appliances need: what arrived, memory of the pool, and a connection
// that breaks on demand.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "tests/transport/group_rig.h"
#include "tests/transport/verbs_rig.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

inline constexpr AmId kData = 3;
inline constexpr AmId kLent = 4;

// What one side was sent.
struct Inbox {
  std::vector<std::string> payloads;
  std::vector<Loan> loans;

  Inbox() = default;
  explicit Inbox(Messenger& messenger) { listen(messenger); }
  // Also anew, where the side was started again.
  void listen(Messenger& messenger) {
    const AmHandler handler = {[](void* self, const Message& message) noexcept {
                                 auto& inbox = *static_cast<Inbox*>(self);
                                 inbox.payloads.emplace_back(
                                     reinterpret_cast<const char*>(message.payload.data()),
                                     message.payload.size());
                                 if (message.loan.is_there()) inbox.loans.push_back(message.loan);
                               },
                               this};
    messenger.set_handler(kData, handler);
    messenger.set_handler(kLent, handler);
  }
};

inline std::span<const std::byte> view(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// A block of the pool, freed at the end.
struct Block {
  explicit Block(uint64_t size) : bytes(size), memory(static_cast<std::byte*>(std::malloc(size))) {}
  ~Block() { std::free(memory); }
  std::span<std::byte> span() const { return {memory, bytes}; }
  uint64_t bytes;
  std::byte* memory;
};

struct VerbsFixture : Utest {
  std::unique_ptr<VerbsRig> rig;

  bool start(const VerbsRigOptions& options = {}) {
    if (!has_verbs_device()) return false;
    rig = std::make_unique<VerbsRig>(options);
    CHECK(rig->connect());
    return true;
  }
  Endpoint& to_b() { return rig->a.to("b"); }
  Endpoint& to_a() { return rig->b.to("a"); }
  SendStatus insist(const std::function<SendStatus()>& operation) {
    SendStatus status = SendStatus::kAgain;
    rig->poll_until([&] {
      status = operation();
      return status != SendStatus::kAgain;
    });
    return status;
  }
  // Refused by b's device, as what an attacker would do: both queue pairs are broken afterwards.
  void break_connection(const RemoteMemory& exposed, Outcome expected = Outcome::kNotDone) {
    RemoteMemory forged = exposed;
    forged.key += 0x1000;
    Counted ended;
    Block block(1000);
    CHECK(insist([&] { return to_b().put(block.span().first(8), forged, &ended); }) ==
          SendStatus::kPending);
    CHECK(rig->poll_until([&] { return ended.count == 1; }));
    CHECK(ended.outcome == expected);
  }
};

}  // namespace bedplate::test
