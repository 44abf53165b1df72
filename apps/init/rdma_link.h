// Soft RoCE on a network interface: like `rdma link add NAME type rxe netdev INTERFACE`.
#pragma once

#include <string>

#include "apps/peers/verbs_settings.h"
#include "platform/result.h"
#include "transport/sockets/netlink.h"

namespace bedplate {

NetlinkMessage soft_roce_message(const std::string& device, const std::string& interface) noexcept;

// Makes the device; succeeds if a device of this name exists. Errors: the kernel refuses.
Result<void> make_soft_roce(const std::string& device, const std::string& interface);

// If the driver of [verbs] is rdma_rxe, makes its device ("rxe0" without a name) on its interface.
// With every driver, waits a while for a required device. Call it before preflight. Errors: the
// kernel refuses, and the device is required.
Result<void> bring_verbs_up(const VerbsSettings& settings);

}  // namespace bedplate
