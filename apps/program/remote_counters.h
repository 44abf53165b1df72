// The counters of an appliance whose file cannot be opened from here, as that of an image: by what
// its control socket, or serial line, answers to counters.read (docs/control.md).
//
// The first look takes the whole file, each later one what may have changed: whether sets are
// there, signs and values. What is answered may be nonsense: it is judged as a file is.
//
// Threads: one. Tested by tests/apps/program/remote_counters_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/boot/counters_snapshot.h"
#include "apps/control/control_channel.h"
#include "platform/result.h"

namespace bedplate {

class RemoteCounters {
 public:
  // A channel that has failed is opened again at the next look.
  using Open = std::function<Result<std::unique_ptr<ControlChannel>>()>;

  // `source`: where it is asked, for messages.
  RemoteCounters(std::string source, Open open)
      : source_(std::move(source)), open_(std::move(open)) {}

  const std::string& source() const noexcept { return source_; }
  // Errors: of the line; the appliance refuses; what it says are no counters.
  Result<CountersSnapshot> snapshot();

 private:
  Result<void> read_all();
  // Whether it is still the same run: otherwise nothing was read.
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
