// Handles the completions of the queue that all peers share: receives, and ends of requests.
//
// Bytes from a peer are copied out and checked before use. A peer that sends nonsense is cut off;
// its buffers return to the shared queue like all others.
#include <algorithm>
#include <cstring>

#include "transport/verbs/channel/verbs_endpoint.h"
#include "transport/verbs/channel/verbs_parts.h"
#include "transport/verbs/channel/verbs_provider.h"

namespace bedplate {

std::byte* VerbsProvider::receive_buffer(uint32_t index) const noexcept {
  BP_DCHECK(index <= receive_count());
  return memory_.data() + uint64_t{index} * parts_->shape.message_bytes;
}

uint32_t VerbsProvider::receive_count() const noexcept { return parts_->shape.receive_count(); }

uint32_t VerbsProvider::poll(uint32_t budget) noexcept {
  const ThreadOwner::DebugHold hold(parts_->owner);
  BP_KEEPS_VALID(*this);
  if (const uint32_t changes = parts_->connector.changes(); BP_UNLIKELY(changes != seen_changes_)) {
    seen_changes_ = changes;
    look_at_links();
  }
  post_sends();
  uint32_t count = take_completions(budget);
  if (BP_UNLIKELY(parts_->draining_count > 0)) count += look_at_draining();
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
    return parts_->datagrams.handle(
        completion, [this](uint16_t index, AmId id, std::span<const std::byte> payload) {
          if (!parts_->dispatcher->deliver({*endpoints_[index], id, payload, {}})) {
            parts_->counters->unhandled.add(1);
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
  sender->receive_failed(completion.status);
}

void VerbsProvider::handle_receive(const ibv_wc& completion, uint32_t buffer) noexcept {
  BP_DCHECK(buffer < receive_count() && completion.byte_len <= parts_->shape.message_bytes);
  const std::byte* data = receive_buffer(buffer);
  VerbsMessageHeader header = {};
  if (completion.byte_len >= sizeof header) std::memcpy(&header, data, sizeof header);
  VerbsEndpoint* sender = sender_of(completion, header.index);
  if (sender != nullptr) sender->receive(header, data + sizeof header, completion.byte_len);
}

VerbsEndpoint* VerbsProvider::sender_of(const ibv_wc& completion, uint16_t index) noexcept {
  const auto is_sender = [&](const std::unique_ptr<VerbsEndpoint>& endpoint) {
    return endpoint->link().queue_pair.number() == completion.qp_num;
  };
  if (index < endpoints_.size() && is_sender(endpoints_[index])) return endpoints_[index].get();
  const auto found = std::find_if(endpoints_.begin(), endpoints_.end(), is_sender);
  return found == endpoints_.end() ? nullptr : found->get();
}

// Posts receives in lists: receive_count() has one batch more than peers may use.
void VerbsProvider::repost(uint32_t buffer) noexcept {
  BP_DCHECK(buffer < receive_count() && listed_receives_ < kCompletionBatch);
  receive_pieces_[listed_receives_] = {reinterpret_cast<uintptr_t>(receive_buffer(buffer)),
                                       parts_->shape.message_bytes, parts_->memory_key};
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
  // The queue has space for every buffer.
  const int outcome = ibv_post_srq_recv(receives_, receive_list_, &refused);
  if (BP_UNLIKELY(outcome != 0)) lose_device(strerror(outcome));
  listed_receives_ = 0;
}

void VerbsProvider::post_sends() noexcept {
  parts_->dirty.post_all([](VerbsEndpoint& endpoint) noexcept { endpoint.post_batch(); });
}

void VerbsProvider::release(const Loan& loan) noexcept {
  BP_ASSERT(loan.provider == this);
  BP_DCHECK(loan.token >> 48 < endpoints_.size());
  endpoints_[loan.token >> 48]->give_back(loan);
}

}  // namespace bedplate
