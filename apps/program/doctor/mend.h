// `doctor --fix`: applies the findings' settings to the running machine, and, if the user agrees,
// writes those that outlast a boot.
//
// `root` is a prefix of all files, as in machine_findings.h. Threads: any. The functions allocate:
// only for commands.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/program/doctor/finding.h"
#include "platform/result.h"

namespace bedplate {

// The file of sysctl settings that each boot applies: "/etc/sysctl.d/90-bedplate.conf", with the
// product's name.
std::string lasting_file();

// Writes the setting's value into its file. The value lasts until the next boot. The kernel may
// reserve fewer hugepages than `value`, without an error. Errors: the system's. Requires:
// setting.file begins with /; with setting.page, `value` is a number.
Result<void> apply(const Setting& setting, const std::string& root = "");

// The lasting file's text after `lines` ("vm.nr_hugepages = 64") are added: each replaces the last
// line of the same name; other lines stay. Empty: nothing changes, since the file has all `lines`.
// Errors: the file exists and cannot be read. Requires: each line has a name.
Result<std::string> lasting_text(const std::vector<std::string>& lines,
                                 const std::string& root = "");

// Replaces the lasting file with `text`, or leaves it unchanged on an error. Makes its directory if
// that is missing. Errors: the system's. Requires: `text` is not empty.
Result<void> write_lasting(const std::string& text, const std::string& root = "");

// Callbacks, both set: `agrees` asks before a lasting change, `tell` prints each step.
struct MendTalk {
  std::function<bool(const std::string& question)> agrees;
  std::function<void(const std::string& line)> tell;
};

// Applies the settings of all findings, writes their lasting lines if the user agrees, and tells
// the user which words to add to the kernel's command line. Returns the errors.
std::vector<Error> mend(const std::vector<Finding>& findings, const MendTalk& talk,
                        const std::string& root = "");

}  // namespace bedplate
