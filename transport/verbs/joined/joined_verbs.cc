#include "transport/verbs/joined/joined_verbs.h"

namespace bedplate {

Result<void> JoinedVerbs::open(const JoinedProcess& process, uint32_t export_count_max) {
  return open(process.terms(), process.name().text, process_pool(), export_count_max);
}

Result<void> JoinedVerbs::open(const ProcessTerms& terms, const char* name, PinnedPool& pool,
                               uint32_t export_count_max) {
  BP_ASSERT(!device_ && !pool.is_sealed());
  BP_DCHECK(name != nullptr);
  Error error = error_while("opening the appliance's RDMA device as %s", name);
  if (terms.verbs == ProcessTerms::Verbs::kNotPlanned) {
    return error.set_answer("this process is not planned to use one")
        .set_cure("set verbs = true in its [[process]] of the owner's configuration");
  }
  if (terms.verbs == ProcessTerms::Verbs::kNoDevice) {
    return error.set_answer("the appliance has none, and requires none")
        .set_cure("see the owner's log for why, or do without");
  }
  auto opened = VerbsDevice::open(
      {.device = terms.device, .port = terms.port, .export_count_max = export_count_max});
  if (!opened.ok()) return opened.error();
  device_ = opened.take();
  BP_TRY(keys_.create(pool, *device_));
  BP_DCHECK_SLOW(is_valid());
  return {};
}

}  // namespace bedplate
