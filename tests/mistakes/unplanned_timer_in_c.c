/* Arms a timer, and has planned none. */
#include "bedplate_service.h"

static bp_loop* loop;
static bp_timer timer;

static void expired(void* context) { (void)context; }

static int create(void* self, bp_context* context) {
  (void)self;
  loop = bp_loop_of(context, 0);
  return 0;
}

static void start(void* self, unsigned shard) {
  (void)self, (void)shard;
  timer.expired = expired;
  bp_timer_arm(loop, &timer, 0);
}

const bp_service unplanned_timer_in_c = {.name = "cache", .create = create, .start = start};
