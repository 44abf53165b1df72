// The endpoints of a provider with requests to post in the next poll.
//
// An endpoint knows whether it is in the list (VerbsEndpoint::is_dirty), so no send searches the
// list. A part of VerbsProvider. Threads: the shard's.
//
// Invariants: 1. It holds no more endpoints than it was made for. 2. It holds each one once.
// (is_valid)
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "platform/assert.h"

namespace bedplate {

class VerbsEndpoint;

class DirtyList {
 public:
  // Before the seal: it allocates. Called once.
  void create(uint32_t count_max) {
    BP_ASSERT(endpoints_.empty());
    endpoints_.resize(count_max);
  }

  // Requires: the endpoint is not in the list.
  void add(VerbsEndpoint& endpoint) noexcept {
    BP_DCHECK(count_ < endpoints_.size());
    BP_DCHECK_SLOW(!holds(endpoint));
    endpoints_[count_++] = &endpoint;
  }

  // Calls `post(endpoint)` for each endpoint, also for those added meanwhile. The list is empty
  // afterwards.
  template <typename Post>
  void post_all(Post post) noexcept {
    BP_DCHECK_SLOW(is_valid());
    for (uint32_t i = 0; i < count_; ++i) post(*endpoints_[i]);
    count_ = 0;
  }

  // All endpoints, in the order of add().
  std::span<VerbsEndpoint* const> all() const noexcept { return {endpoints_.data(), count_}; }

  bool holds(const VerbsEndpoint& endpoint) const noexcept {
    const std::span<VerbsEndpoint* const> there = all();
    return std::find(there.begin(), there.end(), &endpoint) != there.end();
  }

  // Cost: a look at each pair of endpoints.
  bool is_valid() const noexcept {
    if (count_ > endpoints_.size()) return false;
    const std::span<VerbsEndpoint* const> there = all();
    return std::all_of(there.begin(), there.end(), [&](const VerbsEndpoint* endpoint) {
      return std::count(there.begin(), there.end(), endpoint) == 1;
    });
  }

 private:
  std::vector<VerbsEndpoint*> endpoints_;
  uint32_t count_ = 0;
};

}  // namespace bedplate
