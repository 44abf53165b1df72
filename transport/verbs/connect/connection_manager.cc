#include "transport/verbs/connect/connection_manager.h"

#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "platform/file.h"

namespace bedplate {
namespace {

constexpr int kResolveMs = 2000;
constexpr int kBacklog = 64;
constexpr uint8_t kRetryCount = 7;
constexpr int kRejectedByPeer = 28;  // by the peer itself, not by its kernel (IBA 12.6.7.2)

static_assert(sizeof(CmHello) == 56);           // the capacity of a request of RDMA_PS_TCP
static_assert(sizeof(HandshakeRecord) <= 148);  // the least capacity, of a rejection (IBA 12.6.7)

Error not_opened(const char* doing) noexcept {
  return error_from_errno("%s", doing)
      .set_cure(
          "load the kernel's module rdma_ucm (modprobe rdma_ucm), or set connect = \"socket\"");
}

sockaddr_storage to_kernel(const SocketAddress& address) noexcept {
  sockaddr_storage kernel = {};
  auto* tcp4 = reinterpret_cast<sockaddr_in*>(&kernel);
  auto* tcp6 = reinterpret_cast<sockaddr_in6*>(&kernel);
  if (address.kind == SocketAddress::Kind::kTcp4) {
    tcp4->sin_family = AF_INET;
    tcp4->sin_port = htons(address.port);
    inet_pton(AF_INET, address.host.c_str(), &tcp4->sin_addr);
  } else {
    tcp6->sin6_family = AF_INET6;
    tcp6->sin6_port = htons(address.port);
    inet_pton(AF_INET6, address.host.c_str(), &tcp6->sin6_addr);
  }
  return kernel;
}

// Finds the IP address of the device's port: calls leave by this port. Returns false if it has
// none.
bool source_of(const VerbsPort& port, sockaddr_storage* source) noexcept {
  if (!port.is_ethernet || !port.has_gid) return false;
  *source = {};
  in6_addr address;
  std::memcpy(&address, port.gid.raw, sizeof address);
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    auto* tcp4 = reinterpret_cast<sockaddr_in*>(source);
    tcp4->sin_family = AF_INET;
    std::memcpy(&tcp4->sin_addr, port.gid.raw + 12, sizeof tcp4->sin_addr);
    return true;
  }
  return false;  // an IPv6 address may need a scope, which only the kernel knows
}

rdma_conn_param parameters(const HandshakeRecord& record, const void* data, size_t bytes) noexcept {
  rdma_conn_param parameter = {};
  parameter.private_data = data;
  parameter.private_data_len = static_cast<uint8_t>(bytes);
  parameter.responder_resources = record.reads_max;
  parameter.initiator_depth = record.reads_max;
  parameter.retry_count = kRetryCount;
  parameter.rnr_retry_count = kRetryCount;
  parameter.qp_num = record.queue_pair;
  return parameter;
}

}  // namespace

ConnectionManager::~ConnectionManager() {
  BP_DCHECK(call_count_ == 0);
  BP_DCHECK_SLOW(is_valid());
  if (listener_ != nullptr) rdma_destroy_id(listener_);
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

Result<void> ConnectionManager::open(const VerbsDevice& device,
                                     const SocketAddress* listen) noexcept {
  BP_ASSERT(!is_open() && call_count_ == 0);
  device_ = &device;
  int count = 0;
  ibv_context** contexts = rdma_get_devices(&count);
  channel_ = contexts == nullptr ? nullptr : rdma_create_event_channel();
  if (contexts != nullptr) rdma_free_devices(contexts);  // the devices stay open
  if (channel_ == nullptr) return not_opened("opening the RDMA connection manager");
  set_blocking(channel_->fd, false);
  if (listen == nullptr) return {};
  if (listen->kind == SocketAddress::Kind::kUnix) {
    return error_while("listening at unix:%s", listen->path.c_str())
        .set_answer("the RDMA connection manager supports IP addresses only")
        .set_cure("set a tcp: address, or connect = \"socket\"");
  }
  sockaddr_storage address = to_kernel(*listen);
  int is_shared = 1;
  if (rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) != 0) {
    return not_opened("opening the RDMA connection manager");
  }
  rdma_set_option(listener_, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &is_shared,
                  sizeof is_shared);
  if (rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&address)) != 0 ||
      rdma_listen(listener_, kBacklog) != 0) {
    return error_from_errno("listening at %s, port %u, by the RDMA connection manager",
                            listen->host.c_str(), listen->port)
        .set_cure("choose an address of the device's network interface, and a free port");
  }
  return {};
}

rdma_cm_id* ConnectionManager::dial(const SocketAddress& address) noexcept {
  if (address.kind == SocketAddress::Kind::kUnix) {
    errno = EAFNOSUPPORT;
    return nullptr;
  }
  BP_DCHECK(is_open());
  BP_KEEPS_VALID(*this);
  rdma_cm_id* call = nullptr;
  if (rdma_create_id(channel_, &call, nullptr, RDMA_PS_TCP) != 0) return nullptr;
  sockaddr_storage source;
  sockaddr_storage target = to_kernel(address);
  const bool has_source =
      source_of(device_->port(), &source) && source.ss_family == target.ss_family;
  if (rdma_resolve_addr(call, has_source ? reinterpret_cast<sockaddr*>(&source) : nullptr,
                        reinterpret_cast<sockaddr*>(&target), kResolveMs) == 0) {
    ++call_count_;
    return call;
  }
  const int error_number = errno;
  rdma_destroy_id(call);
  errno = error_number;
  return nullptr;
}

