// Watches this machine's network while a program runs. The kernel reports that a link, an address
// or a route has changed; then the watch says which interface has a name, or leads to an address.
//
// An interface that is deleted and made again, as by a driver that is loaded anew, has its old name
// and a new number. The kernel forgets all that it kept for the old number: memberships of groups,
// the interface that multicast is sent by. So callers keep interfaces by name, and look their
// numbers up again after each change.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>

#include "platform/file.h"
#include "platform/result.h"
#include "transport/sockets/netlink.h"

namespace bedplate {

// Numbers of interfaces, as they are now.
class InterfaceNumbers {
 public:
  virtual ~InterfaceNumbers() = default;

  // The number of the interface with this name; 0: there is none.
  virtual uint32_t index_of(const std::string& interface) noexcept = 0;
  // The number of the interface by which the routes lead to `address`; 0: none does.
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
