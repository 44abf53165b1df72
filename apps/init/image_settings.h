// The settings of an image's first process (docs/image.md): [init], [[network]], [watchdog] and
// [crash]. Every process of a program with libbedplate-init.a reads and checks them; only the first
// process of an image applies them. They are read once and not changed afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/configuration/configuration.h"

namespace bedplate {

// How the machine ends.
enum class MachineEnd { kReboot, kPowerOff, kHalt };

struct InitSettings {
  MachineEnd on_terminate = MachineEnd::kPowerOff;   // SIGTERM
  MachineEnd on_ctrl_alt_del = MachineEnd::kReboot;  // also SIGINT
};

struct NetworkSettings {
  std::string interface;
  std::string address;  // "10.0.2.15/24"; empty: none
  std::string gateway;  // empty: none
  uint32_t mtu = 0;     // 0: the device's own
  std::string driver = "virtio_net";
};

struct WatchdogSettings {
  bool enabled = false;  // the table [watchdog] is there
  std::string device = "/dev/watchdog";
  uint32_t timeout_s = 30;
  bool required = true;
  std::string driver;  // empty: the driver is part of the kernel
};

enum class CrashDump { kNone, kMetadata, kOwners };

struct CrashSettings {
  MachineEnd action = MachineEnd::kReboot;
  uint32_t delay_s = 5;
  CrashDump dump = CrashDump::kNone;
  std::vector<std::string> owners;  // owners of the segments that a dump keeps
  std::string device;               // the device for dumps
  std::vector<std::string> drivers;
};

struct ImageSettings {
  InitSettings init;
  std::vector<NetworkSettings> networks;
  WatchdogSettings watchdog;
  CrashSettings crash;
};

inline constexpr const char* kImagePart = "init";

inline const ImageSettings& image_settings(const Configuration& all) {
  return all.part<ImageSettings>(kImagePart);
}

}  // namespace bedplate
