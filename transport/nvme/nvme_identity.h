// The identity of a controller and of its namespaces, as the controller reports it: formats, sizes,
// and the limits of a command.
//
// Shards read a namespace even while the controller restarts. So once the controller was ready,
// only a namespace's block count changes, and only grows. A restart fails if the controller reports
// another block size, fewer blocks or shorter transfers; while it is ready, such a report is
// ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "platform/assert.h"
#include "transport/nvme/nvme_io_datapath.h"
#include "transport/nvme/nvme_problem.h"

namespace bedplate {

// Threads: the controller's; any thread may read the namespaces.
class NvmeIdentity {
 public:
  // The occasion of a look at a namespace.
  enum class Look : uint8_t {
    kFirst,    // in a start, before the controller was ever ready
    kRestart,  // in a later start
    kGrowth    // while the controller is ready
  };

  // `namespaces`: the numbers of those in use. Before the seal: it allocates.
  void create(std::span<const uint32_t> namespaces);

  // Takes an answer to Identify Controller. The namespaces' limits follow from it, so it comes
  // before theirs. `page_bytes_min`: the controller's smallest page.
  void know_controller(const std::byte* answer, uint64_t page_bytes_min) noexcept;
  // Takes an answer to Identify Namespace. Returns why the namespace cannot be used, or kNone.
  NvmeProblem know_namespace(uint32_t index, Look look, const std::byte* answer) noexcept;

  bool has_write_cache() const noexcept { return has_write_cache_; }
  uint32_t space_count() const noexcept { return space_count_; }
  // The namespaces in the order of create(). Their numbers are valid once the controller was ready.
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
