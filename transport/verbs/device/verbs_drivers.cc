// The RDMA drivers of a static program. rdma-core finds only the drivers that the program names to
// it, from a list that is compiled in (RDMA_STATIC_PROVIDERS; scripts/mk/flags.mk has it).
//
// A unit of its own, because a dynamic program can neither link it nor needs it. A static program
// links it with -Wl,-u,bedplate_static_drivers.
#include <infiniband/verbs.h>

#define BP_TEXT(...) #__VA_ARGS__
#define BP_EXPANDED_TEXT(...) BP_TEXT(__VA_ARGS__)

extern "C" const char* bedplate_static_drivers() noexcept;

const char* bedplate_static_drivers() noexcept {
  ibv_static_providers(nullptr, _RDMA_STATIC_PREFIX(RDMA_STATIC_PROVIDERS), nullptr);
  return BP_EXPANDED_TEXT(RDMA_STATIC_PROVIDERS);
}
