// A fixture for tests of two connected appliances: received messages, memory of the pool, and a
// connection that breaks on demand.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include "platform/file.h"
#include "tests/transport/shm/group_rig.h"
#include "tests/transport/verbs/verbs_rig.h"
#include "transport/verbs/channel/verbs_endpoint.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::test {

inline constexpr AmId kData = 3;
inline constexpr AmId kLent = 4;

// The messages and loans that one side received.
struct ReceivedTexts {
  std::vector<std::string> payloads;
  std::vector<Loan> loans;

  ReceivedTexts() = default;
  explicit ReceivedTexts(Messenger& messenger) { listen(messenger); }
  // Called again when the side was restarted.
  void listen(Messenger& messenger) {
    const AmHandler handler = {[](void* self, const Message& message) noexcept {
                                 auto& inbox = *static_cast<ReceivedTexts*>(self);
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

// A device's asynchronous events, forged by the test: soft RoCE reports next to none.
class ForgedEvents {
 public:
  explicit ForgedEvents(VerbsDevice& device) : device_(device) {
    int ends[2] = {};
    BP_ASSERT(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    read_ = Fd(ends[0]);
    write_ = Fd(ends[1]);
  }
  // A queue pair that only its owner knows. It lives as long as this object.
  ibv_qp* queue_pair(QueuePairOwner* owner) {
    auto& made = queue_pairs_.emplace_back(std::make_unique<ibv_qp>());
    made->qp_context = owner;
    pthread_mutex_init(&made->mutex, nullptr);
    pthread_cond_init(&made->cond, nullptr);
    return made.get();
  }
  void tell(ibv_event_type type, const void* element) {
    const ib_uverbs_async_event_desc event = {reinterpret_cast<uintptr_t>(element),
                                              static_cast<uint32_t>(type), 0};
    BP_ASSERT(write(write_.number(), &event, sizeof event) == sizeof event);
  }
  // Lets the device take these events instead of its own. Returns their number.
  uint32_t take() {
    const int own = std::exchange(device_.context()->async_fd, read_.number());
    const uint32_t count = device_.take_events();
    device_.context()->async_fd = own;
    return count;
  }

 private:
  VerbsDevice& device_;
  Fd read_, write_;
  std::vector<std::unique_ptr<ibv_qp>> queue_pairs_;
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
  // Puts with a forged key, as an attacker would. b's device refuses it, and both queue pairs are
  // broken afterwards.
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
