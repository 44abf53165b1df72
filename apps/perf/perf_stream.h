// A stream of operations of one kind, as many in flight as the queue takes: both sides measure
// bandwidth with it.
//
// It starts operations and counts how they end; the caller polls, waits for space and takes the
// time. Threads: the thread that polls the endpoint's provider. Ownership: the caller keeps
// `local`, the peer's memory and this object until is_idle(): the operations' completions point to
// it.
#pragma once

#include "apps/perf/perf_protocol.h"
#include "platform/assert.h"

namespace bedplate {

// The most operations started between two polls.
inline constexpr uint32_t kPerfListed = 16;

class PerfStream {
 public:
  PerfStream() noexcept {
    ended_.call = [](Completion& self, Outcome outcome) noexcept {
      auto& stream = static_cast<Ended&>(self);
      ++stream.count;
      stream.failed_count += outcome != Outcome::kDone;
    };
  }
  PerfStream(const PerfStream&) = delete;
  PerfStream& operator=(const PerfStream&) = delete;

  // `local`: the bytes to send or put, or the target of gets; not empty. Earlier operations still
  // in flight count for is_idle() and, if they fail after begin(), for failed_count().
  void begin(Endpoint& peer, PerfOperation operation, std::span<std::byte> local,
             const RemoteMemory& remote) noexcept {
    BP_ASSERT(!local.empty());
    peer_ = &peer;
    operation_ = operation;
    local_ = local;
    remote_ = remote;
    begun_at_ = started_count_;
    failed_before_ = ended_.failed_count;
  }

  // Starts the next operation; a send carries its number. Returns the endpoint's status; kDone: the
  // operation has also ended.
  SendStatus start() noexcept {
    BP_DCHECK(peer_ != nullptr);  // begin() was called
    SendStatus status = SendStatus::kDone;
    const uint64_t number = started_count() + 1;
    switch (operation_) {
      case PerfOperation::kSend:
        perf_stamp(local_, number);
        status = peer_->am_send(kPerfData, local_);
        break;
      case PerfOperation::kPut: status = peer_->put(local_, remote_, &ended_); break;
      case PerfOperation::kGet: status = peer_->get(local_, remote_, &ended_); break;
    }
    if (status == SendStatus::kDone) ++ended_.count;
    if (status == SendStatus::kDone || status == SendStatus::kPending) ++started_count_;
    return status;
  }

  // Since begin(): the operations started, and those that ended in a failure.
  uint64_t started_count() const noexcept { return started_count_ - begun_at_; }
  uint64_t failed_count() const noexcept { return ended_.failed_count - failed_before_; }
  // Whether all operations ever started have ended.
  bool is_idle() const noexcept {
    BP_DCHECK(ended_.count <= started_count_);  // no operation ends twice
    return ended_.count == started_count_;
  }

 private:
  struct Ended : Completion {
    uint64_t count = 0;
    uint64_t failed_count = 0;
  };

  Endpoint* peer_ = nullptr;
  PerfOperation operation_ = PerfOperation::kSend;
  std::span<std::byte> local_;
  RemoteMemory remote_;
  uint64_t started_count_ = 0;  // since construction, like ended_.count
  uint64_t begun_at_ = 0;
  uint64_t failed_before_ = 0;
  Ended ended_;
};

}  // namespace bedplate
