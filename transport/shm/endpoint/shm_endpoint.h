// The endpoint to another member of the group: the program sends through it, and the receiving side
// keeps its state of that peer here. Messages go through its OutgoingPath; parts that all endpoints
// of a member share handle loans, puts, gets and exposures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/thread_owner.h"
#include "transport/messages/endpoint.h"
#include "transport/shm/endpoint/exposures.h"
#include "transport/shm/endpoint/lender.h"
#include "transport/shm/endpoint/operation_table.h"
#include "transport/shm/endpoint/peer_copy.h"
#include "transport/shm/queue/outgoing_path_datapath.h"

namespace bedplate {

// The parts that all endpoints of a member share.
struct ShmParts {
  ThreadOwner owner;         // held by the polling thread, in debug builds; not behind a lock
  const char* name = "shm";  // static
  EndpointLimits limits;
  OutgoingParts outgoing;
  Lender lender;
  OperationTable operations;
  Exposures exposures;
  SingleCopy* single_copy = nullptr;
};

class ShmEndpoint;

// The receiving side's state for a peer.
struct IncomingPeer {
  uint32_t heard_count = 0;            // messages through the FIFO since the last try of a grant
  uint32_t held_count = 0;             // its loans that we have not returned yet; Borrower's
  bool has_our_box = false;            // it has one of our boxes
  const char* nonsense = nullptr;      // static text on its malformed data; set: it is cut off
  ShmEndpoint* next_untold = nullptr;  // the next cut-off peer that is not in the log yet
  // None of its messages is delivered any more: it is cut off, or has died, and all messages from
  // before were delivered.
  bool is_ignored = false;

  bool is_cut_off() const noexcept { return nonsense != nullptr; }
};

class ShmEndpoint final : public Endpoint {
 public:
  ShmEndpoint(ShmParts& parts, uint32_t peer) noexcept
      : Endpoint(parts.name, parts.limits), parts_(parts), path_(parts.outgoing, peer) {}

  SendStatus am_send(AmId id, std::span<const std::byte> payload) noexcept override;
  SendStatus am_send_loan(AmId id, std::span<const std::byte> header, std::span<std::byte> block,
                          Completion* returned) noexcept override;
  SendStatus start(const RemoteOperation& operation) noexcept override;
  SendStatus flush(Completion* done) noexcept override;
  Result<RemoteMemory> expose(std::span<std::byte> memory) override;
  void withdraw(const RemoteMemory& memory) noexcept override;
  bool has_room() noexcept override;

  uint32_t peer() const noexcept { return path_.peer(); }
  uint64_t generation() const noexcept { return path_.generation(); }
  // Whether messages go through a fast box now.
  bool has_box() const noexcept { return path_.has_box(); }

  // ---- For the provider ----

  // Forgets the former peer. From here on the peer is the one of `generation`, and messages to it
  // are possible if `is_open`. Opens its memory, if there is single copy. Errors: its memory cannot
  // be opened. The endpoint works all the same: the target copies instead.
  Result<void> open(uint64_t generation, bool is_open) noexcept;
  OutgoingPath& path() noexcept { return path_; }
  const OutgoingPath& path() const noexcept { return path_; }
  IncomingPeer& incoming() noexcept { return incoming_; }
  const IncomingPeer& incoming() const noexcept { return incoming_; }
  PeerGeneration peer_generation() const noexcept { return {peer(), generation()}; }

 private:
  bool is_own_thread() const noexcept { return parts_.owner.is_caller(); }
  bool is_reachable(const RemoteOperation& operation) const noexcept;
  static void do_here(const RemoteOperation& operation) noexcept;

  ShmParts& parts_;
  OutgoingPath path_;
  IncomingPeer incoming_;
  PeerCopy copy_;
};

}  // namespace bedplate
