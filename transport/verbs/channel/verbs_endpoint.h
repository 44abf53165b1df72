// The way to one peer of the verbs provider: its queue pair, its part of the window, its loans in
// both directions. Only the shard that polls touches it; see verbs_provider.h. Its contract is that
// of transport/messages/endpoint.h; here are the additions to that, and the functions for the
// provider. VerbsParts has the state that it shares with other endpoints.
#pragma once

#include <bit>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "transport/messages/loan_book_datapath.h"
#include "transport/verbs/channel/send_queue_datapath.h"
#include "transport/verbs/channel/verbs_parts.h"
#include "transport/verbs/channel/verbs_shape.h"
#include "transport/verbs/connect/verbs_link.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {

struct VerbsEndpointOptions {
  std::string name;                      // of the peer
  std::optional<SocketAddress> address;  // where it listens; nothing: it dials
  uint16_t place = 0;                    // among the provider's endpoints; the tag of its requests
  std::byte* memory = nullptr;           // VerbsShape::peer_memory_bytes, on a cache line
  ibv_cq* completions = nullptr;
  ibv_srq* receives = nullptr;
};

class VerbsEndpoint final : public Endpoint {
 public:
  // Windows: first one for each loan, then those of exposures.
  static constexpr uint32_t kExposureCountMax = 16;
  static constexpr uint32_t kWindowCount = kVerbsLoanCountMax + kExposureCountMax;

  // `parts` outlives this. create() follows.
  explicit VerbsEndpoint(VerbsParts& parts) noexcept
      : Endpoint("verbs", parts.limits), parts_(parts) {
    loans_.create(kVerbsLoanCountMax);
  }
  VerbsEndpoint(const VerbsEndpoint&) = delete;
  VerbsEndpoint& operator=(const VerbsEndpoint&) = delete;
  ~VerbsEndpoint() override;

  SendStatus am_send(AmId id, std::span<const std::byte> payload) noexcept override;
  SendStatus am_send_loan(AmId id, std::span<const std::byte> header, std::span<std::byte> block,
                          Completion* returned) noexcept override;
  SendStatus start(const RemoteOperation& operation) noexcept override;
  SendStatus flush(Completion* done) noexcept override;
  // Exposes by an export that holds the memory: that key stays valid, whatever is withdrawn. Else
  // by a window, if they are used and the peer is connected: its key is void once it is withdrawn,
  // or the connection is lost, and the peer must hear of it through this endpoint. After
  // withdraw() the peer is out when a flush that was started then has ended, or says kGone.
  Result<RemoteMemory> expose(std::span<std::byte> memory) override;
  void withdraw(const RemoteMemory& memory) noexcept override;
  bool has_room() noexcept override {
    BP_DCHECK(parts_.is_own_thread());
    return may_send_ ? has_credit() : status_when_down() == SendStatus::kGone;
  }

  // Invariants, checked around each life, each batch, and each message of the peer: 1. It sends
  // only while it lives, and drains or is cut off only when it does not; the link is its own
  // meanwhile. 2. The messages that are kept fit into the window, and each lies in its slot. 3. The
  // acknowledgements, operations and invalidations that it counts are those in its queue. 4.
  // given_up_count_ counts the windows that are given up, and each loan that is due back is in
  // returns_, once. 5. Its queue is valid. 6. Each loan is lent or free; a lent one's window is not
  // free, and a window that is ending is of a loan that is returning, or of an exposure. 7. A
  // loan of the peer's is not both here and due back. 8. While it lives, at most a window of
  // messages is not acknowledged. 9. While it can send and requests are listed, it is dirty: the
  // next poll posts them. 10. has_part_ and lacks_part_ are set only before the end of a transfer.
  bool is_valid() const noexcept;

  // ---- The provider's ----

  // Makes its queue pair, and its windows, if they are used. Before the seal; once.
  // Errors: the device's. After one it can only be destroyed.
  Result<void> create(const VerbsEndpointOptions& options);

  VerbsLink& link() noexcept { return link_; }
  const VerbsLink& link() const noexcept { return link_; }
  // Whether messages can be sent.
  bool is_connected() const noexcept { return may_send_; }
  // Whether it was broken, and its queue pair may still have something under way.
  bool is_draining() const noexcept { return is_draining_; }
  // Whether it is in the dirty list.
  bool is_dirty() const noexcept { return is_dirty_; }

  // The connector has changed a link: takes over the state of this one.
  void look_at_link() noexcept;
  // Checks that posted requests end. Called now and then, in no tight loop.
  void look_at_progress(uint64_t now_ns) noexcept;
  // Takes a message of `bytes` that came through its queue pair. `header` is a copy of its first
  // bytes, all zero if there are too few; `body` has the rest. Calls its handler, or cuts the peer
  // off.
  void receive(const VerbsMessageHeader& header, const std::byte* body, uint32_t bytes) noexcept;
  // A receive that the peer has used ended with `status`, which is not a flush.
  void receive_failed(ibv_wc_status status) noexcept;
  // A completion with its tag: all requests up to it have ended.
  void end_requests(const ibv_wc& completion) noexcept;
  // A loan of its peer was released. One of a former life is ignored.
  void give_back(const Loan& loan) noexcept;
  // Gives the device the listed requests, and those that are due: acknowledgement, returns,
  // invalidations. Requires: it is dirty; afterwards it is not.
  void post_batch() noexcept;
  // VerbsProvider::settle, for this one.
  bool settle() noexcept;
  // The device is gone: the connection ends, without a line in the log for each.
  void lose() noexcept { break_life(nullptr, false); }

