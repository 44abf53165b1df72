// Opens the device of a kernel module, with a cure for each usual failure.
#pragma once

#include "platform/file.h"

namespace bedplate {

// `module`: the name that modprobe knows. Errors: no such file, no permission, ...
Result<Fd> open_module_device(const char* path, const char* module) noexcept;

// Makes the error for a device that fails the first request, and so belongs to another driver.
Error error_of_other_device(const char* path, const char* module, int error_number) noexcept;

}  // namespace bedplate
