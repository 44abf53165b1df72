#include "transport/single_copy/device.h"

#include <cerrno>

#include <fcntl.h>

namespace bedplate {

Result<Fd> open_module_device(const char* path, const char* module) noexcept {
  Fd device(open(path, O_RDWR | O_CLOEXEC));
  if (device.is_open()) return device;
  const int number = errno;
  Error error = error_from_errno("opening %s", path);
  if (number == ENOENT || number == ENXIO || number == ENODEV) {
    error.set_cure("load the module: modprobe %s (Debian does not package it: docs/single_copy.md)",
                   module);
  } else if (number == EACCES || number == EPERM) {
    error.set_cure(
        "let this user open it: chmod 666 %s, better by a udev rule; give a container the device",
        path);
  }
  return error;
}

Error error_of_other_device(const char* path, const char* module, int error_number) noexcept {
  return error_while("asking %s for its version", path)
      .set_answer_errno(error_number)
      .set_cure("remove what is there, and load the module (modprobe %s)", module);
}

}  // namespace bedplate
