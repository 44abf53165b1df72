#include "apps/blockd/nbd_connection_datapath.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/usdt.h"
#include "transport/tls/tls_stream.h"

namespace bedplate::nbd {

Connection::Connection(const ConnectionEnvironment& environment, std::span<BlockRequest> requests,
                       TlsStream* tls) noexcept
    : environment_(environment),
      tls_(tls),
      request_count_(static_cast<uint32_t>(requests.size())),
      negotiation_(environment.exports) {
  for (BlockRequest& request : requests) {
    request.connection = this;
    free_requests_.push(request);
  }
  socket_.receive.completed = &Connection::receive_completed;
  socket_.receive.context = this;
  socket_.send.completed = &Connection::send_completed;
  socket_.send.context = this;
}

bool Connection::is_valid() const noexcept {
  const auto is_any = [](const BlockRequest&) { return true; };
  const auto reply_count = replies_.count(request_count_, is_any);
  const auto sent_count = being_sent_.count(request_count_, is_any);
  if (!reply_count || !sent_count) return false;
  const bool has_payload = write_ != nullptr && incoming_ == Incoming::kPayload;
  const size_t taken = *reply_count + *sent_count + submitted_count_ + (has_payload ? 1 : 0) +
                       (refused_ != nullptr ? 1 : 0);
  if (taken > request_count_ || !free_requests_.has_just(request_count_ - taken, is_any)) {
    return false;
  }
  const bool waits = incoming_ == Incoming::kNothing || incoming_ == Incoming::kPayload;
  if ((write_ != nullptr) != waits) return false;
  if ((refused_ != nullptr) != (incoming_ == Incoming::kDiscard)) return false;
  if (buffer_begin_ > buffer_end_ || buffer_end_ > kBufferBytes) return false;
  if (stored_count_ > submitted_count_) return false;
  if (!being_sent_.is_empty() && !socket_.send.is_in_flight) return false;
  return !is_closed() || (socket_.fd < 0 && !socket_.send.is_in_flight &&
                          !socket_.receive.is_in_flight && taken == 0);
}

int Connection::open(int fd, Tls tls) noexcept {
  BP_ASSERT(is_closed() && is_own_thread());
  BP_ASSERT(tls == Tls::kNone || tls_ != nullptr);
  BP_DCHECK_SLOW(is_valid());
  socket_.fd = fd;
  if (const int outcome = environment_.sockets->attach(socket_); outcome != 0) {
    socket_.fd = -1;
    return outcome;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails on a Unix socket: no harm
  phase_ = Phase::kNegotiating;
  incoming_ = Incoming::kHandshake;
  is_broken_ = is_counted_broken_ = false;
  read_ahead_bytes_ = kAheadBytes;
  is_burst_ = false;
  empty_buffer();
  negotiation_.reset(tls);
  environment_.counters->connections_total.add(1);
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
  if (self.phase_ == Phase::kFinishing) self.environment_.host->mark(self);  // it may be the last
}

void Connection::start_receive(uint32_t piece_count, uint64_t min_bytes) noexcept {
  BP_DCHECK(!socket_.receive.is_in_flight && piece_count > 0 && min_bytes > 0);
  socket_.receive.pieces = receive_pieces_;
  socket_.receive.piece_count = piece_count;
  socket_.receive.min_bytes = min_bytes;
  if (is_secure()) return tls_->receive();
  environment_.sockets->receive(socket_);
}

void Connection::start_send() noexcept {
  socket_.send.pieces = send_pieces_;
  if (is_secure()) return tls_->send();
  environment_.sockets->send(socket_);
}

bool Connection::is_secure() const noexcept { return tls_ != nullptr && tls_->is_open(); }

void Connection::received(uint64_t bytes) noexcept {
  switch (incoming_) {
    case Incoming::kHandshake:
      buffer_end_ += static_cast<uint32_t>(bytes);
      negotiate();
      break;
    case Incoming::kHeaders:
      buffer_end_ += static_cast<uint32_t>(bytes);
      parse();
      break;
    case Incoming::kPayload:
      // min_bytes was the rest of the payload, so it is whole; the bytes beyond are headers.
      BP_ASSERT(bytes >= socket_.receive.min_bytes);
      payload_received(bytes - socket_.receive.min_bytes);
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
    case Incoming::kNothing: BP_ASSERT(!"nothing was being received"); break;
  }
}

// The peer closed its side, or the socket failed.
void Connection::receive_ended(int64_t result) noexcept {
  const bool in_the_middle = phase_ == Phase::kNegotiating || incoming_ == Incoming::kPayload ||
                             incoming_ == Incoming::kDiscard || buffered_bytes() > 0;
  if (!is_broken_ && (result < 0 || in_the_middle)) count_broken();
  if (incoming_ == Incoming::kPayload) payload_ended(RequestStep::kAbort);
  if (incoming_ == Incoming::kDiscard) {
    release(*refused_);
    refused_ = nullptr;
    incoming_ = Incoming::kHeaders;
  }
  if (result < 0 || phase_ == Phase::kNegotiating) {
    break_off();
  } else {
    finish();
  }
}

void Connection::negotiate() noexcept {
  while (negotiation_.pending_output().empty() && buffered_bytes() > 0 &&
         negotiation_.state() == Negotiation::State::kNegotiating) {
    buffer_begin_ +=
        static_cast<uint32_t>(negotiation_.consume({buffer_ + buffer_begin_, buffered_bytes()}));
  }
  if (const auto output = negotiation_.pending_output(); !output.empty()) {
    if (socket_.send.is_in_flight) return;
    send_pieces_[0] = {const_cast<std::byte*>(output.data()), output.size()};
    socket_.send.piece_count = 1;
    return start_send();
  }
  switch (negotiation_.state()) {
    case Negotiation::State::kNegotiating: receive_more(); break;
    case Negotiation::State::kDisconnect:
      if (!negotiation_.is_aborted()) environment_.counters->protocol_errors.add(1);
      break_off();
      break;
    case Negotiation::State::kStartTls: start_tls(); break;
    case Negotiation::State::kTransmission:
      enter_transmission(negotiation_.export_index());
      phase_ = Phase::kServing;
      incoming_ = Incoming::kHeaders;
      environment_.host->handshake_done(*this);
      parse();
      break;
  }
}

// Refuses bytes behind STARTTLS: the client waits for our answer, so anybody may have sent them.
void Connection::start_tls() noexcept {
  if (buffered_bytes() > 0) return protocol_error();
  empty_buffer();
  tls_->open(
      socket_,
      [](void* self) noexcept {
        auto& connection = *static_cast<Connection*>(self);
        connection.environment_.host->mark(connection);
      },
      this);
  negotiation_.tls_started();
  receive_more();
}

// This client keeps the size that it was told, though the volume may have grown since.
void Connection::enter_transmission(size_t export_index) noexcept {
  volume_ = &environment_.volumes[export_index];
  const ExportInfo& info = *volume_->exported;
  view_ = {info.bytes, info.read_only, negotiation_.structured_replies(),
           negotiation_.block_status()};
}

// Takes requests out of the buffer until no whole one is left, a write needs its payload, or all
// slots are taken; then receives more, if it can use it.
void Connection::parse() noexcept {
  while (phase_ == Phase::kServing && incoming_ == Incoming::kHeaders &&
         buffered_bytes() >= kRequestHeaderBytes && !free_requests_.is_empty()) {
    if (!parse_one()) return;
  }
  receive_more();
}

// Returns whether to go on.
bool Connection::parse_one() noexcept {
  BlockRequest& request = *free_requests_.first();
  const RequestBytes header(buffer_ + buffer_begin_, kRequestHeaderBytes);
  buffer_begin_ += kRequestHeaderBytes;
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
  volume_->counters->requests.requests_in_flight.add(1);
  request.error = verdict.error;
  request.data = nullptr;
  request.has_buffer = false;
  request.trace.begin(environment_.loop->now_ns());
  BP_USDT(request_received, request.wire.cookie, request.wire.command, request.wire.length);
  switch (verdict.kind) {
    case Verdict::Kind::kAccept: accept(request); break;
    case Verdict::Kind::kRefuse: refuse(request, verdict.error); break;
    default: {  // kRefuseAndDrain
      environment_.counters->requests_refused.add(1);
      const uint32_t dropped = std::min(buffered_bytes(), verdict.drain_bytes);
      buffer_begin_ += dropped;
      discard_left_bytes_ = verdict.drain_bytes - dropped;
      if (discard_left_bytes_ == 0) {
        queue_reply(request);
      } else {
        refused_ = &request;
        incoming_ = Incoming::kDiscard;
      }
      break;
    }
  }
  is_burst_ = true;  // all else in the buffer came with this request
  return true;
}

void Connection::accept(BlockRequest& request) noexcept {
  count_request(*environment_.counters, request.wire);
  count_request(volume_->counters->requests, request.wire);
  RequestStep step = RequestStep::kSubmit;
  read_ahead_bytes_ = std::max(read_ahead_bytes_, kAheadBytes);  // a write sets it anew
  if (request.wire.command == Command::kWrite) {
    step = accept_write(request);
  } else if (request.wire.command == Command::kFlush) {
    // FLUSH has no range: these fields are reserved, and a client may write anything there.
    request.wire.offset = request.wire.length = 0;
  }
  request.volume = volume_;
  pass(request, kQueued);
  submit(request, step);
}

uint32_t Connection::read_ahead_after_write(uint32_t length) const noexcept {
  const bool is_small =
      length <= kSmallWriteMaxBytes || (length <= kBurstWriteMaxBytes && is_burst_);
  return is_small ? kBufferBytes : kAheadOfLargeBytes;
}

// Returns the write's first step. If its payload is in the buffer, that is the only one.
RequestStep Connection::accept_write(BlockRequest& request) noexcept {
  const uint32_t length = request.wire.length;
  read_ahead_bytes_ = read_ahead_after_write(length);
  if (buffered_bytes() < length) {
    write_ = &request;
    incoming_ = Incoming::kNothing;
    return RequestStep::kSubmit;
  }
  request.data = buffer_ + std::exchange(buffer_begin_, buffer_begin_ + length);
  ++stored_count_;
  return RequestStep::kStore;
}

void Connection::submit(BlockRequest& request, RequestStep step) noexcept {
  request.step = step;
  BP_USDT(request_queued, request.wire.cookie, step);
  ++submitted_count_;
  environment_.host->submit(request);
}

void Connection::refuse(BlockRequest& request, ErrorCode error) noexcept {
  environment_.counters->requests_refused.add(1);
  request.error = error;
  queue_reply(request);
}

void Connection::receive_more() noexcept {
  if (socket_.receive.is_in_flight || is_broken_) return;
  if (incoming_ == Incoming::kDiscard) {
    const auto memory = environment_.discard_memory;
    receive_pieces_[0] = {memory.data(), std::min<uint64_t>(memory.size(), discard_left_bytes_)};
    start_receive(1, 1);
    return;
  }
  if (incoming_ == Incoming::kNothing || phase_ == Phase::kFinishing) return;
  // If all slots are taken, nothing more can be parsed.
  if (phase_ == Phase::kServing && free_requests_.is_empty()) return;
  // The volume's shard still copies payloads from the buffer: they must not move.
  if (stored_count_ > 0) return;
  const uint32_t kept = buffered_bytes();
  if (buffer_begin_ > 0) std::memmove(buffer_, buffer_ + buffer_begin_, kept);
  buffer_begin_ = 0;
  buffer_end_ = kept;
  BP_DCHECK(kept < read_ahead_bytes_ && read_ahead_bytes_ <= kBufferBytes);
  receive_pieces_[0] = {buffer_ + kept, read_ahead_bytes_ - kept};
  is_burst_ = kept > 0;
  // Waits for a whole header: half of one is of no use. The handshake takes any bytes.
  start_receive(1, incoming_ == Incoming::kHeaders ? kRequestHeaderBytes - kept : 1);
}

// The volume's shard has granted the place for write_'s payload. It answers reads and writes in the
// order of their requests, so it has copied all payloads that lay in the buffer before this one.
void Connection::payload_granted() noexcept {
  BP_ASSERT(stored_count_ == 0 && incoming_ == Incoming::kNothing);
  BlockRequest& request = *write_;
  pass(request, kGranted);
  const uint32_t ahead = buffered_bytes();
  BP_ASSERT(ahead < request.wire.length && request.data != nullptr);
  const uint32_t missing = request.wire.length - ahead;
  std::memcpy(request.data, buffer_ + buffer_begin_, ahead);
  empty_buffer();
  incoming_ = Incoming::kPayload;
  receive_pieces_[0] = {request.data + ahead, missing};
  receive_pieces_[1] = {buffer_, read_ahead_bytes_};
  start_receive(2, missing);
}

void Connection::payload_received(uint64_t bytes_after) noexcept {
  buffer_end_ = static_cast<uint32_t>(bytes_after);
  is_burst_ = bytes_after > 0;
  payload_ended(RequestStep::kCommit);
  parse();
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
    environment_.host->mark(*this);
    if (phase_ == Phase::kServing) parse();  // a slot became free
  } else if (request.step == RequestStep::kStored) {
    submit(request, RequestStep::kCommit);
    if (--stored_count_ == 0) parse();
  } else {
    queue_reply(request);
    if (request.step == RequestStep::kStore && --stored_count_ == 0) parse();
  }
}

void Connection::queue_reply(BlockRequest& request) noexcept {
  replies_.push(request);
  environment_.host->mark(*this);
}

// A request that has a buffer goes back to the volume first, to give it back.
void Connection::release(BlockRequest& request) noexcept {
  if (request.has_buffer) return submit(request, RequestStep::kRelease);
  free_requests_.push(request);
  --taken_count_;
  volume_->counters->requests.requests_in_flight.add(~uint64_t{0});
}

// Adds bytes to the next send. Headers lie side by side, so headers without data between them (the
// replies to writes) form one piece.
void Connection::append(std::byte* bytes, size_t count) noexcept {
  uint32_t& piece_count = socket_.send.piece_count;
  BP_DCHECK(piece_count < std::size(send_pieces_));
  iovec* const last = piece_count == 0 ? nullptr : &send_pieces_[piece_count - 1];
  if (last != nullptr && static_cast<std::byte*>(last->iov_base) + last->iov_len == bytes) {
    last->iov_len += count;
  } else {
    send_pieces_[piece_count++] = {bytes, count};
  }
}

// Appends the reply with its header at `place`. Returns the place for the next reply's header.
std::byte* Connection::append_reply(const BlockRequest& request, std::byte* place) noexcept {
  const Request& wire = request.wire;
  const ReplyBytes header(place, kMaxReplyHeaderBytes);
  const bool is_read = wire.command == Command::kRead;
  const bool failed = request.error != ErrorCode::kNone;
  size_t header_bytes = 0;
  const bool is_status = wire.command == Command::kBlockStatus;
  uint64_t data_bytes = is_read && !failed ? wire.length : 0;
  if (!(is_read || is_status) || !view_.structured_replies) {
    header_bytes = encode_simple_reply(header, wire.cookie, request.error);
  } else if (failed) {
    header_bytes = encode_error_chunk(header, wire.cookie, request.error);
  } else if (is_read) {
    header_bytes = encode_read_chunk(header, wire.cookie, wire.offset, wire.length);
  } else if (request.data == nullptr) {
    header_bytes = encode_all_data(header, wire.cookie, wire.length);
  } else {
    data_bytes = request.done_bytes;
    header_bytes = encode_block_status(header, wire.cookie, static_cast<uint32_t>(data_bytes));
  }
  append(place, header_bytes);
  if (data_bytes > 0) append(request.data, data_bytes);
  return place + header_bytes;
}

void Connection::tell_trace(const BlockRequest& request) noexcept {
  const auto volume = static_cast<uint16_t>(volume_ - environment_.volumes.data());
  // An unknown command was refused.
  const auto kind = std::min<uint32_t>(static_cast<uint32_t>(request.wire.command), 255);
  environment_.trace.write(request.trace, {request.wire.cookie, request.wire.length, volume,
                                           static_cast<uint8_t>(kind)});
}

void Connection::flush() noexcept {
  BP_DCHECK(is_own_thread());
  BP_KEEPS_VALID(*this);
  if (is_secure() && tls_->run()) return environment_.host->mark(*this);
  if (is_broken_) {
    drop_replies();
  } else if (has_answers()) {
    socket_.send.piece_count = 0;
    std::byte* header = reply_headers_;
    BP_DCHECK(being_sent_.is_empty());
    for (uint32_t i = 0; i < kRepliesPerSend && !replies_.is_empty(); ++i) {
      BlockRequest& request = replies_.pop();
      being_sent_.push(request);
      header = append_reply(request, header);
      const uint64_t ns = environment_.loop->now_ns() - request.trace.begin_ns();
      count_time(*environment_.counters, request.wire.command, ns);
      volume_->counters->requests.request_ns.add(ns);
      BP_USDT(request_answered, request.wire.cookie, request.error);
      pass(request, kAnswered);
    }
    start_send();
  }
  const bool is_ending = phase_ == Phase::kFinishing;
  if (is_ending && submitted_count_ == 0 && write_ == nullptr && refused_ == nullptr &&
      replies_.is_empty() && !socket_.send.is_in_flight && !socket_.receive.is_in_flight &&
      (!is_secure() || tls_->say_end())) {
    close();
  }
}

void Connection::send_completed(void* context, int64_t result) noexcept {
  auto& self = *static_cast<Connection*>(context);
  BP_DCHECK(self.is_own_thread() && !self.is_closed());
  if (result < 0 && !self.is_broken_) {
    self.count_broken();
    self.break_off();
  }
  if (self.phase_ == Phase::kNegotiating) {
    self.negotiation_.output_sent(static_cast<size_t>(result));
    self.negotiate();
    return;
  }
  self.release_sent(result >= 0);
  self.environment_.host->mark(self);
  BP_KEEPS_VALID(self);
  if (self.phase_ == Phase::kServing) self.parse();  // slots became free
}

void Connection::release_sent(bool is_sent) noexcept {
  while (!being_sent_.is_empty()) {
    BlockRequest& request = being_sent_.pop();
    BP_USDT(request_sent, request.wire.cookie);
    if (is_sent) pass(request, kSent);
    tell_trace(request);
    release(request);
  }
}

void Connection::drop_replies() noexcept {
  while (!replies_.is_empty()) {
    BlockRequest& request = replies_.pop();
    tell_trace(request);
    release(request);
  }
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
  // Ends a receive that waits for a header; one that waits for a granted write's payload goes on.
  if (socket_.receive.is_in_flight && incoming_ == Incoming::kHeaders) {
    ::shutdown(socket_.fd, SHUT_RD);
  }
  environment_.host->mark(*this);
}

void Connection::count_broken() noexcept {
  if (std::exchange(is_counted_broken_, true)) return;
  environment_.counters->broken_connections.add(1);
}

void Connection::break_off() noexcept {
  BP_DCHECK(!is_closed());
  if (is_broken_) return;
  if (phase_ == Phase::kNegotiating) environment_.host->handshake_done(*this);
  is_broken_ = true;
  phase_ = Phase::kFinishing;
  if (is_secure()) {
    tls_->abort();
  } else {
    environment_.sockets->abort(socket_);
  }
  environment_.host->mark(*this);
}

void Connection::handshake_overdue() noexcept {
  BP_ASSERT(is_negotiating());
  environment_.counters->handshake_timeouts.add(1);
  break_off();
}

void Connection::close() noexcept {
  BP_ASSERT(submitted_count_ == 0 && stored_count_ == 0 && being_sent_.is_empty());
  if (is_secure()) {
    tls_->close();
  } else {
    environment_.sockets->detach(socket_);
  }
  ::close(socket_.fd);
  socket_.fd = -1;
  phase_ = Phase::kClosed;
}

}  // namespace bedplate::nbd
