// The identity of a controller and of its namespaces, as the controller tells it: how they are
// formatted, how large they are, and what one command can do.
//
// Shards look at a namespace while the controller starts anew. So, once it was known, only its
// number of blocks changes, and it only grows; a controller that says anything else is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "platform/assert.h"
#include "transport/nvme/nvme_io_datapath.h"
#include "transport/nvme/nvme_problem.h"

namespace bedplate {

// Threads: the controller's, but for the namespaces, which any may read.
class NvmeIdentity {
 public:
  // When a namespace is looked at.
  enum class Look : uint8_t {
    kFirst,    // in the first start, until the controller was ready
    kRestart,  // in a start after that
    kGrowth    // while the controller is ready
  };

  // The numbers of the namespaces that are used. Before the seal: it allocates.
  void create(std::span<const uint32_t> namespaces);

  // Takes an answer to Identify Controller. `page_bytes_min`: the controller's smallest page.
  void know_controller(const std::byte* answer, uint64_t page_bytes_min) noexcept;
  // Takes an answer to Identify Namespace. Returns why it cannot be used, or kNone.
  NvmeProblem know_namespace(uint32_t index, Look look, const std::byte* answer) noexcept;

  bool has_write_cache() const noexcept { return has_write_cache_; }
  uint32_t space_count() const noexcept { return space_count_; }
  // In the order of create().
  const NvmeNamespace& space(size_t index) const noexcept {
    BP_DCHECK(index < space_count_);
    return spaces_[index];
  }

 private:
  std::unique_ptr<NvmeNamespace[]> spaces_;
  uint32_t space_count_ = 0;
  uint64_t transfer_bytes_max_ = 0;
  uint16_t optionals_ = 0;
  bool has_write_cache_ = false;
};

}  // namespace bedplate
