// `doctor --fix`: applies the findings' settings to the running machine, and, if the user agrees,
// writes those that outlast a boot.
//
// `root` is a prefix of all files, as in machine_findings.h. Threads: any. It allocates: only for
// commands.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/program/doctor/finding.h"
#include "platform/result.h"

namespace bedplate {

// The file of sysctl settings that each boot applies.
inline constexpr char kLastingFile[] = "/etc/sysctl.d/90-bedplate.conf";

// Writes the setting into its file. It lasts until the next boot. Errors: the kernel's.
Result<void> apply(const Setting& setting, const std::string& root = "");

// The lasting file's text after `lines` ("vm.nr_hugepages = 64") are added: each replaces a line of
// the same name; other lines stay. Empty: the file has all of them. Errors: the file exists and
// cannot be read.
Result<std::string> lasting_text(const std::vector<std::string>& lines,
                                 const std::string& root = "");

// Replaces the lasting file with `text`, or leaves it unchanged on an error. Errors: the system's.
Result<void> write_lasting(const std::string& text, const std::string& root = "");

// Callbacks: `agrees` asks before a lasting change, `tell` prints each step.
struct MendTalk {
  std::function<bool(const std::string& question)> agrees;
  std::function<void(const std::string& line)> tell;
};

// Applies the settings of all findings, writes their lasting lines if the user agrees, and tells
// the user which words to add to the kernel's command line. Returns the errors.
std::vector<Error> mend(const std::vector<Finding>& findings, const MendTalk& talk,
                        const std::string& root = "");

}  // namespace bedplate
