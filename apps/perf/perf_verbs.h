// The part of `bedplate perf` that needs an RDMA device. It is in libbedplate-verbs.a; a program
// may be linked without it.
#pragma once

#include "apps/perf/perf_side.h"
#include "apps/perf/register_cost.h"

namespace bedplate {

struct PerfVerbsPart {
  Result<std::unique_ptr<PerfSide>> (*open_side)(const PerfSideOptions& options);
  Result<RegisterCosts> (*measure_register_cost)(const RegisterCostOptions& options);
};

// Errors (kConfiguration): the program has no such part.
Result<const PerfVerbsPart*> perf_verbs_part() noexcept;

}  // namespace bedplate
