#include "transport/single_copy/single_copy.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "platform/assert.h"
#include "platform/random_bytes.h"
#include "transport/single_copy/cma.h"
#include "transport/single_copy/knem.h"
#include "transport/single_copy/xpmem.h"

namespace bedplate {
namespace {

// Whether `bytes` at `offset` lie within `range`, which came from the peer and may be anything.
bool holds(const ExposedRange& range, uint64_t offset, uint64_t bytes) noexcept {
  return range.bytes <= UINT64_MAX - range.address && offset <= range.bytes &&
         bytes <= range.bytes - offset;
}

// Checks the outcome of a copy of `bytes`, of any kind.
CopyOutcome checked(const CopyOutcome& outcome, uint64_t bytes) noexcept {
  BP_ASSERT(outcome.bytes <= bytes && "more was copied than was asked for");
  BP_ASSERT((outcome.end != CopyEnd::kDone || outcome.bytes == bytes) && "a part is not all");
  return outcome;
}

template <typename Kind, typename... Arguments>
Result<std::unique_ptr<SingleCopy>> make(Arguments... arguments) noexcept {
  auto made = std::make_unique<Kind>();
  BP_TRY(made->create(arguments...));
  return std::unique_ptr<SingleCopy>(std::move(made));
}

}  // namespace

const char* to_text(SingleCopyKind kind) noexcept {
  switch (kind) {
    case SingleCopyKind::kXpmem: return "xpmem";
    case SingleCopyKind::kCma: return "cma";
    case SingleCopyKind::kKnem: return "knem";
  }
  return "unknown";  // from a peer's card
}

void PeerMemory::close() noexcept {
  if (access_ != nullptr) access_->~PeerAccess();
  access_ = nullptr;
}

CopyOutcome PeerMemory::read(void* local, const ExposedRange& range, uint64_t offset,
                             uint64_t bytes) noexcept {
  BP_ASSERT(is_open());
  if (!holds(range, offset, bytes)) return {CopyEnd::kRefused, 0};
  if (bytes == 0) return {};
  BP_ASSERT(local != nullptr);
  return checked(access_->read(static_cast<std::byte*>(local), range, offset, bytes), bytes);
}

CopyOutcome PeerMemory::write(const void* local, const ExposedRange& range, uint64_t offset,
                              uint64_t bytes) noexcept {
  BP_ASSERT(is_open());
  if (range.is_writable == 0 || !holds(range, offset, bytes)) return {CopyEnd::kRefused, 0};
  if (bytes == 0) return {};
  BP_ASSERT(local != nullptr);
  return checked(access_->write(static_cast<const std::byte*>(local), range, offset, bytes), bytes);
}

Result<SingleCopyCard> SingleCopy::card() noexcept {
  if (exposed_proof_.bytes == 0) {
    BP_TRY(draw_bytes(std::as_writable_bytes(std::span(proof_))));
    BP_TRY_ASSIGN(exposed_proof_, expose(proof_, sizeof proof_, false));
  }
  return SingleCopyCard{
      .kind = kind(), .proof = exposed_proof_, .proof_value = {proof_[0], proof_[1]}};
}

Result<void> SingleCopy::attach(const SingleCopyPeer& peer, const SingleCopyCard& card,
                                PeerMemory& memory) noexcept {
  BP_ASSERT(!memory.is_open());
  Error error = error_while("copying from process %d with %s", peer.pid, name());
  if (card.proof.bytes == 0) {
    error.set_answer("it has no single copy");
    return error.set_cure("let it have a kind that works there ([messages] single_copy); until "
                          "then data is copied through the pool");
  }
  if (card.kind != kind()) {
    error.set_answer("it uses %s", to_text(card.kind));
    return error.set_cure("configure the same order of single copy for both");
  }
  BP_TRY_ASSIGN(memory.access_, make_access(peer, card.proof.key, memory.storage_));
  BP_ASSERT(static_cast<void*>(memory.access_) == memory.storage_);  // close() frees nothing
  uint64_t seen[2] = {};
  errno = EINVAL;  // the range of the card is smaller than its proof
  const CopyOutcome outcome = memory.read(seen, card.proof, 0, sizeof seen);
  const int number = errno;
  const bool is_equal = seen[0] == card.proof_value[0] && seen[1] == card.proof_value[1];
  if (outcome.end == CopyEnd::kDone && is_equal) return {};
  memory.close();
  switch (outcome.end) {
    case CopyEnd::kDone:
      error.set_answer("its memory does not match the card");
      error.set_cure("the process that sent the card must have this id here: run both in one pid "
                     "namespace");
      break;
    case CopyEnd::kRefused: explain(peer, number, error); break;
    case CopyEnd::kGone: error.set_answer("it has ended"); break;
  }
  return error;
}

Result<std::unique_ptr<SingleCopy>> open_single_copy(SingleCopyKind kind,
                                                     const SingleCopyDevices& devices) noexcept {
  switch (kind) {
    case SingleCopyKind::kXpmem: return make<XpmemCopy>(devices.xpmem);
    case SingleCopyKind::kCma: return make<CmaCopy>();
    case SingleCopyKind::kKnem: return make<KnemCopy>(devices.knem);
  }
  BP_ASSERT(!"a kind of single copy");
  __builtin_unreachable();
}

SingleCopyChoice choose_single_copy(std::span<const SingleCopyKind> order,
                                    const SingleCopyDevices& devices) noexcept {
  SingleCopyChoice choice;
  for (const SingleCopyKind kind : kSingleCopyKinds) {
    choice.why_not[static_cast<unsigned>(kind)].set_doing(
        "%s", order.empty() ? "single copy is off" : "not in the configured order");
  }
  for (const SingleCopyKind kind : order) {
    BP_ASSERT(std::count(order.begin(), order.end(), kind) == 1);
    Error& why_not = choice.why_not[static_cast<unsigned>(kind)];
    if (choice.taken != nullptr) {
      why_not.set_doing("not tried: %s was chosen before it", choice.taken->name());
      continue;
    }
    Result<std::unique_ptr<SingleCopy>> opened = open_single_copy(kind, devices);
    if (opened.ok()) {
      choice.taken = opened.take();
      why_not = {};
    } else {
      why_not = opened.error();
    }
  }
  return choice;
}

const char* SingleCopyChoice::line(SingleCopyKind kind, char* text,
                                   unsigned text_bytes) const noexcept {
  if (taken != nullptr && taken->kind() == kind) {
    std::snprintf(text, text_bytes, "%s: chosen", to_text(kind));
    return text;
  }
  const int begin = std::snprintf(text, text_bytes, "%s: ", to_text(kind));
  if (begin > 0 && static_cast<unsigned>(begin) < text_bytes) {
    format_error(why_not[static_cast<unsigned>(kind)], text + begin,
                 text_bytes - static_cast<unsigned>(begin));
  }
  return text;
}

}  // namespace bedplate
