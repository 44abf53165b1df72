/* UCX's lower level, uct, over its shared-memory transport posix.
 *
 * latency, rate16: active messages, short while they fit, else bcopy whose pack callback writes
 * the payload straight into the FIFO. rate16: 16 endpoints of one interface. read_large: a put, a
 * fence and a put of the flag that the receiver polls. bandwidth: puts.
 */
#define _GNU_SOURCE
#include "peer.h"

#include <ucs/async/async_fwd.h>
#include <uct/api/uct.h>

enum { kAmId = 0, kRegionSpareBytes = 4096 };

struct address {
  char device[64], iface[64], rkey[256];
  uint64_t region;
};

static uct_worker_h worker;
static uct_component_h component;
static uct_md_h md;
static uct_iface_h iface;
static uct_iface_attr_t attributes;
static uct_ep_h endpoints[kConnections];
static uct_allocated_memory_t region; /* the flag, and a page later what the peer puts */
static uct_rkey_bundle_t rkey;
static uint64_t remote;
static uint64_t *buffer;
static uint64_t received; /* messages */
static int is_short;

static void check(ucs_status_t status, const char *doing) {
  if (status != UCS_OK) fail(doing, ucs_status_string(status));
}

static ucs_status_t handle(void *of, void *data, size_t bytes, unsigned flags) {
  (void)bytes, (void)flags;
  read_words(of, data);
  ++received;
  return UCS_OK;
}

struct packed {
  struct run *run;
  uint64_t number;
};

static size_t pack(void *to, void *of) {
  const struct packed *message = of;
  write_words(to, message->run->words, message->number);
  return message->run->bytes;
}

ALWAYS_INLINE int try_send(struct run *run, uint64_t number, uct_ep_h endpoint) {
  if (is_short) {
    write_words(buffer, run->words, number);
    return uct_ep_am_short(endpoint, kAmId, buffer[0], buffer + 1,
                           (unsigned)(run->bytes - sizeof *buffer)) == UCS_OK;
  }
  struct packed message = {run, number};
  return uct_ep_am_bcopy(endpoint, kAmId, pack, &message, 0) >= 0;
}

static void send_message(struct run *run, uint64_t number) {
  while (!try_send(run, number, endpoints[0])) uct_worker_progress(worker);
}

static void receive_message(struct run *run, uint64_t number) {
  (void)run;
  while (received != number) uct_worker_progress(worker);
}

static uint64_t offer(struct run *run, uint64_t first, uint64_t count) {
  (void)count;
  if (try_send(run, first, endpoints[first % kConnections])) return 1;
  uct_worker_progress(worker);
  return 0;
}

/* Also counts messages that came while this side still waited for the other to be ready. */
static uint64_t handle_ready(struct run *run) {
  static uint64_t counted;
  const uint64_t before = counted;
  (void)run;
  uct_worker_progress(worker);
  counted = received;
  return counted - before;
}

static void put(struct run *run, uint64_t number) {
  write_words(buffer, run->words, number);
  check(uct_ep_put_short(endpoints[0], buffer, (unsigned)run->bytes, remote + kRegionSpareBytes,
                         rkey.rkey),
        "putting");
}

static void flush(void) { check(uct_iface_flush(iface, 0, NULL), "flushing"); }

static void put_and_flag(struct run *run, uint64_t number) {
  put(run, number);
  check(uct_ep_fence(endpoints[0], 0), "fencing");
  check(uct_ep_put_short(endpoints[0], &number, sizeof number, remote, rkey.rkey), "putting");
}

static void await_flag(struct run *run, uint64_t number) {
  const uint64_t *flag = region.address;
  while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != number) {
  }
  read_words(run, (const char *)region.address + kRegionSpareBytes);
}

static void find_component(void) {
  uct_component_h *all;
  unsigned count;
  check(uct_query_components(&all, &count), "listing UCX's components");
  for (unsigned i = 0; i < count; ++i) {
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
    check(uct_component_query(all[i], &attr), "asking a component of UCX for its name");
    if (strcmp(attr.name, "posix") == 0) component = all[i];
  }
  uct_release_component_list(all);
  if (component == NULL) fail("looking for UCX's posix", "not found; install all of libucx0");
}

