#include "apps/services/planned_datagrams.h"

#include "apps/services/service_plan.h"
#include "transport/udp/udp_descriptor.h"
#include "transport/udp/udp_socket.h"

namespace bedplate {
namespace {

const char* or_null(const std::string& text) noexcept {
  return text.empty() ? nullptr : text.c_str();
}

bool is_any(const IpAddress& ip) noexcept {
  IpAddress any;
  any.family = ip.family;
  return ip == any;
}

// Whether the two cannot be open at the same time.
bool exclude_one_another(const DatagramNeed& one, const DatagramNeed& other) noexcept {
  if (one.network != other.network) return false;
  const DatagramOptions& a = one.opening->options;
  const DatagramOptions& b = other.opening->options;
  const DatagramAddress& at = a.local;
  const DatagramAddress& and_at = b.local;
  return at.port != 0 && at.port == and_at.port && at.ip.family == and_at.ip.family &&
         at.interface_index == and_at.interface_index &&
         (at.ip == and_at.ip || is_any(at.ip) || is_any(and_at.ip)) &&
         !(a.shares_port && b.shares_port);
}

// The first socket planned before `last` that excludes it; nullptr: none.
const DatagramNeed* find_rival(const std::vector<ServiceNeeds>& services,
                               const DatagramNeed& last) noexcept {
  for (const ServiceNeeds& service : services) {
    for (const DatagramNeed& need : service.datagrams) {
      if (&need == &last) return nullptr;
      if (need.opening && exclude_one_another(need, last)) return &need;
    }
  }
  return nullptr;
}

Error twice(const ServiceNeeds& service, const DatagramNeed& need, const DatagramNeed& rival) {
  return error_while("%s: opening %s at %s", service.name.c_str(), need.opening->what.c_str(),
                     need.opening->options.local.text().c_str())
      .set_answer("this configuration already uses it for %s", rival.opening->what.c_str())
      .set_cure("choose another port");
}

Result<Fd> open_one(const DatagramNeed& need) {
  const DatagramOpening& opening = *need.opening;
  BP_TRY_ASSIGN(auto fd, open_udp(options_of(opening, {}), need.shape));
  for (const DatagramMembership& each : opening.memberships) {
    for (const bool is_join : {true, false}) {
      BP_TRY(change_membership(fd.number(), is_join, each.group, each.source,
                               or_null(each.interface)));
    }
  }
  return fd;
}

}  // namespace

DatagramOptions options_of(const DatagramOpening& opening, const DatagramOwner& owner) noexcept {
  DatagramOptions options = opening.options;
  options.owner = owner;
  options.multicast_interface = or_null(opening.multicast_interface);
  return options;
}

Result<void> open_planned(DatagramSocket& socket, const DatagramOpening& opening,
                          const DatagramOwner& owner, Fd fd) {
  if (fd.is_open()) {
    static_cast<UdpSocket&>(socket).adopt(std::move(fd), options_of(opening, owner));
  } else {
    BP_TRY(socket.open(options_of(opening, owner)));
  }
  for (const DatagramMembership& each : opening.memberships) {
    BP_TRY(socket.join(each.group, each.source, or_null(each.interface)));
  }
  return {};
}

std::vector<std::vector<Fd>> open_datagrams(const std::vector<ServiceNeeds>& services,
                                            std::vector<Error>* problems) {
  std::vector<std::vector<Fd>> all;
  for (const ServiceNeeds& service : services) {
    std::vector<Fd>& own = all.emplace_back(service.datagrams.size());
    for (size_t i = 0; i < service.datagrams.size(); ++i) {
      const DatagramNeed& need = service.datagrams[i];
      if (!need.opening) continue;
      if (const DatagramNeed* rival = find_rival(services, need)) {
        problems->push_back(twice(service, need, *rival));
        continue;
      }
      if (need.network != nullptr) continue;
      auto fd = open_one(need);
      if (fd.ok()) {
        own[i] = fd.take();
        continue;
      }
      Error error = fd.error();
      char doing[sizeof error.doing];
      __builtin_memcpy(doing, error.doing, sizeof doing);
      problems->push_back(error.set_doing("%s: %s, for %s", service.name.c_str(), doing,
                                          need.opening->what.c_str()));
    }
  }
  return all;
}

}  // namespace bedplate
