// Endpoints: one interface to a peer, near or far.
//
// An endpoint is a way to one peer. Its provider knows what kind of way (this process, another one
// on the pool, another host); a sender need not know. Memory is the caller's: nothing is buffered
// but what am_send copies, and nothing here blocks or allocates. docs/transport.md says what every
// provider must keep to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "alloc/heap_owner.h"
#include "platform/result.h"

namespace bedplate {

class Endpoint;
class Provider;

// Picks the function that runs at the receiver (Messenger::set_handler). Those from 128 on belong
// to names (message_names.h).
using AmId = uint8_t;
inline constexpr uint32_t kAmCount = 256;

enum class SendStatus : uint8_t {
  kDone,     // accepted, and the caller's memory is its own again
  kPending,  // accepted; the completion says when
  kAgain,    // no room for it now, nothing was sent: poll and try again, or Messenger::notify_room
  kGone,     // the peer has left or died, or the pool has lost its owner
  kTooLong,  // more than limits() allow
  kRefused,  // memory that this peer cannot reach, or may not
};
const char* to_text(SendStatus status) noexcept;  // static

// The outcome of an operation for which kPending was returned.
enum class Outcome : uint8_t {
  kDone,
  kNotDone,  // nothing of it happened
  kUnknown,  // the connection was lost: it may have happened
};
const char* to_text(Outcome outcome) noexcept;  // static

// The callback at an operation's end. The caller's; it stays where it is until it was called, once,
// from Messenger::poll of the shard that started the operation, never from within the call that
// started it, nor from within release(). From then on it may be used again, or go.
struct Completion {
  void (*call)(Completion& self, Outcome outcome) noexcept = nullptr;
};

// The callback, once, when a peer that had no room may have some again (Messenger::notify_room).
// The caller's; it stays where it is until it was called or taken back.
struct RoomCall {
  void (*call)(RoomCall& self) noexcept = nullptr;

  bool is_waiting() const noexcept { return to != nullptr; }

  Endpoint* to = nullptr;  // the messenger's, as what follows
  RoomCall* next = nullptr;
  uint64_t round = 0;
};

// A piece of memory as its owner describes it to a peer that may read or write it
// (Endpoint::expose). Plain data of 32 bytes: it travels in messages, and any content is safe.
struct RemoteMemory {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t key = 0;   // what the provider needs beside the address
  uint64_t kind = 0;  // which provider, and how (its own business)

  // `bytes` of it, beginning `offset` bytes in. Requires: inside.
  RemoteMemory part(uint64_t offset, uint64_t part_bytes) const noexcept {
    return {address + offset, part_bytes, key, kind};
  }
};

// Memory that a sender lends. The receiver gives it back with Messenger::release, whenever it
// likes, but exactly once: also if it has no use for it.
struct Loan {
  std::span<const std::byte> memory = {};  // where the bytes lie, readable here; empty: get() them
  RemoteMemory remote = {};
  Provider* provider = nullptr;  // nullptr: there is no loan
  uint64_t token = 0;            // the provider's

