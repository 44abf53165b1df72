#include "transport/verbs/channel/verbs_lender_datapath.h"

#include <cstring>

namespace bedplate {

SendStatus VerbsLender::lend(std::span<std::byte> block, Completion* returned,
                             VerbsLoanBody& body) noexcept {
  const uint32_t loan = loans_.try_lend(block.data(), returned);
  BP_DCHECK(loan < kVerbsLoanCountMax);
  Lent& record = loans_[loan];
  record.bytes = block.size();
  record.is_returning = false;
  const SendStatus described = describe(loan, body.memory);
  if (described != SendStatus::kPending) {
    loans_.cancel(loan);
    return described;
  }
  body.loan = loan;
  body.mark = ++record.mark;
  return SendStatus::kPending;
}

// Describes how the peer reaches the block. Returns kPending, kAgain or kRefused.
SendStatus VerbsLender::describe(uint32_t loan, RemoteMemory& remote) noexcept {
  Lent& record = loans_[loan];
  // The key ends with the connection: after a loss the caller may give the block to another.
  remote = {reinterpret_cast<uintptr_t>(record.block), record.bytes, 0,
            pack_reach(Reach::kConnection, kRead, channel_.link.packet_number)};
  record.bounced = nullptr;
  record.has_window = false;
  if (record.bytes == 0) return SendStatus::kPending;  // nothing to reach
  const VerbsExport* open =
      parts_.device->find_export(record.block, record.bytes, RemoteRights::kRead);
  if (open != nullptr) {
    remote.key = open->remote_key;
    return SendStatus::kPending;
  }
  std::span<const std::byte> reached(record.block, record.bytes);
  if (!windows_.can_bind(loan, reached)) {
    // The loan's window could not be made anew (MemoryWindows::renew).
    if (parts_.uses_windows && !windows_.has(loan)) return SendStatus::kRefused;
    if (const SendStatus copied = bounce(record); copied != SendStatus::kPending) return copied;
    reached = {record.bounced, record.bytes};
    remote.address = reinterpret_cast<uintptr_t>(record.bounced);
  }
  record.has_window = parts_.uses_windows;
  remote.key = record.has_window ? windows_.bind(loan, reached, IBV_ACCESS_REMOTE_READ)
                                 : parts_.loan_bounce_key;
  return SendStatus::kPending;
}

// Copies the block into the bounce buffer of loans. Returns kPending, kAgain or kRefused.
SendStatus VerbsLender::bounce(Lent& record) noexcept {
  if (record.bytes > parts_.loan_bounce.bytes()) return SendStatus::kRefused;
  record.bounced = parts_.loan_bounce.take(record.bytes);
  BP_DCHECK(record.block != nullptr && !record.is_returning);
  if (record.bounced == nullptr) return SendStatus::kAgain;
  std::memcpy(record.bounced, record.block, record.bytes);
  parts_.counters->bounced_bytes.add(record.bytes);
  return SendStatus::kPending;
}

const char* VerbsLender::take_returns(const VerbsMessageHeader& header,
                                      const std::byte* body) noexcept {
  BP_DCHECK(channel_.is_live && header.kind == VerbsMessageKind::kReturns);
  if (header.bytes == 0 || header.bytes % sizeof(ReturnedLoan) != 0) return "malformed returns";
  for (uint32_t at = 0; at < header.bytes; at += sizeof(ReturnedLoan)) {
    ReturnedLoan returned;
    std::memcpy(&returned, body + at, sizeof returned);
    if (returned.loan >= kVerbsLoanCountMax) return "a loan that does not exist";
    Lent& record = loans_[returned.loan];
    if (!loans_.is_out(returned.loan) || record.mark != returned.mark || record.is_returning) {
      return "a loan that was not lent to it";
    }
    if (record.has_window) {
      record.is_returning = true;
      windows_.give_up(returned.loan);
    } else {
      end(returned.loan, Outcome::kDone);
    }
  }
  return nullptr;
}

void VerbsLender::end_returning(uint32_t loan) noexcept {
  BP_DCHECK(loans_.is_out(loan) && loans_[loan].is_returning && windows_.is_free(loan));
  end(loan, Outcome::kDone);
}

void VerbsLender::end_all() noexcept {
  BP_DCHECK(!channel_.is_live && !channel_.is_draining && channel_.queue.is_idle());
  loans_.for_each_out([this](uint32_t loan) noexcept {
    end(loan, Outcome::kUnknown);
    return true;
  });
  BP_DCHECK(loans_.out_count() == 0);
}

void VerbsLender::end(uint32_t loan, Outcome outcome) noexcept {
  const Lent record = loans_.end(loan);
  if (record.bounced != nullptr) {
    // The key of the buffer opens all of it to every peer with such a loan: so no bytes of a loan
    // may stay there after its end.
    if (!record.has_window) std::memset(record.bounced, 0, record.bytes);
    parts_.loan_bounce.give_back(record.bounced, record.bytes);
  }
  finish_loan(record, outcome);
}

bool VerbsLender::is_valid() const noexcept {
  for (uint32_t loan = 0; loan < kVerbsLoanCountMax; ++loan) {
    const bool is_out = loans_.is_out(loan);
    const bool is_returning = is_out && loans_[loan].is_returning;
    const bool is_ending = windows_.is_ending(loan);
    if (channel_.is_live && is_ending && !is_returning) {
      return false;  // its end would give back a loan that is not lent
    }
    if (!is_out || !loans_[loan].has_window) continue;
    if (windows_.is_free(loan) || (is_returning && !is_ending)) return false;
  }
  return loans_.is_valid();
}

}  // namespace bedplate
