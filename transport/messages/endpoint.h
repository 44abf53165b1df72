// Endpoints: one interface to a peer, near or far.
//
// An endpoint is a path to one peer. Its provider knows the kind of path (this process, another
// process on the pool, another host); a sender need not know. The caller owns the memory of every
// operation: only am_send always copies it. Nothing here blocks or allocates. docs/transport.md has
// the rules for every provider.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "alloc/heap_owner.h"
#include "platform/result.h"

namespace bedplate {

class Endpoint;
class Provider;

// Selects the function that runs at the receiver (Messenger::set_handler). Numbers from 128 on
// belong to names (message_names.h).
using AmId = uint8_t;
inline constexpr uint32_t kAmCount = 256;

enum class SendStatus : uint8_t {
  kDone,     // accepted; the caller may use its memory again
  kPending,  // accepted; the completion ends it
  kAgain,    // no space now, nothing was sent: poll and try again, or Messenger::notify_room
  kGone,     // the peer has left or died, or the pool's owner is gone
  kTooLong,  // more than limits(), the RemoteMemory or the device allow
  kRefused,  // memory that this peer cannot reach, or has no right to
};
const char* to_text(SendStatus status) noexcept;  // static

// The outcome of an operation for which kPending was returned.
enum class Outcome : uint8_t {
  kDone,
  kNotDone,  // nothing of it happened: the peer refused it, or was lost before
  kUnknown,  // all, a part or nothing of it happened
};
const char* to_text(Outcome outcome) noexcept;  // static

// The callback at an operation's end. Ownership: the caller's; it stays in place until it is
// called. The poll of the endpoint's messenger calls it, once. The call that started the operation
// never calls it, nor does release(). Once it is called, it may be used again, or freed.
struct Completion {
  void (*call)(Completion& self, Outcome outcome) noexcept = nullptr;
};

// A callback that is called once, when a peer that had no space may have some again
// (Messenger::notify_room). Ownership: the caller's; it stays in place until it is called or taken
// back.
struct RoomCall {
  void (*call)(RoomCall& self) noexcept = nullptr;

  bool is_waiting() const noexcept { return to != nullptr; }

  Endpoint* to = nullptr;  // the messenger's, as are the fields below
  RoomCall* next = nullptr;
  uint64_t round = 0;
};

// A range of memory as its owner describes it to a peer that may read or write it
// (Endpoint::expose). Plain data of 32 bytes: it travels in messages, and any content is safe.
struct RemoteMemory {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t key = 0;   // for the provider, beside the address
  uint64_t kind = 0;  // which provider, and how; only the provider reads it

  // The part of `part_bytes` at `offset`. Requires: inside.
  RemoteMemory part(uint64_t offset, uint64_t part_bytes) const noexcept {
    return {address + offset, part_bytes, key, kind};
  }
};

// Memory that a sender lends. The receiver must give it back with Messenger::release exactly once,
// whenever it likes, even if it has no use for it.
struct Loan {
  std::span<const std::byte> memory = {};  // the bytes; empty: fetch them from `remote` with get()
  RemoteMemory remote = {};
  Provider* provider = nullptr;  // nullptr: there is no loan
  uint64_t token = 0;            // the provider's

  bool is_there() const noexcept { return provider != nullptr; }
};

// A message as its handler gets it. The payload is valid until the handler returns. The loan is
// valid until the receiver gives it back. The provider counts and drops a message that has no
// handler, and gives its loan back.
struct Message {
  Endpoint& from;  // for answers; stays valid as long as the messenger
  AmId id;
  std::span<const std::byte> payload;
  Loan loan;
};

// Runs on the polling shard. It may send, also through message.from, and release loans. It neither
// blocks nor polls. `context` is the caller's, and outlives the messenger.
struct AmHandler {
  void (*function)(void* context, const Message& message) noexcept = nullptr;
  void* context = nullptr;
  HeapOwner asker = {};  // the dispatcher's: the heap owner when it was set
};

enum class OperationKind : uint32_t { kPut, kGet, kFetchAdd, kCompareSwap };
constexpr bool is_atomic(OperationKind kind) noexcept {
  return kind == OperationKind::kFetchAdd || kind == OperationKind::kCompareSwap;
}

// A put, get or atomic, as given to a provider. `remote` may have more than `bytes`.
struct RemoteOperation {
  OperationKind kind = OperationKind::kPut;
  std::byte* local = nullptr;  // a put only reads it; an atomic has none
  uint64_t bytes = 0;
  const RemoteMemory& remote;
  uint64_t operand = 0;        // to add, or to store
  uint64_t expected = 0;       // compare_swap only
  uint64_t* before = nullptr;  // atomic: gets the old value; nullptr: nobody needs it
  Completion* done = nullptr;  // nullptr: nobody needs to know the end
};

struct EndpointLimits {
  uint32_t am_bytes_max = 0;           // of am_send
  uint32_t inline_bytes_max = 0;       // up to this size a message is one cache line or packet
  uint32_t loan_header_bytes_max = 0;  // of am_send_loan
};

// Order: active messages arrive in the order in which they were sent through this endpoint,
// whichever path each took. Puts, gets and atomics are unordered until flush. Threads: the shard's;
// any, if the provider is made for several threads (locking_provider.h,
// JoinedProcessOptions::is_threaded). Ownership: the provider's. The endpoint exists as long as the
// provider, also after the peer is gone.
class Endpoint {
 public:
  // Both arguments outlive the endpoint. `provider_name`: "self", "shards", "shm", ...
  Endpoint(const char* provider_name, const EndpointLimits& limits) noexcept
      : provider_name_(provider_name), limits_(limits) {}
  virtual ~Endpoint() = default;

