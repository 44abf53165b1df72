#include "apps/blockd/nbd_connection_datapath.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "apps/blockd/block_connections.h"
#include "platform/assert.h"
#include "platform/usdt.h"

namespace bedplate::nbd {
namespace {

// Records the end of the request in the trace.
void tell_trace(const ConnectionEnvironment& environment, const VolumeDoor& door,
                const BlockRequest& request) noexcept {
  const auto index = static_cast<uint16_t>(&door - environment.doors.data());
  // The command of a refused request may be unknown.
  const auto kind = std::min<uint32_t>(static_cast<uint32_t>(request.wire.command), 255);
  environment.trace.write(
      request.trace, {request.wire.cookie, request.wire.length, index, static_cast<uint8_t>(kind)});
}

}  // namespace

Connection::Connection(const ConnectionEnvironment& environment, std::span<BlockRequest> requests,
                       StreamLayer* tls) noexcept
    : environment_(environment),
      socket_(*environment.sockets, tls,
              {.received = &Connection::receive_completed,
               .sent = &Connection::send_completed,
               .said_end =
                   [](void* self) noexcept {
                     auto& connection = *static_cast<Connection*>(self);
                     connection.environment_.server->mark(connection);
                   },
               .context = this}),
      request_count_(static_cast<uint32_t>(requests.size())),
      negotiation_(environment.exports) {
  for (BlockRequest& request : requests) {
    request.connection = this;
    request.home = environment.number;
    free_requests_.push(request);
  }
}

bool Connection::is_valid() const noexcept {
  const auto is_any = [](const BlockRequest&) { return true; };
  const auto reply_count = replies_.count(request_count_);
  if (!reply_count) return false;
  const bool has_payload = write_ != nullptr && incoming_ == Incoming::kPayload;
  const size_t taken =
      *reply_count + submitted_count_ + (has_payload ? 1 : 0) + (refused_ != nullptr ? 1 : 0);
  if (taken > request_count_ || !free_requests_.has_just(request_count_ - taken, is_any)) {
    return false;
  }
  const bool waits = incoming_ == Incoming::kNothing || incoming_ == Incoming::kPayload;
  if ((write_ != nullptr) != waits) return false;
  if ((refused_ != nullptr) != (incoming_ == Incoming::kDiscard)) return false;
  if (!read_ahead_.is_valid() || read_ahead_.lent_count() > submitted_count_) return false;
  if (replies_.is_sending() && !socket_.is_sending()) return false;
  if ((phase_ == Phase::kLingering) != (incoming_ == Incoming::kDropped) && !is_closed()) {
    return false;
  }
  if (phase_ == Phase::kLingering && (socket_.is_sending() || taken > 0)) return false;
  return !is_closed() ||
         (!socket_.is_open() && !socket_.is_sending() && !socket_.is_receiving() && taken == 0);
}

int Connection::open(int fd, LayerUse tls, BlockLimit* limit) noexcept {
  BP_ASSERT(is_closed() && is_own_thread());
  BP_ASSERT(tls == LayerUse::kNone || socket_.has_layer());
  BP_DCHECK_SLOW(is_valid());
  if (const int outcome = socket_.open(fd); outcome != 0) return outcome;
  phase_ = Phase::kNegotiating;
  incoming_ = Incoming::kHandshake;
  is_broken_ = is_counted_broken_ = has_failed_layer_ = has_client_ended_ = false;
  read_ahead_.clear();
  negotiation_.reset(tls);
  listener_limit = limit;
  has_left.store(false, std::memory_order_relaxed);
  negotiate();
  return 0;
}

// ---- receiving ----------------------------------------------------------------------------------

void Connection::receive_completed(void* context, int64_t result) noexcept {
  auto& self = *static_cast<Connection*>(context);
  BP_DCHECK(self.is_own_thread() && !self.is_closed());
  BP_KEEPS_VALID(self);
  if (result > 0 && !self.is_broken_) {
    self.received(static_cast<uint64_t>(result));
  } else {
    self.receive_ended(result);
  }
  // It may have been the last operation.
  if (self.phase_ >= Phase::kFinishing) self.environment_.server->mark(self);
}

void Connection::received(uint64_t bytes) noexcept {
  switch (incoming_) {
    case Incoming::kHandshake:
      read_ahead_.add(bytes);
      negotiate();
      break;
    case Incoming::kHeaders:
      read_ahead_.add(bytes);
      parse();
      break;
    case Incoming::kPayload:
      // min_bytes was the rest of the payload, so it is whole; the bytes beyond are headers.
      BP_ASSERT(bytes >= socket_.receive_min_bytes());
      read_ahead_.add_behind_payload(bytes - socket_.receive_min_bytes());
      payload_ended(RequestStep::kCommit);
      parse();
      break;
    case Incoming::kDiscard:
      BP_ASSERT(bytes <= discard_left_bytes_);
      discard_left_bytes_ -= bytes;
      if (discard_left_bytes_ == 0) {
        queue_reply(*refused_);
        refused_ = nullptr;
        incoming_ = Incoming::kHeaders;
      }
      parse();
      break;
    case Incoming::kDropped:
      if (StreamLinger::drop(*this, bytes) && is_limited()) {
        environment_.lingering->receive(*this, socket_);
      }
      break;
    case Incoming::kNothing: BP_ASSERT(!"nothing was being received"); break;
  }
}

// The peer closed its side, or the socket failed, or finish() has ended the receive.
void Connection::receive_ended(int64_t result) noexcept {
  if (phase_ == Phase::kLingering) return;
  if (result == -ECANCELED && phase_ == Phase::kFinishing && !is_broken_) return;
  has_client_ended_ |= result == 0;
  const bool in_the_middle = phase_ == Phase::kNegotiating || incoming_ == Incoming::kPayload ||
                             incoming_ == Incoming::kDiscard || read_ahead_.bytes() > 0;
  if (!is_broken_ && (result < 0 || in_the_middle)) count_broken();
  if (incoming_ == Incoming::kPayload) payload_ended(RequestStep::kAbort);
  if (incoming_ == Incoming::kDiscard) {
    release(*refused_);
    refused_ = nullptr;
    incoming_ = Incoming::kHeaders;
  }
  if (result < 0 || phase_ == Phase::kNegotiating) {
    break_off(result);
  } else if (phase_ == Phase::kServing) {
    finish();
    drop_waiting();  // nobody has asked for their answers with NBD_CMD_DISC
  }
}

void Connection::negotiate() noexcept {
  while (negotiation_.pending_output().empty() && read_ahead_.bytes() > 0 &&
         negotiation_.state() == Negotiation::State::kNegotiating) {
    read_ahead_.take(static_cast<uint32_t>(negotiation_.consume(read_ahead_.arrived())));
  }
  if (const auto output = negotiation_.pending_output(); !output.empty()) {
    if (socket_.is_sending()) return;
    handshake_piece_ = {const_cast<std::byte*>(output.data()), output.size()};
    return socket_.send({&handshake_piece_, 1});
  }
  switch (negotiation_.state()) {
    case Negotiation::State::kNegotiating: receive_more(); break;
    case Negotiation::State::kDisconnect:
      if (!negotiation_.is_aborted()) environment_.counters->protocol_errors.add(1);
      environment_.server->handshake_done(*this);
      phase_ = Phase::kFinishing;
      environment_.server->mark(*this);
      break;
    case Negotiation::State::kStartTls: start_tls(); break;
    case Negotiation::State::kTransmission:
      enter_transmission(negotiation_.export_index());
      phase_ = Phase::kServing;
      incoming_ = Incoming::kHeaders;
      environment_.server->handshake_done(*this);
      parse();
      break;
  }
}

// Refuses bytes behind STARTTLS: the client waits for our answer, so a third party may have
// injected them.
void Connection::start_tls() noexcept {
  if (read_ahead_.bytes() > 0) return protocol_error();
  socket_.start_layer();
  negotiation_.tls_started();
  receive_more();
}

// This client keeps the size that it was told, even if the volume has grown since.
void Connection::enter_transmission(size_t export_index) noexcept {
  door_ = &environment_.doors[export_index];
  const ExportInfo& info = *door_->exported;
  view_ = {info.bytes, info.read_only, negotiation_.structured_replies(),
           negotiation_.block_status()};
}

// Takes arrived requests until no whole request is left, a write needs its payload, or all slots
// are taken; then receives more, if there is space.
void Connection::parse() noexcept {
  while (phase_ == Phase::kServing && incoming_ == Incoming::kHeaders &&
         read_ahead_.bytes() >= kRequestHeaderBytes && !free_requests_.is_empty()) {
    if (!parse_one()) return;
  }
  receive_more();
}

// Returns whether to continue.
bool Connection::parse_one() noexcept {
  BlockRequest& request = *free_requests_.first();
  const RequestBytes header(read_ahead_.take(kRequestHeaderBytes), kRequestHeaderBytes);
  if (!try_decode(header, request.wire)) {
    protocol_error();
    return false;
  }
  const Verdict verdict = check(request.wire, view_);
  if (verdict.kind == Verdict::Kind::kDisconnect) {
    protocol_error();
    return false;
  }
  if (verdict.kind == Verdict::Kind::kFinish) {
    finish();
    return false;
  }
  free_requests_.pop();
  environment_.counters->requests_peak.raise(++taken_count_);
  door_->counters->requests_in_flight.add(1);
  request.error = verdict.error;
  request.data = nullptr;
  request.has_buffer = false;
  request.trace.begin(environment_.loop->now_ns());
  BP_USDT(request_received, request.wire.cookie, request.wire.command, request.wire.length);
  if (verdict.kind == Verdict::Kind::kAccept) {
    accept(request);
  } else {
    environment_.counters->requests_refused.add(1);
    discard_payload(request, verdict.drain_bytes);
  }
  read_ahead_.set_burst();
  return true;
}

void Connection::accept(BlockRequest& request) noexcept {
  count_request(*environment_.counters, request.wire);
  count_request(*door_->counters, request.wire);
  RequestStep step = RequestStep::kSubmit;
  if (request.wire.command == Command::kWrite) {
    step = accept_write(request);
  } else {
    read_ahead_.follow_other();
  }
  // FLUSH has no range: these fields are reserved, and a client may write anything there.
  if (request.wire.command == Command::kFlush) request.wire.offset = request.wire.length = 0;
  request.volume = door_->volume;
  pass(request, kQueued);
  if (BP_LIKELY(environment_.limits == nullptr)) return submit(request, step);
  request.step = step;
  ++submitted_count_;
  environment_.server->admit(request);
}

// Returns the first step of the write. It is the only step if the payload has arrived.
RequestStep Connection::accept_write(BlockRequest& request) noexcept {
  const uint32_t length = request.wire.length;
  read_ahead_.follow_write(length);
  if (read_ahead_.bytes() < length) {
    write_ = &request;
    incoming_ = Incoming::kNothing;
    return RequestStep::kSubmit;
  }
  request.data = read_ahead_.lend(length);
  return RequestStep::kStore;
}

// Drops the payload of a refused request, which may be empty, and answers after it.
void Connection::discard_payload(BlockRequest& request, uint32_t bytes) noexcept {
  const uint32_t read_bytes = std::min(read_ahead_.bytes(), bytes);
  read_ahead_.take(read_bytes);
  discard_left_bytes_ = bytes - read_bytes;
  if (discard_left_bytes_ == 0) return queue_reply(request);
  refused_ = &request;
  incoming_ = Incoming::kDiscard;
}

void Connection::submit(BlockRequest& request, RequestStep step) noexcept {
  request.step = step;
  BP_USDT(request_queued, request.wire.cookie, step);
  ++submitted_count_;
  door_->requests->push(request);
}

void Connection::receive_more() noexcept {
  if (socket_.is_receiving() || is_broken_) return;
  if (incoming_ == Incoming::kDiscard) {
    const auto memory = environment_.discard_memory;
    receive_pieces_[0] = {memory.data(), std::min<uint64_t>(memory.size(), discard_left_bytes_)};
    return socket_.receive({receive_pieces_, 1}, 1);
  }
  if (incoming_ == Incoming::kNothing || phase_ == Phase::kFinishing) return;
  // No slot is free, so nothing more can be parsed.
  if (phase_ == Phase::kServing && free_requests_.is_empty()) return;
  // The volume's shard still copies payloads from the buffer: they must not move.
  if (read_ahead_.is_lent()) return;
  receive_pieces_[0] = read_ahead_.room();
  // Waits for a whole header: a part of one is useless. The handshake takes any bytes.
  const bool is_header = incoming_ == Incoming::kHeaders;
  socket_.receive({receive_pieces_, 1}, is_header ? kRequestHeaderBytes - read_ahead_.bytes() : 1);
}

// The volume's shard has granted the destination for write_'s payload. It gets writes in the order
// of their requests, which limits keep, so it has copied all payloads lent to it before this one.
void Connection::payload_granted() noexcept {
  BP_ASSERT(!read_ahead_.is_lent() && incoming_ == Incoming::kNothing);
  BlockRequest& request = *write_;
  pass(request, kGranted);
  const uint32_t ahead = read_ahead_.bytes();
  BP_ASSERT(ahead < request.wire.length && request.data != nullptr);
  const uint32_t missing = request.wire.length - ahead;
  std::memcpy(request.data, read_ahead_.take(ahead), ahead);
  incoming_ = Incoming::kPayload;
  receive_pieces_[0] = {request.data + ahead, missing};
  receive_pieces_[1] = read_ahead_.room();
  socket_.receive(receive_pieces_, missing);
}

void Connection::payload_ended(RequestStep step) noexcept {
  BlockRequest& request = *write_;
  write_ = nullptr;
  incoming_ = Incoming::kHeaders;
  pass(request, kQueued);
  submit(request, step);
}

// ---- answering ----------------------------------------------------------------------------------

void Connection::request_returned(BlockRequest& request) noexcept {
  BP_DCHECK(is_own_thread());
  BP_KEEPS_VALID(*this);
  BP_ASSERT(request.connection == this && submitted_count_ > 0);
  --submitted_count_;
  if (&request == write_) {  // its grant
    if (is_broken_) {
      payload_ended(RequestStep::kAbort);
    } else {
      payload_granted();
    }
  } else if (request.step == RequestStep::kAbort || request.step == RequestStep::kRelease) {
    request.has_buffer = false;
    release(request);
    environment_.server->mark(*this);
    if (phase_ == Phase::kServing) parse();  // a slot became free
  } else if (request.step == RequestStep::kStored) {
    submit(request, RequestStep::kCommit);
    if (read_ahead_.give_back()) parse();
  } else {
    queue_reply(request);
    if (request.step == RequestStep::kStore && read_ahead_.give_back()) parse();
  }
}

void Connection::request_dropped(BlockRequest& request) noexcept {
  BP_DCHECK(is_own_thread());
  BP_ASSERT(phase_ == Phase::kFinishing && request.connection == this && submitted_count_ > 0);
  --submitted_count_;
  if (&request == write_) {
    write_ = nullptr;
    incoming_ = Incoming::kHeaders;
  }
  if (request.step == RequestStep::kStore) read_ahead_.give_back();
  release(request);
}

void Connection::queue_reply(BlockRequest& request) noexcept {
  replies_.push(request);
  environment_.server->mark(*this);
}

// A request that has a buffer first returns to the volume, which takes the buffer back.
void Connection::release(BlockRequest& request) noexcept {
  if (request.has_buffer) return submit(request, RequestStep::kRelease);
  free_requests_.push(request);
  --taken_count_;
  door_->counters->requests_in_flight.add(~uint64_t{0});
}

// The answer has been sent, or cannot be sent.
void Connection::end_request(BlockRequest& request) noexcept {
  tell_trace(environment_, *door_, request);
  release(request);
}

void Connection::flush() noexcept {
  BP_DCHECK(is_own_thread());
  BP_KEEPS_VALID(*this);
  if (is_broken_) {
    while (replies_.has_ready()) end_request(replies_.pop_ready());
  } else if (has_answers()) {
    const auto answered = [this](BlockRequest& request) noexcept {
      const uint64_t ns = environment_.loop->now_ns() - request.trace.begin_ns();
      count_time(*environment_.counters, request.wire.command, ns);
      door_->counters->request_ns.add(ns);
      BP_USDT(request_answered, request.wire.cookie, request.error);
      pass(request, kAnswered);
    };
    socket_.send(replies_.begin_send(view_.structured_replies, answered));
  }
  if (phase_ >= Phase::kFinishing) try_end();
}

void Connection::send_completed(void* context, int64_t result) noexcept {
  auto& self = *static_cast<Connection*>(context);
  BP_DCHECK(self.is_own_thread() && !self.is_closed());
  if (result < 0 && !self.is_broken_) {
    self.count_broken();
    self.break_off(result);
  }
  if (self.phase_ == Phase::kNegotiating) {
    self.negotiation_.output_sent(static_cast<size_t>(result));
    self.negotiate();
    return;
  }
  while (self.replies_.is_sending()) {
    BlockRequest& request = self.replies_.pop_sent();
    BP_USDT(request_sent, request.wire.cookie);
    if (result >= 0) self.pass(request, kSent);
    self.end_request(request);
  }
  self.environment_.server->mark(self);
  BP_KEEPS_VALID(self);
  if (self.phase_ == Phase::kServing) self.parse();  // slots became free
}

// ---- ending -------------------------------------------------------------------------------------

void Connection::protocol_error() noexcept {
  environment_.counters->protocol_errors.add(1);
  break_off();
}

void Connection::finish() noexcept {
  BP_DCHECK(is_own_thread());
  if (phase_ == Phase::kNegotiating) {
    break_off();
    return;
  }
  if (phase_ != Phase::kServing) return;
  phase_ = Phase::kFinishing;
  // Ends a receive that waits for a header; a receive of a granted write's payload continues.
  if (socket_.is_receiving() && incoming_ == Incoming::kHeaders) socket_.end_receive();
  environment_.server->mark(*this);
}

void Connection::count_broken() noexcept {
  if (std::exchange(is_counted_broken_, true)) return;
  environment_.counters->broken_connections.add(1);
}

void Connection::break_off(int64_t result) noexcept {
  BP_DCHECK(!is_closed() && phase_ != Phase::kLingering);
  if (is_broken_) return;
  if (phase_ == Phase::kNegotiating) environment_.server->handshake_done(*this);
  is_broken_ = true;
  phase_ = Phase::kFinishing;
  has_failed_layer_ = result == -EPROTO && socket_.is_layered();
  if (!has_failed_layer_) {
    socket_.abort();
  } else if (socket_.is_receiving()) {
    socket_.end_receive();
  }
  drop_waiting();
  environment_.server->mark(*this);
}

// The client has left. Its requests would use up the budget of those that are there.
void Connection::drop_waiting() noexcept {
  if (environment_.limits != nullptr) environment_.server->drop_waiting(*this);
}

void Connection::overdue() noexcept {
  if (phase_ == Phase::kLingering) return socket_.abort();  // ends its receive
  BP_ASSERT(phase_ == Phase::kNegotiating);
  environment_.counters->handshake_timeouts.add(1);
  break_off();
}

// It takes no more requests: closes once all are back and nothing is in flight. Lingers before that
// if the client may still hear something.
void Connection::try_end() noexcept {
  if (socket_.is_sending() || socket_.is_receiving()) return;
  if (phase_ == Phase::kLingering) return close();
  if (submitted_count_ > 0 || write_ != nullptr || refused_ != nullptr || replies_.has_ready()) {
    return;
  }
  if (!socket_.say_end()) return;
  const bool may_hear = (!is_broken_ || has_failed_layer_) && !has_client_ended_;
  if (!may_hear || !socket_.has_unacknowledged()) return close();
  if (socket_.is_layered() && socket_.remove_layer() != 0) return close();
  phase_ = Phase::kLingering;
  incoming_ = Incoming::kDropped;
  is_broken_ = false;  // what comes is dropped as ever
  socket_.stop_sending();
  environment_.lingering->begin(*this);
  environment_.lingering->receive(*this, socket_);
}

void Connection::close() noexcept {
  BP_ASSERT(submitted_count_ == 0 && !read_ahead_.is_lent() && !replies_.is_sending());
  environment_.lingering->end(*this);
  socket_.close();
  phase_ = Phase::kClosed;
}

}  // namespace bedplate::nbd
