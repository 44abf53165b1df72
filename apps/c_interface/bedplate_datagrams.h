/* Datagrams of services in C, a part of bedplate_service.h, which includes this file
 * (docs/services.md; transport/sockets/datagram_socket.h, whose rules hold here). Threads: the
 * socket's shard; create may also call bp_datagram_open and bp_datagram_join. */
#ifndef BEDPLATE_DATAGRAMS_H
#define BEDPLATE_DATAGRAMS_H

#include "bedplate_service.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bp_datagram_socket bp_datagram_socket;

/* A datagram socket called `name`, for bp_datagram_create: in plan. `buffer_count` buffers (1 to
 * 1048576) hold received and kept datagrams; `buffer_bytes` is the size of each, a multiple of 64
 * up to 65536. */
void bp_plan_datagram_socket(bp_plan* plan, unsigned shard, const char* name, unsigned buffer_count,
                             unsigned buffer_bytes);
/* The datagram socket that was planned as `name`, not open yet: in create. It can be taken once,
 * and lives as long as the appliance. Errors: NULL: it is not planned, or was handed out before. */
bp_datagram_socket* bp_datagram_create(bp_context* context, const char* name);

typedef struct bp_ip {
  int family;              /* AF_INET or AF_INET6; 0: none */
  unsigned char bytes[16]; /* in network order; IPv4: the first four, the others are 0 */
} bp_ip;
typedef struct bp_datagram_address {
  bp_ip ip;
  uint16_t port;            /* as a number, not in network order */
  uint32_t interface_index; /* of a link-local address (fe80::...); else 0 */
} bp_datagram_address;
/* Reads "192.0.2.1:5004" or "[2001:db8::1]:5004". With port 0 the system chooses the port. Takes
 * numeric addresses only. Returns 0. Errors: -1: `text` is no such address. Threads: any. */
int bp_datagram_address_of(const char* text, bp_datagram_address* address);

/* A datagram. `received` may use it until it returns, or, if it is kept, until
 * bp_datagram_release. */
typedef struct bp_received {
  void* bytes;
  uint32_t byte_count;
  uint32_t segment_bytes; /* of each joined datagram, the last may have fewer; 0: a single one */
  bp_datagram_address from;
  bp_ip to;
  uint64_t received_ns;       /* since 1970; 0: unknown */
  unsigned char ecn;          /* the two bits of RFC 3168 */
  unsigned char is_truncated; /* it did not fit the buffer: the rest is lost */
  unsigned char is_kept;      /* set to 1: the bytes stay until bp_datagram_release */
} bp_received;
typedef struct bp_outgoing {
  const void* bytes;
  uint32_t byte_count;
  uint32_t segment_bytes; /* it is cut into datagrams of this size; 0: it is one datagram */
  bp_datagram_address to; /* none: the peer */
  bp_ip from;             /* none: the system chooses */
  unsigned char ecn;
} bp_outgoing;

/* Zeroed except for the wanted options; only bp_datagram_open reads it. */
typedef struct bp_datagram_options {
  bp_datagram_address local;    /* to bind to; 0.0.0.0 or [::]: all addresses of that family */
  bp_datagram_address peer;     /* none: not connected */
  uint32_t receive_queue_bytes; /* 0: the system's default */
  uint32_t send_queue_bytes;    /* the same */
  int shares_port;
  int joins_received;              /* requires buffers of 65536 bytes */
  unsigned service_class;          /* 0..63 */
  const char* multicast_interface; /* NULL: as the routes say */
  unsigned multicast_hops;         /* 0 means 1; more than 255 means 255 */
  int hides_own_multicast;         /* this machine does not receive its own multicast */
  int sends_broadcast;             /* else sending to a broadcast address is refused (EACCES) */
  /* Called from the loop, never from within a function here. All but `received` may be NULL.
   * has_room is called once after EAGAIN, when there is space again. failed reports that an earlier
   * datagram did not arrive (ECONNREFUSED, EHOSTUNREACH, EMSGSIZE); `to` may be none. */
  void (*received)(void* self, bp_received* datagrams, size_t count);
  void (*has_room)(void* self);
  void (*failed)(void* self, int error_number, const bp_datagram_address* to);
  void* self;
} bp_datagram_options;
/* Opens and binds. Returns 0. Errors: -1. Requires: it is not open. */
int bp_datagram_open(bp_datagram_socket* socket, const bp_datagram_options* options);
/* Starts receiving; datagrams that have arrived since the open are received, too. Returns 0 or an
 * errno value. Requires: it is open, and was not started. */
int bp_datagram_start(bp_datagram_socket* socket);
/* Closes it: no callback is called any more. It may be opened again; kept datagrams stay valid
 * until the next open. Does nothing if it is not open. */
void bp_datagram_close(bp_datagram_socket* socket);
/* The bound address, with the port that the system chose; none if it is not open. */
bp_datagram_address bp_datagram_local(const bp_datagram_socket* socket);
/* Receives datagrams to the multicast group over `interface`, only from `source` unless it is NULL;
 * `interface` may be NULL, too. A leave ends only the join with the same three arguments. Returns
 * 0. Errors: -1. Requires: it is open. */
int bp_datagram_join(bp_datagram_socket* socket, const bp_ip* group, const bp_ip* source,
                     const char* interface);
int bp_datagram_leave(bp_datagram_socket* socket, const bp_ip* group, const bp_ip* source,
                      const char* interface);
/* After an interface has gone and come back: leaves `group` on the interface with the number
 * `left_index` (0: nowhere), and joins it on `index` (0: nowhere). `source` as in the join. Returns
 * 0 or an errno value: then it is joined nowhere. Sends multicast over that interface from now on.
 * Requires, of both: it is open. */
int bp_datagram_rejoin(bp_datagram_socket* socket, const bp_ip* group, const bp_ip* source,
                       uint32_t left_index, uint32_t index);
int bp_datagram_send_multicast_over(bp_datagram_socket* socket, uint32_t index);
/* Sends in order; *sent_count (may be NULL) becomes the number of datagrams that were sent whole.
 * Returns 0 if all were sent; EAGAIN if the queue is full, and has_room will be called; another
 * errno value if the next datagram cannot be sent. If only a part of a segmented datagram was sent,
 * that part is removed from its front. Requires: it is open, and was started. */
int bp_datagram_send(bp_datagram_socket* socket, bp_outgoing* datagrams, size_t count,
                     size_t* sent_count);
/* Gives back a kept datagram, by any address within it. Requires: it is kept. */
void bp_datagram_release(bp_datagram_socket* socket, const void* bytes);

#ifdef __cplusplus
}
#endif

#endif
