/* Asks for the tenth shard, of one. */
#include "bedplate_service.h"

static int create(void* self, bp_context* context) {
  (void)self;
  bp_loop_of(context, 9);
  return 0;
}

const bp_service loop_of_no_shard_in_c = {.name = "cache", .create = create};
