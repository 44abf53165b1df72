#include "transport/shm/endpoint/peer_copy.h"

#include <cerrno>
#include <new>

#include <sys/syscall.h>
#include <unistd.h>

#include "platform/read_once.h"

namespace bedplate {

Result<void> PeerCopy::open(const GroupView& group, SingleCopy& single_copy,
                            uint32_t peer) noexcept {
  close();
  if (!memory_) memory_.reset(new (std::nothrow) PeerMemory);
  if (!memory_) {
    return error_while("opening the memory of member %u", peer)
        .set_answer("there is no memory for its records")
        .set_cure("give the heap more");
  }
  const uint32_t pid = group.members().pid(peer);
  pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  // Without it we would not notice that the process has ended and its number belongs to another.
  if (!pidfd_.is_open()) {
    return error_from_errno("opening the process %u of member %u, to see when it ends", pid, peer)
        .set_cure("allow more open files (LimitNOFILE=), if they are exhausted");
  }
  const auto card = read_once<SingleCopyCard>(&group.segment().card(peer));
  auto attached = single_copy.attach({static_cast<pid_t>(pid), pidfd_.number()}, card, *memory_);
  if (!attached.ok()) pidfd_ = Fd();
  return attached;
}

void PeerCopy::close() noexcept {
  if (memory_) memory_->close();
  pidfd_ = Fd();
}

SendStatus PeerCopy::copy(const RemoteOperation& operation) noexcept {
  if (!memory_ || !memory_->is_open()) return SendStatus::kAgain;
  const RemoteMemory& remote = operation.remote;
  const uint64_t bytes = operation.bytes;
  const ExposedRange range = {remote.address, bytes, remote.key, 1};
  const CopyOutcome outcome = operation.kind == OperationKind::kPut
                                  ? memory_->write(operation.local, range, 0, bytes)
                                  : memory_->read(operation.local, range, 0, bytes);
  switch (outcome.end) {
    case CopyEnd::kDone: return SendStatus::kDone;
    case CopyEnd::kGone: return SendStatus::kGone;
    case CopyEnd::kRefused: break;
  }
  return SendStatus::kRefused;
}

}  // namespace bedplate
