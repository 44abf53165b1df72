#include "tests/strain/scribbler.h"

#include <cstring>
#include <iterator>

#include "transport/shm/endpoint/shm_provider.h"

namespace bedplate::strain {

uint64_t Scribbler::edge(uint64_t limit) noexcept {
  const uint64_t edges[] = {0,
                            1,
                            limit - 1,
                            limit,
                            limit + 1,
                            limit / 2,
                            UINT32_MAX,
                            UINT64_MAX,
                            UINT64_MAX - 7,
                            uint64_t{1} << 63,
                            random_(),
                            below(limit + 1) & ~63ULL};
  return edges[below(std::size(edges))];
}

// The store is atomic, because others read the segment at the same time.
template <typename T>
void Scribbler::store(uint64_t offset, T value) noexcept {
  auto* word = reinterpret_cast<T*>(at(offset));
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void Scribbler::anything() noexcept {
  const uint64_t bytes = segment_.memory().size();
  const uint64_t first = spares_group_ ? sizeof(GroupHeader) : 0;
  const uint64_t offset = first + below(bytes - first);
  switch (below(3)) {
    case 0: return store(offset, static_cast<uint8_t>(random_()));
    case 1: {
      const auto byte = static_cast<uint8_t>(*at(offset));
      return store(offset, static_cast<uint8_t>(byte ^ 1 << below(8)));
    }
    default: return store(offset & ~7ULL, edge(bytes));
  }
}

void Scribbler::payload(uint64_t offset, SlotKind kind) noexcept {
  if (kind == SlotKind::kControl && below(2) == 0) {
    const uint64_t boxes = segment_.shape().box_count;
    return store(offset, static_cast<uint32_t>(below(2) == 0 ? edge(boxes) : below(boxes + 1)));
  }
  if (kind != SlotKind::kLoan) {
    const uint64_t limit = segment_.layout().eager_region_bytes();
    return store(offset, below(2) == 0 ? edge(limit) : below(limit + 1) & ~63ULL);
  }
  LoanDescriptor loan;
  const auto heap = reinterpret_cast<uintptr_t>(heap_.data());
  loan.address = below(4) == 0 ? random_() : heap + edge(heap_.size());
  loan.bytes = edge(heap_.size());
  loan.loan = static_cast<uint32_t>(edge(segment_.shape().loan_count));
  loan.mark = static_cast<uint16_t>(random_());
  loan.header_bytes = static_cast<uint16_t>(edge(kLoanHeaderBytesMax));
  std::memcpy(at(offset), &loan, sizeof loan);
}

// Writes a slot that looks published or claimed.
void Scribbler::slot(uint64_t offset, uint64_t lap) noexcept {
  SlotHeader header;
  header.kind = static_cast<SlotKind>(spares_group_ ? 2 + below(6) : below(8));
  header.am = static_cast<uint32_t>(below(2) == 0 ? below(6) : below(256));
  header.bytes = static_cast<uint32_t>(below(2) == 0 ? below(64) : below(kMessageBytesMax + 1));
  header.sender = below(4) == 0 ? static_cast<uint32_t>(below(kMemberCountMax + 1)) : member();
  if (below(4) != 0) payload(offset + sizeof(uint64_t), header.kind);
  if (!spares_group_ && below(4) == 0) lap += below(3) - 1;
  store(offset, pack_slot(lap & kSlotLapMask, header));
}

void Scribbler::fifo() noexcept {
  const GroupShape& shape = segment_.shape();
  const uint64_t base = segment_.layout().fifo(member());
  switch (spares_group_ ? 2 : below(6)) {
    case 0: return store(base, edge(shape.entry_count));
    case 1: return store(base + shape.line_bytes, edge(shape.entry_count));
    default: {
      const uint64_t claims =
          __atomic_load_n(reinterpret_cast<uint64_t*>(at(base)), __ATOMIC_RELAXED);
      const uint64_t index = claims - below(2);
      const auto log2 = static_cast<unsigned>(std::countr_zero(shape.entry_count));
      return slot(base + 2 * shape.line_bytes + (index % shape.entry_count) * sizeof(MessageSlot),
                  lap_of(index, log2));
    }
  }
}

void Scribbler::box(uint64_t offset) noexcept {
  const uint32_t bytes = segment_.shape().box_bytes;
  if (below(4) == 0) return store(offset, edge(FastBox::slot_count(bytes)));
  const uint64_t slot_at = offset + kCacheLineBytes * (1 + below(FastBox::slot_count(bytes)));
  const uint64_t word = __atomic_load_n(reinterpret_cast<uint64_t*>(at(slot_at)), __ATOMIC_RELAXED);
  slot(slot_at, slot_lap(word) + below(2));
}

void Scribbler::lane() noexcept {
  const GroupLayout& layout = segment_.layout();
  const uint32_t receiver = member();
  uint32_t sender = member();
  if (sender == receiver) sender = (sender + 1) % segment_.shape().member_count;
  const uint32_t entries = segment_.shape().entry_count;
  const uint64_t head_at = layout.lane_head(receiver, sender);
  const uint32_t head = __atomic_load_n(reinterpret_cast<uint32_t*>(at(head_at)), __ATOMIC_RELAXED);
  switch (below(6)) {
    case 0: return store(layout.lane_tail(receiver, sender), static_cast<uint32_t>(edge(head)));
    case 1: return store(head_at, static_cast<uint32_t>(edge(head + entries)));
    case 2: return store(head_at, head + static_cast<uint32_t>(below(3)));
    default: {
      LaneWord word;
      word.kind = static_cast<SlotKind>(below(8));
      word.am = static_cast<uint32_t>(below(6));
      word.bytes = static_cast<uint32_t>(below(kMessageBytesMax + 1));
      const uint64_t region = layout.eager_region_bytes();
      word.offset = below(2) == 0 ? edge(region) : below(region);
      const uint64_t word_at =
          layout.lane_queue(receiver, sender) + (head % entries) * sizeof(uint64_t);
      payload(layout.eager(sender) + (below(region) & ~63ULL), word.kind);
      store(word_at, pack_lane_word(word));
      return store(head_at, head + 1);
    }
  }
}

// Writes a request for a put, get or atomic operation into a member's eager region.
void Scribbler::operation() noexcept {
  const GroupLayout& layout = segment_.layout();
  const uint64_t region = layout.eager_region_bytes();
  if (region < sizeof(OperationRecord)) return anything();
  const uint64_t record_at =
      layout.eager(member()) + (below(region - sizeof(OperationRecord) + 1) & ~63ULL);
  switch (below(6)) {
    case 0:
      return store(record_at + offsetof(OperationRecord, request.kind),
                   static_cast<uint32_t>(edge(4)));
    case 1:
      return store(record_at + offsetof(OperationRecord, request.bytes),
                   static_cast<uint32_t>(edge(region)));
    case 2: {
      const uint64_t address = record_at + offsetof(OperationRecord, request.address);
      return store(address, *reinterpret_cast<uint64_t*>(at(address)) + edge(256));
    }
    case 3:
      return store(record_at + offsetof(OperationRecord, request.exposure),
                   edge(kExposureCountMax));
    case 4: return store(record_at + offsetof(OperationRecord, result), random_());
    default:
      return store(record_at + offsetof(OperationRecord, state), static_cast<uint32_t>(edge(2)));
  }
}

void Scribbler::part_of_member() noexcept {
  const GroupLayout& layout = segment_.layout();
  const uint32_t whose = member();
  switch (below(6)) {
    case 0: return store(layout.wrapper(whose), edge(64));
    case 1: return store(layout.wrapper(whose) + sizeof(uint64_t), static_cast<uint32_t>(edge(2)));
    case 2: return store(layout.card(whose) + (below(sizeof(SingleCopyCard)) & ~7ULL), random_());
    case 3: return store(layout.held_loans(whose), edge(64));
    default:
      return store(layout.returned_loans(whose) + below(segment_.shape().loan_count),
                   static_cast<uint8_t>(below(2) == 0 ? below(8) : random_()));
  }
}

void Scribbler::queue() noexcept {
  const GroupShape& shape = segment_.shape();
  const GroupLayout& layout = segment_.layout();
  switch (shape.kind) {
    case GroupKind::kMesh: return lane();
    case GroupKind::kExchange: return box(layout.inbound_box(member()));
    case GroupKind::kLazy: break;
  }
  switch (shape.box_count == 0 ? 3 : below(6)) {
    case 0:
    case 1: return box(layout.box(static_cast<uint32_t>(below(shape.box_count))));
    case 2: {
      const uint64_t somebody = pack_box_owner(member(), member());
      return store(layout.box_owner(static_cast<uint32_t>(below(shape.box_count))),
                   below(2) == 0 ? somebody : edge(shape.box_count));
    }
    default: return fifo();
  }
}

void Scribbler::scribble() noexcept {
  ++count_;
  switch (below(8)) {
    case 0: return spares_group_ && below(64) != 0 ? queue() : anything();
    case 1: return part_of_member();
    case 2: return segment_.shape().kind == GroupKind::kExchange ? queue() : operation();
    case 3:
      if (!spares_group_ && below(8) == 0) {
        return store(below(sizeof(GroupHeader)) & ~7ULL, random_());
      }
      [[fallthrough]];
    default: return queue();
  }
}

}  // namespace bedplate::strain