bool ConnectionManager::send(rdma_cm_id* call, const HandshakeRecord& record) noexcept {
  BP_DCHECK(is_open() && call != nullptr && call != listener_);
  switch (static_cast<HandshakeKind>(record.kind)) {
    case HandshakeKind::kHello: {
      const CmHello hello = shorten(record);
      rdma_conn_param parameter = parameters(record, &hello, sizeof hello);
      return rdma_connect(call, &parameter) == 0;
    }
    case HandshakeKind::kWelcome: {
      rdma_conn_param parameter = parameters(record, &record, sizeof record);
      return rdma_accept(call, &parameter) == 0;
    }
    case HandshakeKind::kReady: return rdma_establish(call) == 0;
    case HandshakeKind::kRefusal:
      return rdma_reject(call, &record, static_cast<uint8_t>(sizeof record)) == 0;
  }
  return false;
}

void ConnectionManager::close(rdma_cm_id* call) noexcept {
  BP_DCHECK(is_open() && call != nullptr && call != listener_ && call_count_ > 0);
  BP_KEEPS_VALID(*this);
  rdma_destroy_id(call);
  --call_count_;
}

void ConnectionManager::host_of(rdma_cm_id* call, char* text, uint32_t text_bytes) noexcept {
  BP_DCHECK(call != nullptr && text_bytes >= INET6_ADDRSTRLEN);
  const sockaddr* peer = rdma_get_peer_addr(call);
  const auto* tcp4 = reinterpret_cast<const sockaddr_in*>(peer);
  const auto* tcp6 = reinterpret_cast<const sockaddr_in6*>(peer);
  const void* address =
      peer->sa_family == AF_INET ? static_cast<const void*>(&tcp4->sin_addr) : &tcp6->sin6_addr;
  if (inet_ntop(peer->sa_family, address, text, text_bytes) == nullptr) text[0] = '\0';
}

// Skips events that concern no call. Acknowledges each event at once: its data was copied, and a
// call with an unacknowledged event cannot be closed.
bool ConnectionManager::next_event(Event* event, CmHello* hello) noexcept {
  BP_DCHECK(is_open());
  BP_KEEPS_VALID(*this);
  rdma_cm_event* raw = nullptr;
  while (rdma_get_cm_event(channel_, &raw) == 0) {
    *event = {};
    event->call = raw->id;
    const bool is_listeners = raw->id == listener_;
    translate(*raw, event, hello);
    rdma_ack_cm_event(raw);
    if (is_listeners || event->call == nullptr) continue;
    if (event->kind == Event::Kind::kCalled) ++call_count_;
    return true;
  }
  return false;
}

void ConnectionManager::translate(const rdma_cm_event& raw, Event* event, CmHello* hello) noexcept {
  const auto& data = raw.param.conn;
  const auto copy = [&](void* into, size_t bytes) {
    if (data.private_data == nullptr || data.private_data_len < bytes) return false;
    std::memcpy(into, data.private_data, bytes);
    return true;
  };
  switch (raw.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(raw.id, kResolveMs) == 0) event->call = nullptr;  // more events follow
      else event->why = "there is no route to it";
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED: event->kind = Event::Kind::kReached; return;
    case RDMA_CM_EVENT_CONNECT_REQUEST: {
      BP_DCHECK(raw.listen_id == listener_ && raw.id != listener_);
      event->kind = Event::Kind::kCalled;
      if (!copy(hello, sizeof *hello)) *hello = {};
      ibv_qp_attr attributes = {};
      attributes.qp_state = IBV_QPS_RTR;
      int mask = 0;
      rdma_init_qp_attr(raw.id, &attributes, &mask);
      event->record.queue_pair = data.qp_num;
      event->record.lid = attributes.ah_attr.dlid;
      std::memcpy(event->record.gid, raw.id->route.addr.addr.ibaddr.dgid.raw,
                  sizeof event->record.gid);
      return;
    }
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      event->kind = Event::Kind::kRecord;
      copy(&event->record, sizeof event->record);
      return;
    case RDMA_CM_EVENT_REJECTED:
      event->why =
          raw.status == kRejectedByPeer ? "it rejected the connection" : "nothing listens there";
      // An empty rejection comes from the peer's kernel: the call was closed.
      if (copy(&event->record, sizeof event->record) && has_magic(event->record)) {
        event->kind = Event::Kind::kRecord;
      }
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
      event->kind = Event::Kind::kRecord;
      event->record = ready_record();
      return;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT: event->call = nullptr; return;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR: event->why = "there is no route to it"; return;
    case RDMA_CM_EVENT_UNREACHABLE: event->why = "it does not answer"; return;
    default: event->why = "it hung up"; return;  // mostly: disconnected
  }
}

}  // namespace bedplate
