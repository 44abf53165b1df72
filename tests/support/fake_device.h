// A device that registers nothing: it accepts regions according to its kind, numbers them from 100,
// and remembers them.
#pragma once

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include "transport/registration.h"

namespace bedplate::test {

class FakeDevice final : public Device {
 public:
  const DeviceKind& kind() const noexcept override { return limits; }
  Result<void> register_regions(std::span<Region> given) override {
    ++registrations;
    if (fails) {
      errno = ENOMEM;
      return error_from_errno("registering with the fake device");
    }
    for (size_t i = 0; i < given.size(); ++i) given[i].key = 100 + i;
    regions.assign(given.begin(), given.end());
    return {};
  }
  void deregister_regions(std::span<const Region> given) noexcept override {
    ++deregistrations;
    is_same = std::equal(given.begin(), given.end(), regions.begin(), regions.end(),
                         [](const Region& a, const Region& b) {
                           return a.address == b.address && a.bytes == b.bytes && a.key == b.key;
                         });
    if (table != nullptr) key_at_deregistration = table->key(regions[0].address, 1).key;
  }

  DeviceKind limits{.name = "fake"};
  bool fails = false;
  std::vector<Region> regions;
  int registrations = 0;
  int deregistrations = 0;
  bool is_same = false;  // the deregistered regions equal the registered ones
  const KeyTable* table = nullptr;
  Key key_at_deregistration = 0;
};

}  // namespace bedplate::test
