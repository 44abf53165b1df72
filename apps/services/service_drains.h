// The drains of services, in which they finish what was begun and take nothing new: of one service
// on request while the appliance serves, or of all when it ends.
//
// A service is asked once, on the control thread, by whichever part wants it. The service says what
// its drain is (Service::request_drain); nothing takes a drain back.
//
// Threads: wish(), state_of() and drains_alone() any one, find() and name_of() as well; the rest is
// the control thread's.
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

  // Before the seal: it allocates. Requires: called once. Ownership: `services` outlive this.
  void create(std::span<Service* const> services);

  size_t count() const noexcept { return entries_.size(); }
  std::optional<size_t> find(std::string_view name) const noexcept;
  // Requires, here and below: `index` is below count().
  const char* name_of(size_t index) const noexcept;
  State state_of(size_t index) const noexcept;
  bool drains_alone(size_t index) const noexcept;
  // Has the service asked at the next turn(), unless it was asked before. Requires: it drains
  // alone.
  void wish(size_t index) noexcept;

  // To be called now and then: asks the services that wish() was called for, and sees how far they
  // are.
  void turn() noexcept;
  // Asks all that were not asked yet.
  void begin_all() noexcept;
  // The names of those that are not drained: "cache, peers"; empty: all are.
  std::string undrained() const;

 private:
  struct Entry {
    Service* service = nullptr;
    std::atomic<State> state{State::kServing};
  };

  static void begin(Entry& entry) noexcept;
  static bool is_drained(const Entry& entry) noexcept;

  std::deque<Entry> entries_;
};

// "serving", "wished", "draining", "drained".
const char* to_text(ServiceDrains::State state) noexcept;

}  // namespace bedplate
