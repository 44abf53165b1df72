#include "apps/perf/perf_verbs.h"

// perf_verbs_side.cc defines it; a program with verbs asks for it (-Wl,-u; bedplate-verbs.pc).
extern "C" [[gnu::weak]] const bedplate::PerfVerbsPart bedplate_perf_verbs_part;

namespace bedplate {

Result<const PerfVerbsPart*> perf_verbs_part() noexcept {
  if (&bedplate_perf_verbs_part != nullptr) return &bedplate_perf_verbs_part;
  return configuration_error_while("measuring an RDMA device")
      .set_answer("this program has no verbs linked in")
      .set_cure("link it with bedplate-verbs (pkg-config; CMake: Bedplate::verbs), or "
                "measure shared memory, unix:PATH");
}

}  // namespace bedplate
