// Soft RoCE on a network interface: does the same as `rdma link add NAME type rxe netdev
// INTERFACE`.
#pragma once

#include <string>

#include "apps/peers/verbs_settings.h"
#include "platform/result.h"
#include "transport/sockets/netlink.h"

namespace bedplate {

NetlinkMessage soft_roce_message(const std::string& device, const std::string& interface) noexcept;

// Makes the device; success if one of this name exists. Errors: the kernel refuses.
Result<void> make_soft_roce(const std::string& device, const std::string& interface);

// Makes the device that [verbs] names ("rxe0" if it names none) on its interface, if its driver is
// rdma_rxe. With every driver it waits a little for a required device. Call it before preflight.
// Errors: the kernel refuses, and the device is required.
Result<void> bring_verbs_up(const VerbsSettings& settings);

}  // namespace bedplate
