// Opens the device of a kernel module, with a cure for each possible failure.
#pragma once

#include "platform/file.h"

namespace bedplate {

// `module`: the name that modprobe knows. Errors: no such file, no permission, ...
Result<Fd> open_module_device(const char* path, const char* module) noexcept;

// The error if the device answers the first request with an error: it is another driver's.
Error error_of_other_device(const char* path, const char* module, int error_number) noexcept;

}  // namespace bedplate
