// The options of commands that ask an appliance over a line: --serial DEVICE with its --baud, or
// --socket PATH, which is a control socket or the socket of an emulated serial line.
#pragma once

#include "apps/control/control_client.h"
#include "apps/program/commands.h"
#include "platform/result.h"

namespace bedplate {

// Checks that these options fit one another and the options for counters files of this machine, and
// that the baud is valid. If not, prints why, sets `*exit_code` and returns false. `command` is the
// command's name, for the message.
bool check_asked_line(const Arguments& arguments, const char* command, int* exit_code);
// The option that names the line: "--serial" or "--socket". nullptr: neither was given.
const char* asked_line_option(const Arguments& arguments);
// Requires: check_asked_line() returned true, and asked_line_option() is not nullptr.
Result<ControlClient> open_asked_line(const Arguments& arguments,
                                      const ControlPatience& patience = {});

}  // namespace bedplate
