// A program: a list of services, and the commands that every appliance has.
//
//     int main(int count, char** words) {
//       static Cache cache;
//       return bedplate::run_program(count, words, {&cache});
//     }
//
// `PROGRAM run CONFIG` boots the appliance with the services that have a table in the
// configuration; plan, check, keys, counters, doctor and ctl know them as well. The program also
// has stats, top, trace and perf, which need no services, and the services [http] and [control]. As
// the first process of an image (docs/image.md) the same program runs the machine.
#pragma once

#include <initializer_list>
#include <span>

#include "apps/services/service.h"

namespace bedplate {

// Runs the command line's command. `services` outlive the call, and serve one appliance. Prints
// errors on standard error. Requires: called once, from main, before other threads start. Returns
// the exit code: 0 good, 1 boot or run failure, 2 usage or configuration.
int run_program(int count, char** words, std::span<Service* const> services);
inline int run_program(int count, char** words, std::initializer_list<Service*> services) {
  return run_program(count, words, std::span(services.begin(), services.size()));
}

}  // namespace bedplate