  // The end of a connection, in this order. 1. True if nothing of it is under way any more, or the
  // wait was long enough. Requires: it drains.
  bool is_drained(uint64_t now_ns) noexcept;
  // 2. Ends the draining: no peer reaches lent memory any more. Requires: its completions were
  // taken. Errors: the device is gone; the caller calls lose_device() before end_life().
  Result<void> stop() noexcept;
  // 3. Ends all that is pending, and gives the link to the connector, or marks it as lost.
  // Errors: the device's, which is gone.
  Result<void> end_life() noexcept;

  SendStatus send_datagram(AmId id, std::span<const std::byte> payload) const noexcept;
  uint32_t datagram_bytes_max() const noexcept;
  // Requires: the link is up.
  DatagramPeer datagram_address() const noexcept;

 private:
  static constexpr uint32_t kNoBuffer = UINT32_MAX;

  struct Lent : LoanRecord {
    uint64_t bytes = 0;
    std::byte* bounced = nullptr;  // the copy that the peer reads, if it reads one
    uint32_t mark = 0;             // counts the uses of this place
    bool has_window = false;       // else a permanent key opens it
    bool is_returning = false;     // its window has to be invalidated first
  };
  // A put or get of memory that is not the pool's: its bytes wait in the bounce buffer.
  struct Bounced {
    std::byte* piece = nullptr;
    std::byte* into = nullptr;  // nullptr: it is a put
    uint64_t bytes = 0;
  };

  enum class WindowState : uint8_t {
    kFree,
    kBound,
    kGivenUp,  // to be invalidated
    kInvalidating,
  };
  struct Window {
    ibv_mw* handle = nullptr;
    uint32_t key = 0;
    WindowState state = WindowState::kFree;
  };

  // Requests that are kept free beside a new one, for acknowledgements and for recovery: the
  // marker, and the read that sets a stopped device going again.
  static constexpr uint32_t kRequestsKept = kAcknowledgementsMax + 2;

  bool has_valid_windows() const noexcept;
  bool has_valid_slots() const noexcept;
  bool has_valid_counts() const noexcept;

  // Sending (verbs_endpoint_datapath.cc).
  SendStatus status_when_down() const noexcept;
  bool has_credit() const noexcept;
  std::byte* slot(uint64_t number) const noexcept;
  VerbsMessageHeader& header_of(uint64_t number) const noexcept {
    BP_DCHECK(number - consumed_ <= window_);  // else its slot has another message
    return *reinterpret_cast<VerbsMessageHeader*>(slot(number));
  }
  std::byte* begin_message() const noexcept { return slot(next_) + sizeof(VerbsMessageHeader); }
  // Numbers and lists the next message, whose body is in its slot.
  void send_message(VerbsMessageKind kind, AmId id, uint32_t bytes) noexcept;
  void list_message(VerbsMessageHeader& header) noexcept;
  void acknowledge() noexcept;
  void send_returns() noexcept;
  bool may_reach(const RemoteMemory& memory, RemoteRights rights) const noexcept;
  SendStatus transfer(ibv_wr_opcode opcode, std::byte* local, uint64_t bytes,
                      const RemoteMemory& remote, Completion* done) noexcept;
  SendStatus bounce_transfer(ibv_wr_opcode opcode, std::byte* local, uint64_t bytes,
                             const RemoteMemory& remote, Completion* done) noexcept;
  void end_bounced(const Bounced& bounced, Outcome outcome) noexcept;
  // Whether there is room for the requests of so many bytes. Returns kPending, kAgain or kTooLong.
  SendStatus has_room_for(uint64_t bytes) const noexcept;
  void list_transfer(ibv_wr_opcode opcode, std::byte* local, uint64_t bytes,
                     const RemoteMemory& remote) noexcept;
  void mark_answer(std::byte* end) noexcept;
  bool is_registered(const std::byte* local, uint64_t bytes) const noexcept;
  // Returns how many bytes fit into one request.
  uint64_t fill_pieces(const std::byte* local, uint64_t bytes,
                       const SendQueue::Slot& slot) const noexcept;
  SendStatus atomic(ibv_wr_opcode opcode, const RemoteMemory& to, uint64_t first, uint64_t second,
                    uint64_t* before, Completion* done) noexcept;
  // Requires: room for one.
  void list_flush(Completion* done) noexcept;
  SendStatus describe(uint32_t loan, RemoteMemory* remote) noexcept;
  SendStatus bounce(Lent& record) noexcept;
  void mark_dirty() noexcept;

