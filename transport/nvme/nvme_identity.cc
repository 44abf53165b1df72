#include "transport/nvme/nvme_identity.h"

#include <algorithm>
#include <atomic>

#include "transport/nvme/nvme_prp_datapath.h"
#include "transport/nvme/nvme_wire.h"

namespace bedplate {
namespace {

constexpr uint32_t kBlockLog2Min = 9;
constexpr uint32_t kBlockLog2Max = 12;

}  // namespace

void NvmeIdentity::create(std::span<const uint32_t> namespaces) {
  space_count_ = static_cast<uint32_t>(namespaces.size());
  spaces_ = std::make_unique<NvmeNamespace[]>(space_count_);
  for (uint32_t i = 0; i < space_count_; ++i) spaces_[i].id = namespaces[i];
}

void NvmeIdentity::know_controller(const std::byte* answer, uint64_t page_bytes_min) noexcept {
  const auto transfer_log2 = nvme::field<uint8_t>(answer, nvme::kMaxTransfer);
  transfer_bytes_max_ = kNvmeTransferBytesMax;
  if (transfer_log2 > 0 && transfer_log2 < 20) {
    transfer_bytes_max_ = std::min(transfer_bytes_max_, page_bytes_min << transfer_log2);
  }
  optionals_ = nvme::field<uint16_t>(answer, nvme::kOptionals);
  has_write_cache_ = (nvme::field<uint8_t>(answer, nvme::kWriteCache) & 1) != 0;
}

NvmeProblem NvmeIdentity::know_namespace(uint32_t index, Look look,
                                         const std::byte* answer) noexcept {
  BP_DCHECK(index < space_count_);
  NvmeNamespace& space = spaces_[index];
  const auto block_count = nvme::field<uint64_t>(answer, nvme::kBlockCount);
  if (block_count == 0) return NvmeProblem::kMissingNamespace;
  const auto format_byte = nvme::field<uint8_t>(answer, nvme::kFormat);
  const uint32_t format = (format_byte & 0xfU) | (format_byte >> 1 & 0x30U);
  const size_t at = nvme::kFormats + size_t{4} * format;
  const auto block_log2 = nvme::field<uint8_t>(answer, at + 2);
  if (nvme::field<uint16_t>(answer, at) != 0) return NvmeProblem::kMetadata;
  if (block_log2 < kBlockLog2Min || block_log2 > kBlockLog2Max) return NvmeProblem::kBlockBytes;
  const uint64_t known_count = space.block_count.load(std::memory_order_relaxed);
  if (look != Look::kFirst && (space.block_log2 != block_log2 || block_count < known_count)) {
    return NvmeProblem::kOtherFormat;
  }
  space.block_count.store(block_count, std::memory_order_relaxed);
  if (look == Look::kGrowth) return NvmeProblem::kNone;
  const uint64_t blocks = std::min(transfer_bytes_max_ >> block_log2, nvme::kBlocksPerCommandMax);
  if (look == Look::kRestart) {
    return blocks < space.transfer_blocks_max ? NvmeProblem::kOtherFormat : NvmeProblem::kNone;
  }
  space.block_log2 = block_log2;
  space.transfer_blocks_max = static_cast<uint32_t>(blocks);
  // The specification exempts Write Zeroes from the transfer limit, but some controllers apply the
  // limit to it. So the driver keeps Write Zeroes within the limit, too.
  space.zero_blocks_max = (optionals_ & nvme::kHasWriteZeroes) != 0 ? space.transfer_blocks_max : 0;
  space.can_deallocate = (optionals_ & nvme::kHasDeallocate) != 0;
  return NvmeProblem::kNone;
}

}  // namespace bedplate
