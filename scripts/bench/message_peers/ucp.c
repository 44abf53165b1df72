/* UCX's upper level, ucp; the environment selects the transport (UCX_TLS).
 *
 * latency, cma: tagged messages. read_large: VARIANT tag, or put: a put, a fence and a put of the
 * flag that the receiver polls. bandwidth: puts. rate16: active messages, which need no matching,
 * on 16 endpoints of one worker.
 */
#define _GNU_SOURCE
#include "peer.h"

#include <ucp/api/ucp.h>

enum { kAmId = 0, kRegionSpareBytes = 4096, kTag = 1 };

struct address {
  uint64_t region;
  size_t worker_bytes, rkey_bytes;
  char worker[480], rkey[256];
};

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h endpoints[kConnections];
static ucp_mem_h region_handle;
static char *region; /* the flag, and a page later what the peer puts */
static ucp_rkey_h rkeys[kConnections];
static uint64_t remote;
static uint64_t *buffer;
static uint64_t received; /* messages */
static const ucp_request_param_t kPlain;

static void check(ucs_status_t status, const char *doing) {
  if (status != UCS_OK) fail(doing, ucs_status_string(status));
}

/* Drives the worker until the request is done. */
ALWAYS_INLINE void complete(ucs_status_ptr_t request, const char *doing) {
  if (request == NULL) return; /* it was done at once */
  if (UCS_PTR_IS_ERR(request)) fail(doing, ucs_status_string(UCS_PTR_STATUS(request)));
  while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker);
  check(ucp_request_check_status(request), doing);
  ucp_request_free(request);
}

static void send_tag(struct run *run, uint64_t number) {
  write_words(buffer, run->words, number);
  complete(ucp_tag_send_nbx(endpoints[0], buffer, run->bytes, kTag, &kPlain), "sending");
}

/* Receives into another buffer than the send buffer, as the floor does. */
static void receive_tag(struct run *run, uint64_t number) {
  char *into = (char *)buffer + run->bytes;
  (void)number;
  complete(ucp_tag_recv_nbx(worker, into, run->bytes, kTag, ~(ucp_tag_t)0, &kPlain), "receiving");
  read_words(run, into);
}

static void put(struct run *run, uint64_t number) {
  write_words(buffer, run->words, number);
  complete(
      ucp_put_nbx(endpoints[0], buffer, run->bytes, remote + kRegionSpareBytes, rkeys[0], &kPlain),
      "putting");
}

static void flush(void) { complete(ucp_ep_flush_nbx(endpoints[0], &kPlain), "flushing"); }

static void put_and_flag(struct run *run, uint64_t number) {
  put(run, number);
  check(ucp_worker_fence(worker), "fencing");
  complete(ucp_put_nbx(endpoints[0], &number, sizeof number, remote, rkeys[0], &kPlain), "putting");
}

static void await_flag(struct run *run, uint64_t number) {
  const uint64_t *flag = (const uint64_t *)(void *)region;
  while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != number) ucp_worker_progress(worker);
  read_words(run, region + kRegionSpareBytes);
}

static ucs_status_t handle(void *of, const void *header, size_t header_bytes, void *data,
                           size_t bytes, const ucp_am_recv_param_t *param) {
  (void)header, (void)header_bytes, (void)bytes, (void)param;
  read_words(of, data);
  ++received;
  return UCS_OK;
}

static uint64_t offer(struct run *run, uint64_t first, uint64_t count) {
  (void)count;
  write_words(buffer, run->words, first);
  complete(
      ucp_am_send_nbx(endpoints[first % kConnections], kAmId, NULL, 0, buffer, run->bytes, &kPlain),
      "sending");
  return 1;
}

/* Also counts messages that came while this side still waited for the other to be ready. */
static uint64_t handle_ready(struct run *run) {
  static uint64_t counted;
  const uint64_t before = counted;
  (void)run;
  ucp_worker_progress(worker);
  counted = received;
  return counted - before;
}

