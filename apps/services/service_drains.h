// The drains of services: a draining service finishes all that has begun and takes nothing new. One
// service drains on request while the appliance serves, or all drain when it ends.
//
// A service is asked once, on the main thread. Service::request_drain defines what its drain does.
// A drain cannot be undone.
//
// Threads: any for wish(), state_of(), drains_alone(), find() and name_of(); the main thread for
// the rest.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace bedplate {

class Service;

class ServiceDrains {
 public:
  enum class State : uint8_t { kServing, kWished, kDraining, kDrained };

  // Call it before the seal: it allocates. Requires: called once. Ownership: `services` outlive
  // this object.
  void create(std::span<Service* const> services);

  size_t count() const noexcept { return entries_.size(); }
  std::optional<size_t> find(std::string_view name) const noexcept;
  // Requires, here and below: `index` is below count().
  const char* name_of(size_t index) const noexcept;
  State state_of(size_t index) const noexcept;
  bool drains_alone(size_t index) const noexcept;
  // Marks the service to be asked at the next turn(), unless it was asked before. Requires: it
  // drains alone.
  void wish(size_t index) noexcept;

  // Called regularly: asks the services that wish() has marked, and updates the states of all.
  void turn() noexcept;
  // Asks all services that were not asked yet.
  void begin_all() noexcept;
  // The names of services that are not drained: "cache, relay". Empty: all are drained. It asks
  // each service, so call it after begin_all().
  std::string undrained() const;

 private:
  struct Entry {
    Service* service = nullptr;
    std::atomic<State> state{State::kServing};  // relaxed: no other data depends on it
  };

  static void begin(Entry& entry) noexcept;
  static bool is_drained(const Entry& entry) noexcept;

  std::deque<Entry> entries_;
};

// "serving", "wished", "draining", "drained".
const char* to_text(ServiceDrains::State state) noexcept;

}  // namespace bedplate