  // Windows.
  bool has_window(uint32_t index) const noexcept { return windows_[index].handle != nullptr; }
  // Whether there is one, and one region holds the memory.
  bool can_bind(uint32_t index, std::span<const std::byte> memory) const noexcept;
  // Returns the remote key. Requires: can_bind, the window is free, room for a request.
  uint32_t bind_window(uint32_t index, std::span<const std::byte> memory, unsigned access) noexcept;
  void give_up_window(uint32_t index) noexcept;
  void invalidate_windows() noexcept;
  void end_invalidation(uint32_t index, Outcome outcome) noexcept;
  uint64_t* cell(uint32_t request_place) const noexcept {
    BP_DCHECK(request_place < queue_.depth());
    return cells_ + request_place;
  }

  // Receiving and ending (verbs_endpoint_receive_datapath.cc).
  void end_request(const Request& request, uint32_t place, Outcome outcome) noexcept;
  // Each returns the fault of the message, or nullptr.
  const char* take(const VerbsMessageHeader& header, const std::byte* body) noexcept;
  const char* take_consumed(const VerbsMessageHeader& header) noexcept;
  const char* take_loan(const VerbsMessageHeader& header, const std::byte* body) noexcept;
  const char* take_returns(const VerbsMessageHeader& header, const std::byte* body) noexcept;
  void deliver(AmId id, std::span<const std::byte> payload, const Loan& loan) noexcept;
  void end_loan(uint32_t loan, Outcome outcome) noexcept;
  // The work that is due once a batch has been handled: acknowledgement, returns, doorbell.
  void finish_batch() noexcept;
  // Whether something is due that is not listed yet.
  bool owes() const noexcept;

  // Connections (verbs_endpoint.cc).
  const char* why_broken() const noexcept;
  void begin_life() noexcept;
  void begin_sending() noexcept;
  // Takes the connection down. `is_fault`: the peer broke a rule and is cut off.
  void break_life(const char* why, bool is_fault) noexcept;
  void break_by_device(ibv_wc_status status) noexcept;
  // Requires: the connector does not bring the queue pair up.
  void fail_queue_pair(uint64_t now_ns) noexcept;
  void end_pending() noexcept;
  void forget_loans() noexcept;
  bool make_window(Window& window) noexcept;

  VerbsParts& parts_;
  VerbsLink link_;
  SendQueue queue_;
  uint64_t window_ = 0;
  uint64_t message_bytes_ = 0;
  std::byte* slots_ = nullptr;            // window * message_bytes
  std::byte* acknowledgement_ = nullptr;  // kAcknowledgementsMax headers
  uint64_t* cells_ = nullptr;             // for each request, the answer of an atomic

  bool is_live_ = false;  // the link is the shard's, and up
  bool may_send_ = false;
  bool is_draining_ = false;
  bool must_fail_ = false;  // to be failed once the queue pair is ours
  bool is_dirty_ = false;   // in the provider's list
  bool is_cut_off_ = false;
  uint32_t cut_off_count_ = 0;

  // Messages: [consumed_, next_) are kept until the peer has consumed them.
  uint64_t next_ = 0;
  uint64_t consumed_ = 0;
  uint64_t told_ = 0;  // consumed messages of the peer that it knows of
  uint32_t acknowledgements_out_ = 0;
  uint32_t next_acknowledgement_ = 0;
  uint32_t operations_out_ = 0;
  bool must_flush_ = false;  // something was put since the last flush

  std::unique_ptr<Bounced[]> bounced_;  // for each request
  // A loan's number, which the peer knows, and its window's key are reused as late as can be.
  LoanBook<Lent, LoanOrder::kRound> loans_;
  Window windows_[kWindowCount];
  uint32_t next_exposure_ = 0;
  uint32_t given_up_count_ = 0;
  uint32_t invalidations_out_ = 0;
  // The peer's loans, by the number that it gave.
  std::bitset<kVerbsLoanCountMax> is_borrowed_;
  std::bitset<kVerbsLoanCountMax> is_due_back_;  // in returns_: it cannot be lent again yet
  uint32_t borrowed_marks_[kVerbsLoanCountMax] = {};
  ReturnedLoan returns_[kVerbsLoanCountMax];
  uint32_t return_count_ = 0;
  uint32_t life_ = 0;  // counts lives; loans of another mean nothing

  // For look_at_progress(): the count that it saw, since when, and whether it has posted a read.
  uint32_t seen_ended_ = 0;
  uint64_t seen_ns_ = 0;
  bool is_kicked_ = false;

  uint64_t drained_ns_min_ = 0;
  uint64_t drained_ns_max_ = 0;
  bool has_refused_ = false;  // the peer's device refused a request: those behind it did not happen
  // The transfer that ends next: a part of it may have happened; a part may not have happened.
  bool has_part_ = false;
  bool lacks_part_ = false;
};

}  // namespace bedplate