  // Sends a copy of `payload`. Returns kDone, kAgain, kGone or kTooLong. An accepted message is
  // lost if the peer dies before it reads it: only an answer proves that it was read.
  virtual SendStatus am_send(AmId id, std::span<const std::byte> payload) noexcept = 0;

  // Lends `block` to the receiver, with a small `header` beside it. Returns kPending, kDone (the
  // bytes were copied: the block is the caller's again at once), kAgain, kGone, kTooLong (the
  // header is too long) or kRefused. Ownership: after kPending the caller must not change or free
  // the block until the loan comes back. Then `returned` is called. If `returned` is nullptr, the
  // block must come from the pool's heap, and is freed there. When the peer dies, its loans come
  // back with kUnknown, once nothing can touch them any more. After any other status the block
  // stays the caller's.
  virtual SendStatus am_send_loan(AmId id, std::span<const std::byte> header,
                                  std::span<std::byte> block, Completion* returned) noexcept = 0;

  // Copies `from` to the peer's memory, or the peer's memory to `into`. Returns kDone, kPending,
  // kAgain, kGone, kRefused or kTooLong (the peer's range is shorter, or the device cannot list so
  // many requests). `done` is called, once, if and only if kPending is returned; nullptr: nothing
  // is called. The same holds for the operations below. After kPending the local memory must stay
  // in place until the operation ends. Requires: the two ranges do not overlap.
  SendStatus put(std::span<const std::byte> from, const RemoteMemory& to,
                 Completion* done) noexcept {
    return start({.kind = OperationKind::kPut,
                  .local = const_cast<std::byte*>(from.data()),
                  .bytes = from.size(),
                  .remote = to,
                  .done = done});
  }
  SendStatus get(std::span<std::byte> into, const RemoteMemory& from, Completion* done) noexcept {
    return start({.kind = OperationKind::kGet,
                  .local = into.data(),
                  .bytes = into.size(),
                  .remote = from,
                  .done = done});
  }

  // Atomically adds to the 64-bit word at `to`, or stores `desired` there if the word equals
  // `expected`. The old value goes to *before, unless `before` is nullptr. Returns as get does;
  // kRefused also if the word is not aligned to 8 bytes.
  SendStatus fetch_add(const RemoteMemory& to, uint64_t addend, uint64_t* before,
                       Completion* done) noexcept {
    return start({.kind = OperationKind::kFetchAdd,
                  .bytes = sizeof(uint64_t),
                  .remote = to,
                  .operand = addend,
                  .before = before,
                  .done = done});
  }
  SendStatus compare_swap(const RemoteMemory& to, uint64_t expected, uint64_t desired,
                          uint64_t* before, Completion* done) noexcept {
    return start({.kind = OperationKind::kCompareSwap,
                  .bytes = sizeof(uint64_t),
                  .remote = to,
                  .operand = desired,
                  .expected = expected,
                  .before = before,
                  .done = done});
  }
  // The four functions above call this.
  virtual SendStatus start(const RemoteOperation& operation) noexcept = 0;

  // Ends when every earlier put, get and atomic through this endpoint has ended, and is visible at
  // the target. Returns kDone, kPending, kAgain or kGone.
  virtual SendStatus flush(Completion* done) noexcept = 0;

  // Lets this peer read and write `memory` until withdraw(), and returns the description for it.
  // The peer's operations that are under way at withdraw() have ended when a flush ends that was
  // started afterwards, or when that flush returns kGone. The memory must stay in place until then.
  // Requires: this process may write `memory`. Cost: with knem a system call; with a memory window
  // a request to the device. Errors (kSystem): the obstacle; too many ranges are exposed.
  virtual Result<RemoteMemory> expose(std::span<std::byte> memory) = 0;
  // Requires: `memory` was exposed through this endpoint, and not withdrawn since.
  virtual void withdraw(const RemoteMemory& memory) noexcept = 0;

  // Whether the peer's queue takes a message now, or the peer is gone. A loan, or a message that is
  // copied beside the queue, may still find no space. Threads: the polling shard's.
  virtual bool has_room() noexcept = 0;

  // The limits and the name never change.
  const EndpointLimits& limits() const noexcept { return limits_; }
  const char* provider_name() const noexcept { return provider_name_; }

 private:
  const char* const provider_name_;
  const EndpointLimits& limits_;
};

}  // namespace bedplate
