// `doctor --fix`: what findings name as settings of the running machine is set, and what outlasts a
// boot is written once somebody has agreed.
//
// `root` stands before all files, as in machine_findings.h. Threads: any. It allocates: for
// commands alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/program/finding.h"
#include "platform/result.h"

namespace bedplate {

// Where settings of sysctl lie that are made at each boot.
inline constexpr char kLastingFile[] = "/etc/sysctl.d/90-bedplate.conf";

// Writes the setting into its file. It lasts until the next boot. Errors: the kernel's.
Result<void> apply(const Setting& setting, const std::string& root = "");

// The lasting file as it would be with `lines` ("vm.nr_hugepages = 64"): each takes the place of a
// line of the same name, what else is in the file stays. Empty: it has all of them.
std::string lasting_text(const std::vector<std::string>& lines, const std::string& root = "");

// Puts `text` in place of the lasting file, or leaves that as it was. Errors: the system's.
Result<void> write_lasting(const std::string& text, const std::string& root = "");

// What asks before something lasts, and what is told of all that was done.
struct MendTalk {
  std::function<bool(const std::string& question)> agrees;
  std::function<void(const std::string& line)> tell;
};

// Applies the settings of all findings, has what makes them last written, if that is agreed to, and
// tells what can only be given to the kernel when it starts. Returns what failed.
std::vector<Error> mend(const std::vector<Finding>& findings, const MendTalk& talk,
                        const std::string& root = "");

}  // namespace bedplate
