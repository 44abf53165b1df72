/* libfabric's provider shm: fi_inject while the message fits, else fi_send; the receive is posted
 * before the message comes. latency, read_large, cma (the environment selects CMA). VARIANT is the
 * prefix of its files in /dev/shm, so that files left by a killed run can be found.
 */
#define _GNU_SOURCE
#include "peer.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

enum { kNameMaxBytes = 128 };

static struct fid_ep *endpoint;
static struct fid_cq *sent, *arrived;
static fi_addr_t other;
static size_t inject_max_bytes;
static uint64_t *buffer;
static char *into; /* the receive buffer: another than the one that is sent from */

static void check(ssize_t result, const char *doing) {
  if (result < 0) fail(doing, fi_strerror((int)-result));
}

static void await(struct fid_cq *queue) {
  struct fi_cq_entry entry;
  ssize_t n;
  while ((n = fi_cq_read(queue, &entry, 1)) != 1) {
    if (n != -FI_EAGAIN) check(n, "polling for a completion");
  }
}

/* Polling either queue drives the provider. */
static void send_message(struct run *run, uint64_t number) {
  const int is_injected = run->bytes <= inject_max_bytes;
  ssize_t result;
  write_words(buffer, run->words, number);
  do {
    result = is_injected ? fi_inject(endpoint, buffer, run->bytes, other)
                         : fi_send(endpoint, buffer, run->bytes, NULL, other, NULL);
    if (result == -FI_EAGAIN) (void)fi_cq_read(sent, NULL, 0);
  } while (result == -FI_EAGAIN);
  check(result, "sending");
  if (!is_injected) await(sent);
}

static void post_receive(struct run *run) {
  check(fi_recv(endpoint, into, run->bytes, NULL, other, NULL), "posting a receive");
}

static void receive_message(struct run *run, uint64_t number) {
  await(arrived);
  read_words(run, into);
  if (number != total_operations(run)) post_receive(run);
}

static struct fid_cq *open_queue(struct fid_domain *domain, uint64_t direction) {
  struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE};
  struct fid_cq *queue;
  check(fi_cq_open(domain, &attr, &queue, NULL), "opening a completion queue");
  check(fi_ep_bind(endpoint, &queue->fid, direction), "binding a completion queue");
  return queue;
}

static struct fi_info *find_provider(const struct run *run) {
  struct fi_info *hints = fi_allocinfo(), *info;
  char name[kNameMaxBytes];
  hints->caps = FI_MSG;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR;
  hints->domain_attr->threading = FI_THREAD_DOMAIN; /* one thread: spares it its locks */
  hints->fabric_attr->prov_name = strdup("shm");
  if (run->variant[0] != '\0') {
    const int n = snprintf(name, sizeof name, "fi_shm://%s-%d", run->variant, run->side);
    hints->addr_format = FI_ADDR_STR;
    hints->src_addr = strdup(name);
    hints->src_addrlen = (size_t)n + 1;
  }
  check(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), "looking for shm");
  fi_freeinfo(hints);
  return info;
}

static void open_endpoint(struct run *run, struct fi_info *info) {
  struct fi_av_attr table = {.type = FI_AV_TABLE, .count = 2};
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_av *addresses;
  char mine[kNameMaxBytes] = "", theirs[kNameMaxBytes];
  size_t name_bytes = sizeof mine;
  check(fi_fabric(info->fabric_attr, &fabric, NULL), "opening the fabric");
  check(fi_domain(fabric, info, &domain, NULL), "opening the domain");
  check(fi_endpoint(domain, info, &endpoint, NULL), "opening an endpoint");
  check(fi_av_open(domain, &table, &addresses, NULL), "opening an address table");
  check(fi_ep_bind(endpoint, &addresses->fid, 0), "binding the address table");
  sent = open_queue(domain, FI_TRANSMIT);
  arrived = open_queue(domain, FI_RECV);
  check(fi_enable(endpoint), "enabling the endpoint");
  check(fi_getname(&endpoint->fid, mine, &name_bytes), "asking for the address");
  exchange(run, mine, theirs, sizeof mine);
  if (fi_av_insert(addresses, theirs, 1, &other, 0, NULL) != 1) fail("connecting", "refused");
  inject_max_bytes = info->tx_attr->inject_size;
}

int main(int argc, char **argv) {
  struct run run = start_pair(argc, argv);
  if (!is_kind(&run, "latency") && !is_kind(&run, "read_large") && !is_kind(&run, "cma")) {
    unknown_kind(&run);
  }
  buffer = private_memory(2 * run.bytes);
  into = (char *)buffer + run.bytes;
  open_endpoint(&run, find_provider(&run));
  post_receive(&run);
  meet(&run);
  ping_pong(&run, send_message, receive_message);
  /* The last message's sender may wait for its completion, which needs both sides to poll. */
  arrive(&run);
  while (!has_other_arrived(&run)) (void)fi_cq_read(arrived, NULL, 0);
  check(fi_close(&endpoint->fid), "closing the endpoint"); /* takes its file out of /dev/shm */
  return finish(&run);
}
