// The part of `bedplate perf` that needs an RDMA device: it is in libbedplate-verbs.a, and a
// program may be linked without that.
#pragma once

#include "apps/perf/perf_side.h"
#include "apps/perf/register_cost.h"

namespace bedplate {

struct PerfVerbsPart {
  Result<std::unique_ptr<PerfSide>> (*open_side)(const PerfSideOptions& options);
  Result<RegisterCosts> (*measure_register_cost)(const RegisterCostOptions& options);
};

// Errors (kConfiguration): it is not linked in.
Result<const PerfVerbsPart*> perf_verbs_part() noexcept;

}  // namespace bedplate
