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
//
// A program may be a product of its own: `{.product = "logd", .version = "2.1"}` behind the
// services. Its texts then speak of logd: the lines of its log, its helps, cures, manual pages and
// unit of systemd; its appliances are in /run/logd.
#pragma once

#include <initializer_list>
#include <span>

#include "apps/services/service.h"
#include "platform/product.h"

namespace bedplate {

// Texts: static.
struct ProgramOptions {
  // The name of the product, and of the program's file: 1 to 31 characters of a-z, 0-9 and -; it
  // begins with a letter.
  const char* product = Product{}.name;
  const char* version = "";                 // of the product; Bedplate has its own
  const char* summary = Product{}.summary;  // describes it in its manual page
};

// Runs the command line's command. `services` outlive the call, and serve one appliance. Prints
// errors on standard error. Requires: called once, from main, before other threads start. Returns
// the exit code: 0 good, 1 boot or run failure, 2 usage or configuration.
int run_program(int count, char** words, std::span<Service* const> services,
                const ProgramOptions& options = {});
inline int run_program(int count, char** words, std::initializer_list<Service*> services,
                       const ProgramOptions& options = {}) {
  return run_program(count, words, std::span(services.begin(), services.size()), options);
}

}  // namespace bedplate