  bool is_there() const noexcept { return provider != nullptr; }
};

// A message as its handler gets it. The payload is gone when the handler returns; the loan is not:
// it is the handler's to give back. A message without a handler is counted and dropped, with its
// loan.
struct Message {
  Endpoint& from;  // back to the sender; stays valid as long as the messenger
  AmId id;
  std::span<const std::byte> payload;
  Loan loan;
};

// Runs on the shard that polls. It may send, also through message.from, and release loans. It
// neither blocks nor polls. `context` is the caller's, and outlives the messenger.
struct AmHandler {
  void (*function)(void* context, const Message& message) noexcept = nullptr;
  void* context = nullptr;
  HeapOwner asker = {};  // the dispatcher's: who allocated when it was set
};

enum class OperationKind : uint32_t { kPut, kGet, kFetchAdd, kCompareSwap };
constexpr bool is_atomic(OperationKind kind) noexcept {
  return kind == OperationKind::kFetchAdd || kind == OperationKind::kCompareSwap;
}

// A put, get or atomic, as a provider is asked for it. `remote` may have more than `bytes`.
struct RemoteOperation {
  OperationKind kind = OperationKind::kPut;
  std::byte* local = nullptr;  // of a put: only read; of an atomic: there is none
  uint64_t bytes = 0;
  const RemoteMemory& remote;
  uint64_t operand = 0;  // added, or wanted
  uint64_t expected = 0;
  uint64_t* before = nullptr;
  Completion* done = nullptr;
};

struct EndpointLimits {
  uint32_t am_bytes_max = 0;           // of am_send
  uint32_t inline_bytes_max = 0;       // up to here a message is one cache line or packet
  uint32_t loan_header_bytes_max = 0;  // of am_send_loan
};

// Order: active messages arrive in the order in which they were sent through this endpoint,
// whichever way each took. Puts, gets and atomics are unordered until flush.
// Threads: the shard's; any, if the provider is one for several (locking_provider.h,
// JoinedProcessOptions::is_threaded).
// Ownership: the provider's, which keeps it as long as itself, also when the peer is gone.
class Endpoint {
 public:
  // Both stay as long as the endpoint. `provider_name`: "self", "shards", "shm", ...
  Endpoint(const char* provider_name, const EndpointLimits& limits) noexcept
      : provider_name_(provider_name), limits_(limits) {}
  virtual ~Endpoint() = default;

  // Sends a copy of `payload`. Returns kDone, kAgain, kGone or kTooLong. An accepted message is
  // lost if the peer dies before it was read: only an answer says that it was.
  virtual SendStatus am_send(AmId id, std::span<const std::byte> payload) noexcept = 0;

  // Lends `block` to the receiver, with a small `header` beside it. Returns kPending (also kDone,
  // where the bytes have been copied: the block is the caller's again at once), kAgain, kGone,
  // kTooLong (of the header) or kRefused.
  // Ownership: with kPending the block must not be changed or freed until it is returned. Then
  // `returned` is called; without one (nullptr) the block, which came from the pool's heap, is
  // freed. When the peer dies its loans come back, with kUnknown, once nothing can touch them any
  // more. With every other answer the block stays the caller's.
  virtual SendStatus am_send_loan(AmId id, std::span<const std::byte> header,
                                  std::span<std::byte> block, Completion* returned) noexcept = 0;

  // Copies `from` to the peer's memory, or the peer's memory to `into`. `done` is called, once, if
  // and only if kPending is returned; so with all that follows. Returns kDone, kPending, kAgain,
  // kGone, kRefused or kTooLong (more than `remote` has). The memory must stay until the end.
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

  // Atomically adds to, or exchanges if it is `expected`, the 64-bit word at `to`, aligned to 8
  // bytes; its value before goes to *before. As for get.
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
  // The four above call this.
  virtual SendStatus start(const RemoteOperation& operation) noexcept = 0;

  // Ends when every put, get and atomic that was started before is done, and visible at the target.
  virtual SendStatus flush(Completion* done) noexcept = 0;

  // Describes `memory` of this process, which it may write, to this peer, which may read and write
  // it until withdraw(); operations that are under way then have ended when a flush that is started
  // afterwards ends, or says kGone. The memory stays until then. Cost: with knem, or a memory
  // window, a call of the kernel's or a request of the device's.
  // Errors (kSystem): what stands against it; as much is exposed already as can be.
  virtual Result<RemoteMemory> expose(std::span<std::byte> memory) = 0;
  // Requires: `memory` was exposed through this endpoint, and was not withdrawn since.
  virtual void withdraw(const RemoteMemory& memory) noexcept = 0;

  // Whether its queue takes a message now, or its peer is gone. A loan, or a message that is copied
  // beside the queue, may find no room all the same. Threads: the shard's that polls.
  virtual bool has_room() noexcept = 0;

  // The same as long as the endpoint lives.
  const EndpointLimits& limits() const noexcept { return limits_; }
  const char* provider_name() const noexcept { return provider_name_; }

 private:
  const char* const provider_name_;
  const EndpointLimits& limits_;
};

}  // namespace bedplate
