// The options of commands that ask an appliance over a line: --serial DEVICE with its --baud, or
// --socket PATH, a control socket or what a serial line is behind.
#pragma once

#include "apps/control/control_client.h"
#include "apps/program/commands.h"
#include "platform/result.h"

namespace bedplate {

// Whether the options make sense with one another, and with those that name files here; otherwise
// it prints why, and `*exit_code` is the exit code of the command `command`.
bool check_asked_line(const Arguments& arguments, const char* command, int* exit_code);
// The option that names the line: "--serial" or "--socket". nullptr: neither is given.
const char* asked_line_option(const Arguments& arguments);
// Requires: check_asked_line() was true, and asked_line_option() names one.
Result<ControlClient> open_asked_line(const Arguments& arguments,
                                      const ControlPatience& patience = {});

}  // namespace bedplate
