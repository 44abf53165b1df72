#include "transport/dpdk/net/socket_groups_datapath.h"

namespace bedplate {

int SocketGroups::change(bool is_join, Memberships::Holder& holder, const IpAddress& group,
                         const IpAddress& source) noexcept {
  int error_number = 0;
  LinkGroup* its = is_join ? memberships_.join(holder, group, source, error_number)
                           : memberships_.leave(holder, group, source, error_number);
  if (its == nullptr) return error_number;
  reports_.changed(*its);
  return 0;
}

void SocketGroups::leave_all(Memberships::Holder& holder) noexcept {
  while (LinkGroup* its = memberships_.leave_any(holder)) reports_.changed(*its);
}

}  // namespace bedplate
