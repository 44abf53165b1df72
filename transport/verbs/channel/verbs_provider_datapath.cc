// What arrives and what ends: completions of the one queue that all peers share.
//
// The bytes that a peer wrote are copied out and checked before they are used. A peer that writes
// nonsense is cut off; its buffers go back to the shared queue as all others do.
#include <cstring>

#include "transport/verbs/channel/verbs_provider.h"

namespace bedplate {
namespace {

// Of a receive: the message was longer than it. Where LOC_QP_OP_ERR says so, it would also say that
// something is wrong with the receive itself; ours are all alike.
bool is_too_long(ibv_wc_status status, const DeviceQuirks& quirks) noexcept {
  return status == IBV_WC_LOC_LEN_ERR || status == IBV_WC_REM_INV_REQ_ERR ||
         (quirks.hides_long_messages && status == IBV_WC_LOC_QP_OP_ERR);
}

}  // namespace

uint32_t VerbsProvider::poll(uint32_t budget) noexcept {
  BP_KEEPS_VALID(*this);
  if (const uint32_t changes = connector_.changes(); BP_UNLIKELY(changes != seen_changes_)) {
    seen_changes_ = changes;
    look_at_links();
  }
  post_sends();
  uint32_t count = take_completions(budget);
  if (BP_UNLIKELY(draining_count_ > 0)) count += look_at_draining();
  if (count > 0) post_sends();
  return count;
}

uint32_t VerbsProvider::take_completions(uint32_t budget) noexcept {
  uint32_t count = 0;
  while (count < budget) {
    ibv_wc completions[kCompletionBatch];
    const auto wanted = static_cast<int>(std::min(budget - count, kCompletionBatch));
    const int got = ibv_poll_cq(completions_, wanted, completions);
    for (int i = 0; i < got; ++i) handle_completion(completions[i]);
    if (BP_UNLIKELY(got < 0)) lose_device("it cannot be polled");
    count += static_cast<uint32_t>(std::max(got, 0));
    if (got < wanted) break;
  }
  return count;
}

void VerbsProvider::handle_completion(const ibv_wc& completion) noexcept {
  const auto tag = static_cast<uint32_t>(completion.wr_id >> 32);
  if (tag == DatagramQueue::kTag) {
    return datagrams_.handle(completion,
                             [this](uint16_t place, AmId id, std::span<const std::byte> payload) {
                               if (!dispatcher_->deliver({*endpoints_[place], id, payload, {}})) {
                                 options_.counters->unhandled.add(1);
                               }
                             });
  }
  BP_DCHECK(tag == kReceiveTag || tag < endpoints_.size());
  if (tag != kReceiveTag) return endpoints_[tag]->end_requests(completion);
  const auto buffer = static_cast<uint32_t>(completion.wr_id);
  if (completion.status == IBV_WC_SUCCESS) handle_receive(completion, buffer);
  else handle_bad_receive(completion);
  repost(buffer);
}

void VerbsProvider::handle_bad_receive(const ibv_wc& completion) noexcept {
  VerbsEndpoint* sender = sender_of(completion, 0);
  if (sender == nullptr || completion.status == IBV_WC_WR_FLUSH_ERR) return;
  if (!sender->is_live_) sender->look_at_link();
  const bool is_fault = is_too_long(completion.status, options_.device->quirks());
  sender->break_life(is_fault ? "a message that is too long" : ibv_wc_status_str(completion.status),
                     is_fault);
}

void VerbsProvider::handle_receive(const ibv_wc& completion, uint32_t buffer) noexcept {
  BP_DCHECK(buffer < receive_count() && completion.byte_len <= options_.shape.message_bytes);
  const std::byte* data = receive_buffer(buffer);
  VerbsMessageHeader header = {};
  const bool is_long_enough = completion.byte_len >= sizeof header;
  if (is_long_enough) std::memcpy(&header, data, sizeof header);
  VerbsEndpoint* sender = sender_of(completion, header.place);
  if (sender == nullptr) return;
  // It may be faster than the word that the connection is up.
  if (!sender->is_live_) sender->look_at_link();
  // Of a former life: the peer sends it again, since it was not counted.
  if (!sender->is_live_) return;
  const char* fault = nullptr;
  if (!is_long_enough || header.bytes != completion.byte_len - sizeof header ||
      header.place != sender->link_.place || header.zero != 0) {
    fault = "a malformed message";
  } else if (header.mark != sender->link_.peer.packet_number) {
    return sender->break_life("a message of another connection", false);
  } else {
    fault = sender->take(header, data + sizeof header);
  }
  if (fault != nullptr) return sender->break_life(fault, true);
  if (sender->owes()) sender->mark_dirty();
}

VerbsEndpoint* VerbsProvider::sender_of(const ibv_wc& completion, uint16_t place) noexcept {
  const auto is_sender = [&](const std::unique_ptr<VerbsEndpoint>& endpoint) {
    return endpoint->link_.queue_pair.number() == completion.qp_num;
  };
  if (place < endpoints_.size() && is_sender(endpoints_[place])) return endpoints_[place].get();
  const auto found = std::find_if(endpoints_.begin(), endpoints_.end(), is_sender);
  return found == endpoints_.end() ? nullptr : found->get();
}

// In lists: there are as many receives more than peers may use.
void VerbsProvider::repost(uint32_t buffer) noexcept {
  BP_DCHECK(buffer < receive_count() && listed_receives_ < kCompletionBatch);
  receive_pieces_[listed_receives_] = {reinterpret_cast<uintptr_t>(receive_buffer(buffer)),
                                       options_.shape.message_bytes, memory_key_};
  receive_list_[listed_receives_].wr_id = uint64_t{kReceiveTag} << 32 | buffer;
  if (++listed_receives_ == kCompletionBatch) post_receives();
}

void VerbsProvider::post_receives() noexcept {
  if (listed_receives_ == 0) return;
  for (uint32_t i = 0; i < listed_receives_; ++i) {
    receive_list_[i].sg_list = &receive_pieces_[i];
    receive_list_[i].num_sge = 1;
    receive_list_[i].next = i + 1 < listed_receives_ ? &receive_list_[i + 1] : nullptr;
  }
  ibv_recv_wr* refused = nullptr;
  // There are never more than the queue was made for.
  const int outcome = ibv_post_srq_recv(receives_, receive_list_, &refused);
  if (BP_UNLIKELY(outcome != 0)) lose_device(strerror(outcome));
  listed_receives_ = 0;
}

void VerbsProvider::post_sends() noexcept {
  for (uint32_t i = 0; i < dirty_count_; ++i) {
    BP_DCHECK(dirty_[i]->is_dirty_);
    dirty_[i]->finish_batch();
    dirty_[i]->is_dirty_ = false;  // only now: what it lists it has also posted
  }
  dirty_count_ = 0;
}

void VerbsProvider::release(const Loan& loan) noexcept {
  BP_ASSERT(loan.provider == this);
  endpoints_[loan.token >> 48]->give_back(loan);
}

}  // namespace bedplate
