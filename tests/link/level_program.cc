// Prints the support level of this program's malloc, the failure of its proof, and its provider.
#include <cstdio>

#include "alloc/support_level.h"

using namespace bedplate;

int main() {
  const SupportProof proof = prove_support_level();
  char provider[64];
  std::printf("level: %s\n", to_text(proof.level));
  std::printf("failure: %s: %s\n",
              proof.failed_allocator != nullptr ? proof.failed_allocator : "none",
              proof.failure != nullptr ? proof.failure : "none");
  std::printf("provider: %s\n", malloc_provider(provider, sizeof provider));
}
