#include "transport/sockets/stream_sockets.h"

#include <cerrno>

#include "platform/assert.h"
#include "transport/loop/shard_plan.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {

void hand_over(StreamListener& listener, int fd, SocketCounters& counters) noexcept {
  counters.accepts.add(1);
  // Set on the connection, not on the listening socket: connections that the kernel accepted before
  // the shard began would lack it.
  if (listener.silence_ns_max > 0) notice_silence(fd, listener.silence_ns_max);
  follow_heap_owner(listener.asker);
  listener.accepted(listener.context, fd);
}

void StreamSockets::retry_listening(StreamListener& listener) noexcept {
  constexpr uint64_t kPauseNs = 100 * kNsPerMs;
  listener.backend = this;
  listener.retry.context = &listener;
  listener.retry.expired = [](void* context) noexcept {
    auto& waiting = *static_cast<StreamListener*>(context);
    follow_heap_owner(waiting.asker);
    waiting.backend->start_listening(waiting);
  };
  options_.loop->own_timers().arm(listener.retry, options_.loop->look_at_clock() + kPauseNs);
}

int StreamSockets::count_attached(StreamSocket& socket) noexcept {
  ShardPlan* const plan = options_.plan;
  socket.asker = current_heap_owner();
  ++attached_counts_[socket.asker.index];
  if (plan != nullptr && attached_count_ == plan->planned(ShardItem::kSockets)) {
    plan->log_refusal(ShardItem::kSockets, attached_counts_);
    --attached_counts_[socket.asker.index];
    return ENOSPC;
  }
  ++attached_count_;
  if (BP_DEBUG != 0 && plan != nullptr) {
    plan->look_at(ShardItem::kSockets, socket.asker, attached_counts_);
  }
  return 0;
}

void StreamSockets::count_detached(const StreamSocket& socket) noexcept {
  BP_REQUIRE(!socket.receive.is_in_flight && !socket.send.is_in_flight,
             "a socket is detached while an operation of it is in flight: StreamSockets::detach");
  BP_REQUIRE(attached_counts_[socket.asker.index] > 0,
             "a socket is detached that is not attached: StreamSockets::detach");
  --attached_counts_[socket.asker.index];
  --attached_count_;
}

bool advance(SocketOperation& operation, uint64_t bytes) noexcept {
  operation.moved_bytes += bytes;
  msghdr& message = operation.message;
  while (bytes > 0) {
    BP_ASSERT(message.msg_iovlen > 0);
    iovec& piece = *message.msg_iov;
    if (bytes < piece.iov_len) {
      piece.iov_base = static_cast<char*>(piece.iov_base) + bytes;
      piece.iov_len -= bytes;
      break;
    }
    bytes -= piece.iov_len;
    ++message.msg_iov;
    --message.msg_iovlen;
  }
  return operation.moved_bytes >= operation.min_bytes;
}

void begin_operation(SocketOperation& operation, StreamSocket& socket, bool is_send) noexcept {
  BP_REQUIRE(!operation.is_in_flight,
             "a socket begins a %s while its earlier one is in flight: StreamSockets::%s",
             is_send ? "send" : "receive", is_send ? "send" : "receive");
  BP_REQUIRE(operation.piece_count > 0,
             "a socket begins a %s without pieces of memory: SocketOperation::pieces",
             is_send ? "send" : "receive");
  operation.is_in_flight = true;
  operation.is_ending = false;
  operation.is_send = is_send;
  operation.asker = current_heap_owner();
  operation.moved_bytes = 0;
  operation.socket = &socket;
  operation.message = {};
  operation.message.msg_iov = operation.pieces;
  operation.message.msg_iovlen = operation.piece_count;
  if (!is_send) return;
  operation.min_bytes = 0;
  for (uint32_t i = 0; i < operation.piece_count; ++i) {
    operation.min_bytes += operation.pieces[i].iov_len;
  }
}

void finish_operation(SocketOperation& operation, int64_t result,
                      SocketCounters& counters) noexcept {
  BP_ASSERT(operation.is_in_flight);
  operation.is_in_flight = false;
  (operation.is_send ? counters.sent_bytes : counters.received_bytes).add(operation.moved_bytes);
  follow_heap_owner(operation.asker);
  operation.completed(operation.context, result);
}

}  // namespace bedplate
