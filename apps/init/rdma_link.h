// Soft RoCE on a network interface: like `rdma link add NAME type rxe netdev INTERFACE`.
#pragma once

#include <string>

#include "apps/peers/verbs_settings.h"
#include "platform/result.h"
#include "transport/sockets/netlink.h"

namespace bedplate {

// The request to the kernel. Requires: both names are not empty.
NetlinkMessage soft_roce_message(const std::string& device, const std::string& interface) noexcept;

// Makes the device; succeeds if a device of this name exists. Errors: the kernel refuses.
Result<void> make_soft_roce(const std::string& device, const std::string& interface);

// If [verbs] has an interface, makes a soft RoCE device ("rxe0" without a name) on it. With every
// driver, waits at most 10 s for a required device; preflight reports a device that is missing
// then. Does nothing without [verbs]. Errors: the kernel refuses, and the device is required; if it
// is not required, this only logs the error.
Result<void> bring_verbs_up(const VerbsSettings& settings);

}  // namespace bedplate
