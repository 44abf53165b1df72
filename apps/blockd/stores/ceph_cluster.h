// The Ceph cluster of a block service: where its monitors are, and with which key they are spoken
// to. The kernel's client does all the rest (rbd_mapping.h).
//
// It reads the key from a keyring as Ceph's own tools write it, and looks whether a monitor answers
// before the kernel is asked to, whose wait says nothing about its cause.
// Threads: the main thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "platform/result.h"
#include "transport/socket_address.h"

namespace bedplate {

struct CephSettings {
  std::vector<SocketAddress> monitors;
  std::string user;         // without "client."
  std::string keyring;      // the path of a file
  uint32_t timeout_s = 60;  // of volumes that say none
};

// Bytes of a secret, which a crash record would keep: they are gone where the scope ends, which
// they outlive.
class Wiped {
 public:
  Wiped(char* bytes, size_t size) noexcept : bytes_(bytes), size_(size) {}
  Wiped(const Wiped&) = delete;
  Wiped& operator=(const Wiped&) = delete;
  ~Wiped() { explicit_bzero(bytes_, size_); }

 private:
  char* const bytes_;
  const size_t size_;
};

// The key of "client.`user`" in the file `path`, in base64: the caller's to wipe, as is nothing
// else of the file.
// Errors: it cannot be read, or by others than its owner, too; it has no such user, or no key.
Result<std::string> read_ceph_key(const std::string& path, const std::string& user);

// The monitors of one cluster, asked on behalf of each of its images.
class CephMonitors {
 public:
  // Waits until one of `monitors`, which are always the same, speaks the protocol that the kernel's
  // client speaks to it by default (v1, port 6789).
  // Errors: none has within `timeout_ns`, and why. That is then said at once to others that would
  // wait no longer.
  Result<void> reach(const std::vector<SocketAddress>& monitors, uint64_t timeout_ns);

 private:
  Error silence_;
  uint64_t silence_ns_ = 0;
};

// "10.0.0.1:6789,[fd00::1]:6789", as the kernel takes them.
std::string ceph_monitor_list(const std::vector<SocketAddress>& monitors);

}  // namespace bedplate
