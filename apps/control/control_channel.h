// A channel to an appliance's [control] methods: its socket or line (control_client.h), or a test's
// substitute.
#pragma once

#include <string>

#include "platform/result.h"

namespace bedplate {

class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  // Calls `method` with `params`, a JSON object in one line, and returns the answer's line with its
  // newline. A refusal by the method is an answer, too. One request at a time; a channel that has
  // failed once is unusable. Errors (kSystem): no answer in time, no valid answer, or the channel
  // broke.
  virtual Result<std::string> ask(const std::string& method, const std::string& params = "{}") = 0;
};

}  // namespace bedplate
