// Maps an image of a Ceph cluster as a block device of the kernel (module rbd), while the appliance
// has it open.
//
// A child process maps the image and unmaps it: both need CAP_SYS_ADMIN, and the appliance has
// given this up by the time it drains. The child starts before memory is taken and threads are
// started. It keeps one descriptor of its parent, one end of a socket pair, and unmaps when the
// other end is closed. So the image is also unmapped if the appliance is killed.
//
// The child holds the device by a lock on the device's `config_info` (flock(2)). The lock ends with
// the child, so a device without it is a left-over, unless it was just added (join_adding()). Each
// appliance that only reads an image has a device of its own.
// Threads: the main thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "apps/blockd/stores/ceph_cluster.h"
#include "apps/services/planned_files.h"
#include "platform/file.h"

namespace bedplate {

// A device, and the lock that holds it.
struct HeldRbd {
  uint32_t id = 0;
  Fd lock;
};

// The kernel's side of a mapping: /sys/bus/rbd of a machine
// (Documentation/ABI/testing/sysfs-bus-rbd). The child adds and removes devices. The parent calls
// is_there(), is_allowed() and device_path(), and if the child has failed, it unmaps a left-over.
class RbdBus {
 public:
  // `root` is a prefix of /sys and /dev.
  explicit RbdBus(std::string root = "") : root_(std::move(root)) {}
  RbdBus(const RbdBus&) = delete;
  RbdBus& operator=(const RbdBus&) = delete;
  virtual ~RbdBus() = default;

  // Whether the kernel has the module.
  bool is_there() const;
  // Whether the kernel lets this thread map and unmap.
  virtual bool is_allowed() const;
  std::string device_path(uint32_t id) const { return root_ + "/dev/rbd" + std::to_string(id); }

  // Each returns 0 or an errno. add() waits for the cluster.
  virtual int add(const std::string& text) { return write_to("add_single_major", text); }
  virtual int remove(uint32_t id) { return write_to("remove_single_major", std::to_string(id)); }
  // Finds a device that was added with this text; nothing: there is none.
  std::optional<uint32_t> find(std::string_view text) const;
  // Finds a device, added with this text, that no process holds; nothing: there is none. The
  // returned object holds the device.
  std::optional<HeldRbd> hold(std::string_view text) const;
  // A device just added is not held yet. So a process that adds a device keeps the lock of
  // join_adding() until it holds the device, and a process that looks for left-overs keeps the lock
  // of alone() while it looks. join_adding() waits for processes that look. alone() does not wait:
  // it returns a closed Fd while others add or look. Both return a closed Fd if they cannot lock.
  Fd join_adding() const;
  Fd alone() const;

 protected:
  std::string bus() const { return root_ + "/sys/bus/rbd"; }

 private:
  int write_to(const char* file, const std::string& text) const;
  Fd turn(int operation) const;  // flock()'s
  // Calls `each` with the devices that were added with this text until it returns true.
  template <typename Each>
  void look_through(std::string_view text, Each&& each) const;

  const std::string root_;
};

// An image to be mapped. The image's exclusive lock reserves a writable image for this mapping.
struct RbdImage {
  std::string pool;
  std::string image;
  bool is_writable = false;

  std::string name() const { return pool + "/" + image; }
};

// Splits "pool/image". Errors (kConfiguration): `name` has no such form, or has a blank, a comma or
// an "@".
Result<RbdImage> parse_rbd_image(const std::string& name);

// The text that tells the kernel to map `image`. It contains the key: the caller wipes it.
std::string rbd_map_text(const CephSettings& ceph, const std::string& key, const RbdImage& image);

// Maps the image of one volume, or of several that only read it.
class RbdMaker final : public DeviceMaker {
 public:
  // `bus` and `monitors` outlive this, and all devices that it makes. ceph.timeout_s bounds each of
  // two waits: for a monitor, then for the mapping.
  RbdMaker(RbdBus& bus, CephMonitors& monitors, CephSettings ceph, RbdImage image)
      : bus_(bus), monitors_(monitors), ceph_(std::move(ceph)), image_(std::move(image)) {}

  const RbdImage& image() const noexcept { return image_; }
  uint32_t timeout_s() const noexcept { return ceph_.timeout_s; }

  // Returns the same device while anybody holds a pointer to it. A device that was mapped with the
  // very same text is unmapped first if its appliance is gone. If its appliance lives, the device
  // stays: then a read-only image is mapped once more, and a writable one is refused.
  // Errors: no module, no CAP_SYS_ADMIN, no key, no monitor, no result in time, or a refusal of the
  // kernel or the cluster. After any error make() returns the same error without asking again.
  Result<std::shared_ptr<MadeDevice>> make() override;

 private:
  Result<std::shared_ptr<MadeDevice>> map_anew();

  RbdBus& bus_;
  CephMonitors& monitors_;
  const CephSettings ceph_;
  const RbdImage image_;
  std::weak_ptr<MadeDevice> made_;
  std::optional<Error> refusal_;
};

}  // namespace bedplate
