// The C interface to the appliance's RDMA device: implements functions of bedplate.h with
// JoinedVerbs.
#include <new>

#include "apps/c_interface/bedplate.h"
#include "apps/c_interface/messages_c.h"
#include "transport/verbs/joined/joined_verbs.h"

using namespace bedplate;

namespace {

// Lives until the process ends, like the memory that it maps.
constinit JoinedVerbs* the_verbs = nullptr;

Result<void> open_verbs(JoinedProcess& process) {
  the_verbs = new (std::nothrow) JoinedVerbs();
  if (the_verbs != nullptr) return the_verbs->open(process);
  return error_while("opening the appliance's RDMA device as %s", process.name().text)
      .set_answer("the heap is exhausted")
      .set_cure("give the process more heap");
}

}  // namespace

extern "C" {

void bp_use_verbs(void) { c_before_ready = &open_verbs; }

struct ibv_pd* bp_verbs_domain(void) {
  return the_verbs->device().domain();
}

unsigned bp_verbs_port(void) { return the_verbs->device().port().port; }

size_t bp_verbs_key(const void* memory, size_t bytes, uint32_t* key) {
  const KeyedRange found = the_verbs->keys().key(memory, bytes);
  if (found.key == kNoKey) return 0;
  *key = VerbsDevice::local_key(found.key);
  return found.bytes;
}

}  // extern "C"
