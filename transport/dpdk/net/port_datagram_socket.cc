#include "transport/dpdk/net/port_datagram_socket.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "platform/assert.h"

namespace bedplate {

PortDatagramSocket::PortDatagramSocket(const SocketParts& parts, const DatagramShape& shape)
    : parts_(parts),
      shape_(shape),
      batch_(std::make_unique<Batch>()),
      kept_(std::make_unique<rte_mbuf*[]>(shape.buffer_count)) {
  BP_ASSERT(shape.buffer_count > 0 && shape.buffer_bytes > 0);
}

PortDatagramSocket::~PortDatagramSocket() {
  close();
  give_back_kept();
}

void PortDatagramSocket::give_back_kept() noexcept {
  while (kept_count_ > 0) rte_pktmbuf_free_seg(kept_[--kept_count_]);
}

bool PortDatagramSocket::is_valid() const noexcept {
  if (pending_count_ + lent_count_ > kBatchMax) return false;
  if (pending_count_ + lent_count_ + kept_count_ > shape_.buffer_count) return false;
  for (uint32_t i = 0; i < kept_count_; ++i) {
    if (kept_[i] == nullptr || rte_mbuf_refcnt_read(kept_[i]) == 0) return false;
  }
  if (is_open_) return true;
  return !is_started_ && !wants_room_ && pending_count_ == 0 && memberships_ == Memberships::kNone;
}

// Returns nullptr, or the contradiction in `options`.
const char* PortDatagramSocket::problem_of(const DatagramOptions& options) noexcept {
  if (options.owner.received == nullptr) return "it has no handler for received datagrams";
  if (options.local.ip.family != AF_INET && options.local.ip.family != AF_INET6) {
    return "it has no address: 0.0.0.0 and [::] mean all of a family";
  }
  if (options.peer.is_there() && options.peer.ip.family != options.local.ip.family) {
    return "its peer has the other address family";
  }
  if (options.peer.is_there() && options.peer.port == 0) return "its peer has no port";
  if (options.service_class > 63) return "its class of service has more than six bits";
  if (options.headroom_bytes != 0) return "headroom before datagrams is not supported";
  return nullptr;
}

Result<void> PortDatagramSocket::open(const DatagramOptions& options) {
  BP_REQUIRE(!is_open_, "a datagram socket is opened that is open: DatagramSocket::open");
  Error error = error_while("opening a datagram socket at %s on the port \"%s\"",
                            options.local.text().c_str(), parts_.name);
  if (const char* problem = problem_of(options)) {
    error.kind = ErrorKind::kConfiguration;
    return error.set_answer("%s", problem).set_cure("change the options of the socket");
  }
  if (options.multicast_interface != nullptr &&
      std::strcmp(options.multicast_interface, parts_.name) != 0) {
    return error.set_answer_errno(ENODEV).set_cure(
        "name the port itself as the multicast interface, or none");
  }
  if (options.peer.is_there() && !is_multicast(options.peer.ip) &&
      !parts_.routes.is_own(options.peer.ip) &&
      parts_.routes.next_hop(options.peer.ip).family == 0) {
    return error.set_answer_errno(ENETUNREACH)
        .set_cure("give the port an address in the peer's network, or a gateway");
  }
  give_back_kept();
  local_ = options.local;
  peer_ = options.peer;
  shares_port_ = options.shares_port;
  if (const int outcome = parts_.ports.bind(*this); outcome != 0) {
    local_ = {};
    error.set_answer_errno(outcome);
    switch (outcome) {
      case EADDRNOTAVAIL:
        return error.set_cure("choose an address of the port, or 0.0.0.0 or [::]");
      case EADDRINUSE: return error.set_cure("choose another UDP port, or let both share it");
      default: return error.set_cure("plan more sockets on the port");
    }
  }
  owner_ = options.owner;
  service_class_ = options.service_class;
  multicast_hops_ = options.multicast_hops;
  hears_own_multicast_ = options.hears_own_multicast;
  is_open_ = true;
  ++generation_;
  return {};
}

int PortDatagramSocket::start() noexcept {
  BP_KEEPS_VALID(*this);
  BP_REQUIRE(is_open_ && !is_started_,
             "a datagram socket is started that is not open, or was started: "
             "DatagramSocket::start");
  is_started_ = true;
  if (pending_count_ > 0) parts_.notes.has_pending = true;
  return 0;
}

// Frames lent to received() stay valid until it returns.
void PortDatagramSocket::close() noexcept {
  BP_KEEPS_VALID(*this);
  if (!is_open_) return;
  parts_.groups.leave_all(memberships_);
  parts_.ports.release(*this);
  for (uint32_t i = 0; i < pending_count_; ++i) rte_pktmbuf_free(batch_->frames[i]);
  pending_count_ = 0;
  local_ = {};
  is_open_ = is_started_ = wants_room_ = false;
  ++generation_;
}

Result<void> PortDatagramSocket::change_membership(bool is_join, const IpAddress& group,
                                                   const IpAddress& source, const char* interface) {
  BP_REQUIRE(is_open_, "a datagram socket joins or leaves a group and is not open: "
                       "DatagramSocket::join, leave");
  const bool is_here = interface == nullptr || std::strcmp(interface, parts_.name) == 0;
  int outcome = ENODEV;
  if (is_here) outcome = EINVAL;
  if (is_here && group.family == local_.ip.family) {
    outcome = parts_.groups.change(is_join, memberships_, group, source);
  }
  if (outcome == 0) return {};
  Error error = error_while("%s the group %s on the port \"%s\"", is_join ? "joining" : "leaving",
                            DatagramAddress{group, 0, 0}.text().c_str(), parts_.name)
                    .set_answer_errno(outcome);
  switch (outcome) {
    case EADDRINUSE: return error.set_cure("join it only once: it is already joined");
    case EADDRNOTAVAIL: return error.set_cure("leave only what was joined, with the same source");
    case ENODEV: return error.set_cure("name the port itself as the interface, or none");
    case EINVAL:
      return error.set_cure(
          "choose a group in 224.0.0.0/4 or ff00::/8, and a source, both of the socket's family");
    default:
      return error.set_cure("plan more memberships on the port; a group can have 64 sources");
  }
}

Result<void> PortDatagramSocket::join(const IpAddress& group, const IpAddress& source,
                                      const char* interface) {
  return change_membership(true, group, source, interface);
}

Result<void> PortDatagramSocket::leave(const IpAddress& group, const IpAddress& source,
                                       const char* interface) {
  return change_membership(false, group, source, interface);
}

}  // namespace bedplate
