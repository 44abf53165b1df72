// A layer for tests: on the wire each byte has its highest bit flipped. The peer begins with '#';
// either side ends with '.'. The layer answers anything else with '!', and has failed.
//
// The operations of its user move only when FlipLayers is polled. Texts are ASCII.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>

#include <sys/uio.h>

#include "platform/assert.h"
#include "transport/sockets/stream_layer.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

inline std::string flipped(std::string text) {
  for (char& each : text) each = static_cast<char>(each ^ 0x80);
  return text;
}

class FlipLayer final : public StreamLayer {
 public:
  explicit FlipLayer(StreamSockets& sockets) : sockets_(sockets) {
    inner_.receive.context = inner_.send.context = this;
    inner_.receive.completed = [](void* self, int64_t result) noexcept {
      static_cast<FlipLayer*>(self)->received(result);
    };
    inner_.send.completed = [](void* self, int64_t result) noexcept {
      static_cast<FlipLayer*>(self)->sent(result);
    };
  }

  void open(StreamSocket& outer, std::span<const std::byte> early,
            void (*said_end)(void* context) noexcept, void* context) noexcept override {
    BP_ASSERT(!is_open() && early.size() <= kEarlyBytesMax);
    sockets_.detach(outer);
    inner_.fd = outer.fd;
    BP_ASSERT(sockets_.attach(inner_) == 0);
    outer_ = &outer;
    said_end_ = said_end;
    context_ = context;
    input_.assign(reinterpret_cast<const char*>(early.data()), early.size());
    output_.clear();
    is_asked_ = is_greeted_ = is_over_ = has_all_ = has_said_end_ = false;
    receive_end_ = send_end_ = 1;
  }
  bool is_open() const noexcept { return outer_ != nullptr; }

  void receive() noexcept override {
    BP_ASSERT(is_open() && !has_said_end_);
    begin_operation(outer_->receive, *outer_, false);
    has_all_ = false;
    is_asked_ = true;
  }
  void send() noexcept override {
    BP_ASSERT(is_open() && !has_said_end_);
    begin_operation(outer_->send, *outer_, true);
    is_asked_ = true;
  }
  void end_receive() noexcept override {
    BP_ASSERT(is_open() && outer_->receive.is_in_flight);
    outer_->receive.is_ending = is_asked_ = true;
    if (inner_.receive.is_in_flight) sockets_.end_receive(inner_);
  }
  void abort() noexcept override {
    BP_ASSERT(is_open());
    receive_end_ = std::min<int64_t>(receive_end_, -ECONNABORTED);
    send_end_ = std::min<int64_t>(send_end_, -ECONNABORTED);
    is_over_ = is_asked_ = true;
    sockets_.abort(inner_);
  }
  bool say_end() noexcept override {
    BP_ASSERT(is_open() && !outer_->receive.is_in_flight && !outer_->send.is_in_flight);
    if (!std::exchange(has_said_end_, true) && send_end_ > 0) output_ += '.';
    is_asked_ = true;
    return is_end_told();
  }
  void close() noexcept override {
    BP_ASSERT(is_open() && !inner_.receive.is_in_flight && !inner_.send.is_in_flight);
    sockets_.detach(inner_);
    outer_ = nullptr;
  }

  // The peer never takes its end: say_end() returns false until the layer is aborted.
  bool never_ends = false;

  // Returns whether there was anything to do.
  bool run() noexcept {
    if (!is_open() || !std::exchange(is_asked_, false)) return false;
    advance_all();
    return true;
  }

 private:
  void received(int64_t result) noexcept {
    if (result > 0) input_.append(raw_, static_cast<size_t>(result));
    if (result == -ECANCELED) {
      has_all_ = true;
    } else if (result <= 0 && receive_end_ > 0) {
      receive_end_ = result;
    }
    is_asked_ = true;
  }
  void sent(int64_t result) noexcept {
    if (result < 0) {
      send_end_ = std::min(send_end_, result);
      is_over_ = true;
    } else {
      output_.erase(0, static_cast<size_t>(result));
    }
    is_asked_ = true;
  }

