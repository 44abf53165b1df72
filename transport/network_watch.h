// What becomes of this machine's network while a program runs: the kernel's word that a link, an
// address or a route is another one, and what interface has a name, or leads to an address, now.
//
// An interface that is deleted and made again, as by a driver that is loaded anew, has its name and
// another number; what the kernel kept for the old one (memberships of groups, where multicast is
// sent) is gone. So what is to last is kept by name, and looked up when something has changed.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>

#include "platform/file.h"
#include "platform/result.h"
#include "transport/netlink.h"

namespace bedplate {

// Numbers of interfaces, as they are now.
class InterfaceNumbers {
 public:
  virtual ~InterfaceNumbers() = default;

  // Of the interface of this name; 0: there is none.
  virtual uint32_t index_of(const std::string& interface) noexcept = 0;
  // Of the interface by which the routes lead to `address`; 0: none does.
  virtual uint32_t index_toward(const IpAddress& address) noexcept = 0;
  virtual bool is_there(uint32_t index) noexcept = 0;
};

class NetworkWatch final : public InterfaceNumbers {
 public:
  // Descriptors that it has open.
  static constexpr uint32_t kDescriptors = 3;

  // Before the seal. Errors (kSystem): the system's, with what to do. Each of the others may be
  // called all the same: anything may have changed then, and no route is known.
  Result<void> create() noexcept;

  // Whether anything was changed since this was asked last. Never blocks.
  bool has_changed() noexcept;
  uint32_t index_of(const std::string& interface) noexcept override;
  uint32_t index_toward(const IpAddress& address) noexcept override;
  bool is_there(uint32_t index) noexcept override;

 private:
  Fd names_;  // to ask for names and numbers by
  Fd news_;
  NetlinkSocket questions_;
  bool can_ask_ = false;
};

}  // namespace bedplate
