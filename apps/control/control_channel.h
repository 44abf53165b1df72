// A way to ask an appliance what [control] answers, whatever carries the lines: its socket
// (control_client.h), or what a test has in its place.
//
// Tested by tests/apps/control/control_client_test.cc.
#pragma once

#include <string>

#include "platform/result.h"

namespace bedplate {

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  // Asks for `method` with `params`, a JSON object in one line, and returns the line that is
  // answered, with its newline. A refusal of the method is an answer, too. One request at a time; a
  // channel that has failed once is not asked again. Errors (kSystem): there was none in time, or
  // the channel broke.
  virtual Result<std::string> ask(const std::string& method, const std::string& params = "{}") = 0;
};

}  // namespace bedplate