  void advance_all() noexcept {
    read_some();
    if (!is_open()) return;
    write_some();
    move_bytes();
    end_operations();
    if (is_open() && has_said_end_ && is_end_told()) said_end_(context_);
  }
  bool is_end_told() const noexcept {
    return (is_over_ || (output_.empty() && !never_ends)) && !inner_.receive.is_in_flight &&
           !inner_.send.is_in_flight;
  }
  void read_some() noexcept {
    SocketOperation& operation = outer_->receive;
    bool is_complete = false;
    while (operation.is_in_flight && operation.message.msg_iovlen > 0 && !input_.empty() &&
           receive_end_ > 0) {
      const char first = input_.front();
      input_.erase(0, 1);
      if (!is_greeted_ && first == '#') {
        is_greeted_ = true;
      } else if (is_greeted_ && first == '.') {
        receive_end_ = 0;
      } else if (!is_greeted_ || (first & 0x80) == 0) {
        receive_end_ = send_end_ = -EPROTO;
        if (!inner_.send.is_in_flight) output_ = "!";
      } else {
        *static_cast<char*>(operation.message.msg_iov->iov_base) = static_cast<char>(first ^ 0x80);
        is_complete = advance(operation, 1);
      }
    }
    if (is_complete) finish(operation, static_cast<int64_t>(operation.moved_bytes));
  }
  void write_some() noexcept {
    SocketOperation& operation = outer_->send;
    // The output does not move while it is being sent.
    while (operation.is_in_flight && operation.message.msg_iovlen > 0 && send_end_ > 0 &&
           !inner_.send.is_in_flight && output_.size() < kOutputBytes) {
      const iovec piece = *operation.message.msg_iov;
      const size_t bytes = std::min(piece.iov_len, kOutputBytes - output_.size());
      output_ += flipped(std::string(static_cast<const char*>(piece.iov_base), bytes));
      advance(operation, bytes);
    }
  }
  void move_bytes() noexcept {
    if (is_over_) return;
    if (!output_.empty() && !inner_.send.is_in_flight) {
      send_piece_ = {output_.data(), output_.size()};
      inner_.send.pieces = &send_piece_;
      inner_.send.piece_count = 1;
      sockets_.send(inner_);
    }
    const bool is_ending = outer_->receive.is_in_flight && outer_->receive.is_ending;
    if (outer_->receive.is_in_flight && !inner_.receive.is_in_flight && input_.empty() &&
        receive_end_ > 0 && !(is_ending && has_all_)) {
      receive_piece_ = {raw_, sizeof raw_};
      inner_.receive.pieces = &receive_piece_;
      inner_.receive.piece_count = 1;
      inner_.receive.min_bytes = 1;
      sockets_.receive(inner_);
      if (is_ending) sockets_.end_receive(inner_);
    }
  }
  void end_operations() noexcept {
    SocketOperation& sending = outer_->send;
    if (sending.is_in_flight && !inner_.send.is_in_flight) {
      if (send_end_ <= 0) {
        finish(sending, send_end_);
      } else if (sending.message.msg_iovlen == 0 && output_.empty()) {
        finish(sending, static_cast<int64_t>(sending.moved_bytes));
      }
    }
    if (!is_open()) return;
    SocketOperation& receiving = outer_->receive;
    if (!receiving.is_in_flight || inner_.receive.is_in_flight) return;
    if (receive_end_ == -EPROTO && inner_.send.is_in_flight) return;  // the peer hears it first
    if (receive_end_ <= 0) {
      finish(receiving, receive_end_);
    } else if (receiving.is_ending && has_all_) {
      finish(receiving, -ECANCELED);
    }
  }
  static void finish(SocketOperation& operation, int64_t result) noexcept {
    operation.is_in_flight = false;
    operation.completed(operation.context, result);
  }

  static constexpr size_t kOutputBytes = 64 * 1024;

  StreamSockets& sockets_;
  StreamSocket* outer_ = nullptr;
  StreamSocket inner_;
  void (*said_end_)(void* context) noexcept = nullptr;
  void* context_ = nullptr;
  std::string input_;   // as it came
  std::string output_;  // as it goes
  iovec receive_piece_ = {};
  iovec send_piece_ = {};
  bool is_asked_ = false;
  bool is_greeted_ = false;
  bool is_over_ = false;  // nothing is sent any more
  bool has_all_ = false;
  bool has_said_end_ = false;
  int64_t receive_end_ = 1;  // the result of further receives; 1: the bytes that they move
  int64_t send_end_ = 1;
  char raw_[4096];
};

class FlipLayers final : public StreamLayers {
 public:
  explicit FlipLayers(StreamSockets& sockets) : sockets_(sockets) {}

  StreamLayer& make() noexcept override { return all.emplace_back(sockets_); }
  LayerUse use_on(int) const noexcept override { return use; }
  bool is_begun_by(std::byte first) const noexcept override { return first == std::byte{'#'}; }
  uint32_t poll(uint32_t) noexcept override {
    uint32_t count = 0;
    for (FlipLayer& each : all) count += each.run() ? 1 : 0;
    return count;
  }

  LayerUse use = LayerUse::kRequired;
  std::deque<FlipLayer> all;

 private:
  StreamSockets& sockets_;
};

}  // namespace bedplate
