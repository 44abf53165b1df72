// The counters of an appliance whose file cannot be opened from here, such as an image's: read with
// counters.read over its control socket or serial line (docs/control.md).
//
// The first look reads the whole file, each later one the parts that may have changed: the sets'
// presence, the signs and the values. An answer may be nonsense: it is checked as a file is.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/control/control_channel.h"
#include "apps/counters/counters_snapshot.h"
#include "platform/result.h"

namespace bedplate {

class RemoteCounters {
 public:
  // Opens a channel: the first, and a new one at the look after a failure.
  using Open = std::function<Result<std::unique_ptr<ControlChannel>>()>;

  // `source`: the path of the socket or line, for messages.
  RemoteCounters(std::string source, Open open)
      : source_(std::move(source)), open_(std::move(open)) {}

  const std::string& source() const noexcept { return source_; }
  // Errors: those of the line; the appliance refuses; its answer holds no counters.
  Result<CountersSnapshot> snapshot();

 private:
  Result<void> read_all();
  // Returns false if it is another run: the words are stale then.
  Result<bool> read_changes();
  Result<bool> read_again(uint64_t from, uint64_t bytes);

  // The words of `bytes` bytes from `from` on; 0: of all that follow.
  Result<std::string> ask(uint64_t from, uint64_t bytes);

  std::string source_;
  Open open_;
  std::unique_ptr<ControlChannel> channel_;  // nullptr: to be opened
  std::vector<uint64_t> words_;              // the file's; empty: not read yet
  uint64_t created_ns_ = 0;
  uint64_t now_ns_ = 0;  // of the appliance's machine
};

}  // namespace bedplate
