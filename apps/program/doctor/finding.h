// One finding of `doctor` about the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/hugepage.h"

namespace bedplate {

enum class Verdict : uint8_t {
  kGood,
  kWarning,  // a feature is lost, or some configurations are refused
  kFault,    // no appliance runs here, or not the configuration in question
};

// A setting of the running machine.
struct Setting {
  std::string file;     // "/proc/sys/kernel/numa_balancing"
  std::string value;    // to be written into the file
  std::string lasting;  // a line for sysctl.d: "kernel.numa_balancing = 0"; empty: none exists
  std::optional<PageSize> page = {};  // the value is a number of hugepages of this size
};

struct Finding {
  std::string name;
  Verdict verdict = Verdict::kGood;
  std::string value;                   // what was found
  std::string cure;                    // empty: none exists, or none is needed
  std::vector<Setting> settings = {};  // the cure, or a part of it
  std::string kernel_words = {};       // words for the kernel's command line that make it last
};

// "good", "warning", "fault".
constexpr const char* to_text(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kGood: return "good";
    case Verdict::kWarning: return "warning";
    case Verdict::kFault: break;
  }
  return "fault";
}

}  // namespace bedplate
