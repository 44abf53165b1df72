// A process that has joined, in the test's thread: it exchanges messages with the services under
// test, which find it by its name.
//
// It is a member of a group with the appliance's first shard, over the queues that real processes
// use (transport/shm), so loans, full queues and deaths are real.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/messages/messenger.h"

namespace bedplate {

class ShmProvider;

}  // namespace bedplate

namespace bedplate::testing {

class MessageGroup;

// Made by TestAppliance::add_peer. Threads: the test's.
class MessagePeer {
 public:
  struct Received {
    AmId id;
    std::string payload;
    Loan loan;  // if there is one: given back by release(), or by die()
  };

  MessagePeer(const MessagePeer&) = delete;
  MessagePeer& operator=(const MessagePeer&) = delete;
  ~MessagePeer();

  const std::string& name() const noexcept { return name_; }

  // The messages that have come, in their order; the test may remove some.
  std::vector<Received> received;

  // Sends to the first shard: the message "SERVICE.NAME" that a service has planned, or a number.
  // The service handles it while the appliance runs (TestAppliance::run). Requires: create() of the
  // appliance was called, and the peer lives.
  SendStatus send(std::string_view message, std::string_view payload) noexcept;
  SendStatus send(AmId id, std::string_view payload) noexcept;
  // Lends `block`, which is of memory(), with a header. Requires, of the block: as
  // Endpoint::am_send_loan() says.
  SendStatus lend(std::string_view message, std::string_view header,
                  std::span<std::byte> block) noexcept;
  // How many of its loans have come back.
  uint32_t returned_count() const noexcept { return returned_count_; }
  // Gives the loan of a received message back; does nothing if it has none. Requires: it was not
  // given back before.
  void release(const Received& message) noexcept { messenger_->release(message.loan); }

  // New memory of the pool, zeroed, to lend or to expose. It lives as long as the appliance.
  std::span<std::byte> memory(uint64_t bytes);
  // Its path to the first shard, for put, get and the other operations.
  Endpoint& shard() noexcept { return *shard_; }

  // It dies like a killed process: its messages that were not read are lost, its loans go back once
  // the appliance has run. Does nothing on a second call.
  void die() noexcept;
  bool is_alive() const noexcept { return shard_ != nullptr; }

 private:
  friend class MessageGroup;
  struct Returned;

  explicit MessagePeer(std::string name);
  Result<void> join(MessageGroup& group, uint32_t member);
  uint32_t poll() noexcept;

  std::string name_;
  MessageGroup* group_ = nullptr;
  uint32_t member_ = 0;
  Endpoint* shard_ = nullptr;  // nullptr: it has not joined, or is dead
  std::unique_ptr<Messenger> messenger_;
  std::unique_ptr<ShmProvider> shm_;
  std::vector<std::unique_ptr<Returned>> lent_;
  uint32_t returned_count_ = 0;
};

}  // namespace bedplate::testing
