#include "transport/dpdk/port/xdp_sockets.h"

#include <cstdio>
#include <cstring>

#include <net/if.h>

namespace {

struct MadeSocket {
  char interface[IFNAMSIZ] = {};
  uint32_t queue = 0;
  int fd = -1;
};
constexpr uint32_t kMadeMax = 16 * 32;  // ports with queues

MadeSocket made[kMadeMax];  // written before the seal
uint32_t made_count = 0;

}  // namespace

namespace bedplate {

int xdp_socket_of(const std::string& interface, uint16_t queue) noexcept {
  for (uint32_t i = made_count; i-- > 0;) {
    if (made[i].queue == queue && interface == made[i].interface) return made[i].fd;
  }
  return -1;
}

}  // namespace bedplate

// libxdp's functions, declared here so that a program with ports does not need its headers. They
// are linked in exactly if the driver is.
extern "C" {

struct xsk_socket;
struct xsk_umem;

[[gnu::weak]] int xsk_socket__fd(const xsk_socket* socket);
[[gnu::weak]] int __real_xsk_socket__create(xsk_socket** socket, const char* interface,
                                            uint32_t queue, xsk_umem* memory, void* receive,
                                            void* send, const void* config);

int __wrap_xsk_socket__create(xsk_socket** socket, const char* interface, uint32_t queue,
                              xsk_umem* memory, void* receive, void* send, const void* config) {
  const int outcome =
      __real_xsk_socket__create(socket, interface, queue, memory, receive, send, config);
  if (outcome != 0 || made_count == kMadeMax) return outcome;
  MadeSocket& one = made[made_count++];
  std::snprintf(one.interface, sizeof one.interface, "%s", interface);
  one.queue = queue;
  one.fd = xsk_socket__fd(*socket);
  return outcome;
}

}  // extern "C"
