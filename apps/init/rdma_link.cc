#include "apps/init/rdma_link.h"

#include <cerrno>

#include <rdma/rdma_netlink.h>

#include "apps/boot/peers.h"
#include "apps/init/machine.h"
#include "platform/assert.h"
#include "platform/log.h"

namespace bedplate {
namespace {

const char* link_cure(int error_number) noexcept {
  switch (error_number) {
    case ENODEV: return "name an interface of this machine in [verbs]";
    case ENOENT: return "build the image again: a module that rdma_rxe needs is missing";
    case EINVAL:
    case EOPNOTSUPP: return "set driver = \"rdma_rxe\" in [verbs], and build the image again";
    case EPERM: return kGiveAllRights;
    default: return "see the kernel's messages above";
  }
}

}  // namespace

Result<void> make_soft_roce(const std::string& device, const std::string& interface) {
  NetlinkSocket kernel;
  BP_TRY(kernel.create(NETLINK_RDMA));
  NetlinkMessage message = soft_roce_message(device, interface);
  const int outcome = kernel.request(message);
  if (outcome == 0 || outcome == EEXIST) return {};
  return error_while("creating the RDMA device %s on %s", device.c_str(), interface.c_str())
      .set_answer_errno(outcome)
      .set_cure("%s", link_cure(outcome));
}

NetlinkMessage soft_roce_message(const std::string& device, const std::string& interface) noexcept {
  BP_ASSERT(!device.empty() && !interface.empty());
  NetlinkMessage message(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK), 0);
  message.add(RDMA_NLDEV_ATTR_DEV_NAME, device.c_str(), device.size() + 1);
  message.add(RDMA_NLDEV_ATTR_LINK_TYPE, "rxe", sizeof "rxe");
  message.add(RDMA_NLDEV_ATTR_NDEV_NAME, interface.c_str(), interface.size() + 1);
  return message;
}

Result<void> bring_verbs_up(const VerbsSettings& settings) {
  if (!settings.enabled) return {};
  if (!settings.interface.empty()) {
    const std::string device = settings.device.empty() ? "rxe0" : settings.device;
    if (auto made = make_soft_roce(device, settings.interface); !made.ok()) {
      if (settings.required) return made;
      log_error(made.error());
    }
  }
  if (!settings.required) return {};
  // Preflight reports what is wrong with the device. A program without verbs has no such table.
  const PeersPart* verbs = peers_part();
  BP_ASSERT(verbs != nullptr);
  wait_for_device("the RDMA device",
                  [&] { return verbs->has_port(settings.device, settings.port); });
  return {};
}

}  // namespace bedplate