static void open_worker(struct run *run) {
  const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                               .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AM};
  const ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                             .thread_mode = UCS_THREAD_MODE_SINGLE};
  const ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                        UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                        UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                          .id = kAmId,
                                          .cb = handle,
                                          .arg = run};
  ucp_config_t *config;
  check(ucp_config_read(NULL, NULL, &config), "reading the configuration");
  check(ucp_init(&params, config, &context), "initialising UCX");
  ucp_config_release(config);
  check(ucp_worker_create(context, &worker_params, &worker), "creating a worker");
  check(ucp_worker_set_am_recv_handler(worker, &handler), "setting the handler");
}

static void make_region(size_t bytes) {
  const ucp_mem_map_params_t params = {
      .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
      .length = bytes,
      .flags = UCP_MEM_MAP_ALLOCATE};
  ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
  check(ucp_mem_map(context, &params, &region_handle), "allocating shared memory");
  check(ucp_mem_query(region_handle, &attr), "asking for its address");
  region = attr.address;
  memset(region, 0, bytes);
}

static void connect_sides(struct run *run) {
  struct address mine = {.region = (uint64_t)region}, theirs;
  ucp_address_t *address;
  void *key;
  check(ucp_worker_get_address(worker, &address, &mine.worker_bytes), "asking for the address");
  check(ucp_rkey_pack(context, region_handle, &key, &mine.rkey_bytes), "packing the key");
  if (mine.worker_bytes > sizeof mine.worker || mine.rkey_bytes > sizeof mine.rkey) {
    fail("exchanging addresses", "they are longer than expected");
  }
  memcpy(mine.worker, address, mine.worker_bytes);
  memcpy(mine.rkey, key, mine.rkey_bytes);
  ucp_worker_release_address(worker, address);
  ucp_rkey_buffer_release(key);
  exchange(run, &mine, &theirs, sizeof mine);
  remote = theirs.region;
  for (int i = 0; i < kConnections; ++i) {
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                    .address = (const ucp_address_t *)theirs.worker};
    check(ucp_ep_create(worker, &params, &endpoints[i]), "connecting");
    check(ucp_ep_rkey_unpack(endpoints[i], theirs.rkey, &rkeys[i]), "unpacking the key");
    complete(ucp_ep_flush_nbx(endpoints[i], &kPlain), "connecting");
  }
}

/* The other side may need this side's progress meanwhile. */
static void meet_helping(struct run *run) {
  arrive(run);
  while (!has_other_arrived(run)) ucp_worker_progress(worker);
}

int main(int argc, char **argv) {
  struct run run = start_pair(argc, argv);
  const int is_put = strcmp(run.variant, "put") == 0;
  buffer = private_memory(2 * run.bytes);
  open_worker(&run);
  make_region(run.bytes + kRegionSpareBytes);
  connect_sides(&run);
  meet_helping(&run);
  if (is_kind(&run, "read_large") && is_put) {
    ping_pong(&run, put_and_flag, await_flag);
  } else if (is_kind(&run, "latency") || is_kind(&run, "read_large") || is_kind(&run, "cma")) {
    ping_pong(&run, send_tag, receive_tag);
  } else if (is_kind(&run, "rate16")) {
    if (run.side == 1) send_stream(&run, offer);
    else receive_stream(&run, handle_ready);
  } else if (is_kind(&run, "bandwidth")) {
    if (run.side == 0) put_stream(&run, put, flush);
    meet_helping(&run);
    if (run.side == 1) check_last_put(&run, region + kRegionSpareBytes);
  } else {
    unknown_kind(&run);
  }
  for (int i = 0; i < kConnections; ++i) ucp_rkey_destroy(rkeys[i]);
  meet_helping(&run);
  ucp_mem_unmap(context, region_handle);
  ucp_worker_destroy(worker);
  ucp_cleanup(context);
  return finish(&run);
}
