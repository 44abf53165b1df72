// Soft RoCE on a network interface: what `rdma link add NAME type rxe netdev INTERFACE` does.
#pragma once

#include <string>

#include "apps/boot/configuration.h"
#include "transport/netlink.h"
#include "platform/result.h"

namespace bedplate {

NetlinkMessage soft_roce_message(const std::string& device, const std::string& interface) noexcept;

// Makes it; one of this name that is there already is fine. Errors: the kernel refuses.
Result<void> make_soft_roce(const std::string& device, const std::string& interface);

// Makes the device that [verbs] names ("rxe0", where it names none) on its interface, if its driver
// is rdma_rxe. Of every driver: waits a little for the device
// where it is required. Before preflight looks for it.
// Errors: the kernel refuses, and the device is required.
Result<void> bring_verbs_up(const VerbsSettings& settings);

}  // namespace bedplate
