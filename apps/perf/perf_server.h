// The answering side of `bedplate perf`: it serves one client at a time, until it must stop.
#pragma once

#include <csignal>
#include <vector>

#include "apps/perf/perf_pace.h"
#include "apps/perf/perf_side.h"
#include "apps/perf/perf_stream.h"

namespace bedplate {

class PerfServer {
 public:
  explicit PerfServer(PerfSide& side);
  PerfServer(const PerfServer&) = delete;
  PerfServer& operator=(const PerfServer&) = delete;

  // Returns when `must_stop` is not 0. An idle server checks it every 100 ms.
  void serve(const volatile sig_atomic_t& must_stop) noexcept;

 private:
  enum class State {
    kIdle,
    kEchoes,    // sends messages back
    kCounts,    // counts received messages
    kPutsBack,  // polls its memory, and puts
    kStreams,   // --both
    kPassive,   // its device or the client does all the work
  };

  void handle(const Message& message) noexcept;
  void take_ask(Endpoint& from, const PerfAsk& ask) noexcept;
  bool expose_to(Endpoint& client) noexcept;
  State state_for(const PerfAsk& ask) const noexcept;
  void take_data(std::span<const std::byte> payload) noexcept;
  // The work besides messages. Each returns true if it did something.
  bool advance() noexcept;
  bool answer() noexcept;
  bool put_back() noexcept;
  bool stream() noexcept;
  void count_verified(bool is_right) noexcept;
  PerfMode mode() const noexcept;

  PerfSide& side_;
  PerfPace pace_;
  State state_ = State::kIdle;
  Endpoint* client_ = nullptr;
  PerfAsk ask_;
  PerfReady ready_;
  PerfTally tally_;
  PerfStream stream_;
  uint64_t began_ns_ = 0;
  uint64_t number_ = 0;      // of the last message received
  bool owes_ready_ = false;  // sent once the queue has space
  bool owes_tally_ = false;
  bool owes_echo_ = false;
  std::vector<std::byte> echo_;
};

}  // namespace bedplate
