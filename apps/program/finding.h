// What `doctor` says of one thing of the machine.
//
// Tested by tests/apps/program/machine_findings_test.cc.
#pragma once

#include <cstdint>
#include <string>

namespace bedplate {

enum class Verdict : uint8_t {
  kGood,
  kWarning,  // something is lost, or some configurations are refused
  kFault,    // nothing runs here, or not the configuration that was asked about
};

struct Finding {
  std::string name;
  Verdict verdict = Verdict::kGood;
  std::string value;  // what there is
  std::string cure;   // empty: there is none, or none is needed
};

// "good", "warning", "fault".
constexpr const char* verdict_text(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kGood: return "good";
    case Verdict::kWarning: return "warning";
    case Verdict::kFault: break;
  }
  return "fault";
}

}  // namespace bedplate
