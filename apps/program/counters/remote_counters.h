// The counters of an appliance whose file cannot be opened from here, such as an image's: read by
// counters.read over its control socket or serial line (docs/control.md).
//
// The first snapshot reads the whole file; later ones read the parts that may have changed: the
// sets' presence, the alerts and the values. Each answer is checked like a file, since it may be
// nonsense. If the appliance has restarted, a snapshot reads the whole file again.
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
  // Opens a channel: for the first snapshot, and after each failure.
  using Open = std::function<Result<std::unique_ptr<ControlChannel>>()>;

  // `source`: the path of the socket or line, for messages.
  RemoteCounters(std::string source, Open open)
      : source_(std::move(source)), open_(std::move(open)) {}

  const std::string& source() const noexcept { return source_; }
  // Errors: those of the line; the appliance refuses; its answer contains no counters.
  Result<CountersSnapshot> snapshot();

 private:
  Result<void> read_all();
  // Returns false if the appliance has restarted: the words are stale then.
  Result<bool> read_changes();
  Result<bool> read_again(uint64_t from, uint64_t bytes);

  // Asks for `bytes` bytes of the file from `from` on; 0: all that follow. Returns the answer's
  // JSON.
  Result<std::string> ask(uint64_t from, uint64_t bytes);

  std::string source_;
  Open open_;
  std::unique_ptr<ControlChannel> channel_;  // nullptr: not open
  std::vector<uint64_t> words_;              // of the file; empty: not read yet
  uint64_t created_ns_ = 0;
  uint64_t now_ns_ = 0;  // of the appliance's machine
};

}  // namespace bedplate
