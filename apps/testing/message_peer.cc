#include "apps/testing/message_peer.h"

#include <utility>

#include "apps/testing/message_group.h"

namespace bedplate::testing {

// The completion of a loan.
struct MessagePeer::Returned : Completion {
  MessagePeer* peer = nullptr;
};

MessagePeer::MessagePeer(std::string name) : name_(std::move(name)) {}
MessagePeer::~MessagePeer() = default;

Result<void> MessagePeer::join(MessageGroup& group, uint32_t member) {
  group_ = &group;
  member_ = member;
  messenger_ = std::make_unique<Messenger>();
  shm_ = std::make_unique<ShmProvider>();
  const AmHandler keep = {
      [](void* self, const Message& message) noexcept {
        const auto* payload = reinterpret_cast<const char*>(message.payload.data());
        static_cast<MessagePeer*>(self)->received.push_back(
            {message.id, std::string(payload, message.payload.size()), message.loan});
      },
      this};
  for (uint32_t id = 0; id < kAskNumberAm; ++id) {
    messenger_->set_handler(static_cast<AmId>(id), keep);
  }
  BP_TRY(group.join(member, name_, *shm_, messenger_->dispatcher()));
  messenger_->add_provider(*shm_);
  BP_TRY_ASSIGN(shard_, messenger_->connect({.member = 0}));
  return {};
}

SendStatus MessagePeer::send(AmId id, std::string_view payload) noexcept {
  BP_ASSERT(is_alive() && "the peer is dead, or the services are not created yet");
  return shard_->am_send(id, std::as_bytes(std::span(payload)));
}

SendStatus MessagePeer::send(std::string_view message, std::string_view payload) noexcept {
  BP_ASSERT(is_alive() && "the peer is dead, or the services are not created yet");
  const auto number = group_->names_->find(message);
  BP_ASSERT(number.has_value() && "no service has planned this message");
  return send(*number, payload);
}

SendStatus MessagePeer::lend(std::string_view message, std::string_view header,
                             std::span<std::byte> block) noexcept {
  BP_ASSERT(is_alive() && "the peer is dead, or the services are not created yet");
  const auto number = group_->names_->find(message);
  BP_ASSERT(number.has_value() && "no service has planned this message");
  auto returned = std::make_unique<Returned>();
  returned->peer = this;
  returned->call = [](Completion& self, Outcome) noexcept {
    ++static_cast<Returned&>(self).peer->returned_count_;
  };
  const SendStatus status =
      shard_->am_send_loan(*number, std::as_bytes(std::span(header)), block, returned.get());
  if (status == SendStatus::kPending) lent_.push_back(std::move(returned));
  if (status == SendStatus::kDone) ++returned_count_;  // its bytes were copied
  return status;
}

std::span<std::byte> MessagePeer::memory(uint64_t bytes) {
  BP_ASSERT(group_ != nullptr && "the services are not created yet");
  auto taken = group_->take("memory:peers", bytes);
  BP_ASSERT(taken.ok());
  return taken.value();
}

void MessagePeer::die() noexcept {
  if (!is_alive()) return;
  shard_ = nullptr;
  shm_.reset();
  messenger_.reset();
  for (Received& each : received) each.loan = {};
  group_->segment_.wrapper(member_).acknowledged_epoch.store(kWritesNoMore,
                                                             std::memory_order_release);
  group_->table_->set_state(member_, MemberState::kDead);
}

// Looks as before a sleep, so that loans that came back are noticed at once.
uint32_t MessagePeer::poll() noexcept {
  if (!is_alive()) return 0;
  messenger_->announce_sleep();
  const uint32_t count = messenger_->poll(64);
  messenger_->announce_awake();
  return count;
}

}  // namespace bedplate::testing
