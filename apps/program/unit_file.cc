#include "apps/program/unit_file.h"

#include "platform/product.h"

namespace bedplate {
namespace {

constexpr char kUnitBegin[] = R"(# PROGRAM@NAME runs the appliance of /etc/PROGRAM/NAME.toml.
#
# Its pool lies on hugepages, which the kernel must have: `PROGRAM check FILE` says how many are
# missing. They are best reserved at boot: vm.nr_hugepages=COUNT (of 2 MiB) in
# /etc/sysctl.d/PROGRAM.conf, or hugepagesz=1G hugepages=COUNT on the kernel's command line.

[Unit]
Description=PROGRAM appliance %i
Documentation=man:PROGRAM(1) man:PROGRAM.toml(5)
Wants=network-online.target
After=network-online.target systemd-sysctl.service
ConditionPathExists=/etc/PROGRAM/%i.toml

[Service]
# It says when it serves (READY=1); systemctl status shows how far the boot is, and how many things
# need a look.
Type=notify
NotifyAccess=main
# Each step of the boot asks for its own time, and as long as memory is taken or a device is waited
# for it asks for more.
TimeoutStartSec=90
# If a shard or the control thread is stuck for so long, systemd kills it, and starts it again.
WatchdogSec=30
ExecStart=)";

constexpr char kUnitEnd[] = R"( run /etc/PROGRAM/%i.toml
# The whole pool is locked and registered with devices.
LimitMEMLOCK=infinity
LimitNOFILE=1048576
# Where its heap is exhausted, requests are refused; other memory it does not take.
OOMScoreAdjust=-900
# A stop finishes what clients have begun. It asks for the time of [appliance] drain_timeout_ms.
TimeoutStopSec=60
Restart=on-failure
RestartSec=1
# 2: the configuration is wrong, and is so the next time as well.
RestartPreventExitStatus=2

[Install]
WantedBy=multi-user.target
)";

}  // namespace

std::string unit_file(const std::string& path) {
  return with_product_name(kUnitBegin) + path + with_product_name(kUnitEnd);
}

}  // namespace bedplate
