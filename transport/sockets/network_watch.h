// Watches this machine's network while a program runs. It tells whether the kernel has reported a
// change of a link, an address or a route. The caller then looks up the interface of a name, or
// toward an address.
//
// An interface that is deleted and made again, as when a driver is reloaded, has its old name and a
// new number. The kernel forgets everything about the old number: group memberships, and the
// interface for sent multicast. So callers keep interfaces by name, and look their numbers up again
// after each change.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>

#include "platform/file.h"
#include "platform/result.h"
#include "transport/sockets/netlink.h"

namespace bedplate {

// The current numbers of interfaces.
class InterfaceNumbers {
 public:
  virtual ~InterfaceNumbers() = default;

  // The number of the interface with this name; 0: no interface has it.
  virtual uint32_t index_of(const std::string& interface) noexcept = 0;
  // The number of the interface by which the routes lead to `address`; 0: no route does.
  virtual uint32_t index_toward(const IpAddress& address) noexcept = 0;
  // Whether an interface has this number.
  virtual bool is_there(uint32_t index) noexcept = 0;
};

class NetworkWatch final : public InterfaceNumbers {
 public:
  // The number of descriptors that a watch opens.
  static constexpr uint32_t kDescriptors = 3;

  // Before the seal. Errors (kSystem): the system's, with what to do. After an error the other
  // functions may still be called: has_changed() returns true each time, and a look-up whose socket
  // is missing finds nothing.
  Result<void> create() noexcept;

  // Whether anything changed since the last call. Never blocks.
  bool has_changed() noexcept;
  uint32_t index_of(const std::string& interface) noexcept override;
  uint32_t index_toward(const IpAddress& address) noexcept override;
  bool is_there(uint32_t index) noexcept override;

 private:
  Fd names_;  // the socket that asks for names and numbers
  Fd news_;
  NetlinkSocket questions_;
  bool can_ask_ = false;
};

}  // namespace bedplate