static void open_interface(struct run *run) {
  ucs_async_context_t *async;
  uct_md_config_t *md_config;
  uct_iface_config_t *config;
  uct_iface_params_t params = {
      .field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE,
      .open_mode = UCT_IFACE_OPEN_MODE_DEVICE,
      .mode.device = {.tl_name = "posix", .dev_name = "memory"}};
  check(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async), "creating a context");
  check(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker), "creating a worker");
  find_component();
  check(uct_md_config_read(component, NULL, NULL, &md_config), "reading the configuration");
  check(uct_md_open(component, "posix", md_config, &md), "opening posix");
  uct_config_release(md_config);
  check(uct_md_iface_config_read(md, "posix", NULL, NULL, &config), "reading the configuration");
  check(uct_iface_open(md, worker, &params, config, &iface), "opening the interface");
  uct_config_release(config);
  uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
  check(uct_iface_query(iface, &attributes), "asking for the interface's limits");
  check(uct_iface_set_am_handler(iface, kAmId, handle, run, 0), "setting the handler");
  is_short = run->bytes <= attributes.cap.am.max_short;
}

static void make_region(size_t bytes) {
  const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
  const uct_mem_alloc_params_t params = {
      .field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MDS,
      .flags = UCT_MD_MEM_ACCESS_ALL,
      .mds = {.mds = &md, .count = 1}};
  check(uct_mem_alloc(bytes, &method, 1, &params, &region), "allocating shared memory");
  memset(region.address, 0, bytes);
}

static void connect_sides(struct run *run) {
  struct address mine = {.region = (uint64_t)region.address}, theirs;
  check(uct_iface_get_device_address(iface, (void *)mine.device), "asking for the address");
  check(uct_iface_get_address(iface, (void *)mine.iface), "asking for the address");
  check(uct_md_mkey_pack(md, region.memh, mine.rkey), "packing the key");
  exchange(run, &mine, &theirs, sizeof mine);
  remote = theirs.region;
  check(uct_rkey_unpack(component, theirs.rkey, &rkey), "unpacking the key");
  for (int i = 0; i < kConnections; ++i) {
    const uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE |
                                                  UCT_EP_PARAM_FIELD_DEV_ADDR |
                                                  UCT_EP_PARAM_FIELD_IFACE_ADDR,
                                    .iface = iface,
                                    .dev_addr = (void *)theirs.device,
                                    .iface_addr = (void *)theirs.iface};
    check(uct_ep_create(&params, &endpoints[i]), "connecting");
  }
  meet(run);
}

int main(int argc, char **argv) {
  struct run run = start_pair(argc, argv);
  buffer = private_memory(run.bytes);
  open_interface(&run);
  make_region(run.bytes + kRegionSpareBytes);
  connect_sides(&run);
  if (is_kind(&run, "latency") && run.bytes <= attributes.cap.am.max_bcopy) {
    ping_pong(&run, send_message, receive_message);
  } else if (is_kind(&run, "read_large")) {
    ping_pong(&run, put_and_flag, await_flag);
  } else if (is_kind(&run, "rate16") && run.bytes <= attributes.cap.am.max_bcopy) {
    if (run.side == 1) send_stream(&run, offer);
    else receive_stream(&run, handle_ready);
  } else if (is_kind(&run, "bandwidth")) {
    if (run.side == 0) put_stream(&run, put, flush);
    meet(&run);
    if (run.side == 1) check_last_put(&run, (char *)region.address + kRegionSpareBytes);
  } else {
    unknown_kind(&run);
  }
  meet(&run);
  for (int i = 0; i < kConnections; ++i) uct_ep_destroy(endpoints[i]);
  uct_rkey_release(component, &rkey);
  meet(&run);
  uct_mem_free(&region);
  uct_iface_close(iface);
  return finish(&run);
}
