// The Ceph cluster of a block service: the addresses of its monitors, and the key. The kernel's
// client does the rest (rbd_mapping.h).
//
// This part reads the key from a keyring in Ceph's format, and checks that a monitor answers before
// the kernel is asked to map: if the kernel's own wait fails, the kernel gives no cause.
// Threads: the main thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "platform/result.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {

struct CephSettings {
  std::vector<SocketAddress> monitors;
  std::string user;         // without "client."
  std::string keyring;      // the path of a file
  uint32_t timeout_s = 60;  // for volumes without an rbd_timeout_s
};

// Wipes the bytes of a secret when its scope ends, so that no crash record keeps them. The bytes
// outlive the scope.
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

// Returns the key of "client.`user`" in the file `path`, in base64. The caller wipes it; no other
// copy of the file's content remains.
// Errors: the file is refused (read_secret_file()) or is over 64 KiB; it has no such user; or the
// user has no key in base64.
Result<std::string> read_ceph_key(const std::string& path, const std::string& user);

// The monitors of one cluster, shared by all its images.
class CephMonitors {
 public:
  // Waits until one of `monitors` answers in the default protocol of the kernel's client (v1; its
  // usual port is 6789). Requires: `monitors` are the same at each call.
  // Errors: no monitor has answered so within `timeout_ns`, or all have failed earlier. Later calls
  // with the same or a shorter timeout return the same error at once.
  Result<void> reach(const std::vector<SocketAddress>& monitors, uint64_t timeout_ns);

 private:
  Error silence_;
  uint64_t silence_ns_ = 0;
};

// The addresses of the monitors, as the kernel takes them: "10.0.0.1:6789,[fd00::1]:6789".
std::string ceph_monitor_list(const std::vector<SocketAddress>& monitors);

}  // namespace bedplate
