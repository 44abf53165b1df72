// The Ceph images of a block service, and the volumes on each. An image is mapped once, for all its
// volumes; an image that is written to has one volume.
// Threads: the main thread.
#pragma once

#include <deque>
#include <string>

#include "apps/blockd/stores/rbd_mapping.h"

namespace bedplate {

class RbdImages {
 public:
  // `bus` outlives this.
  explicit RbdImages(RbdBus& bus) : bus_(bus) {}

  // Forgets the volumes of an earlier plan.
  void clear();
  bool is_empty() const noexcept { return images_.empty(); }
  // Adds a volume `name` on `image`. `ceph` has the timeout_s of this volume; its other values are
  // the same for all volumes. Returns the maker that maps the image; this object owns the maker
  // until clear().
  // Errors (kConfiguration): two volumes use one image and one of them writes, or their timeouts
  // differ.
  Result<DeviceMaker*> add(const std::string& name, const RbdImage& image,
                           const CephSettings& ceph);

 private:
  struct Image {
    std::string volume;  // the first volume that uses it
    RbdMaker maker;
  };

  RbdBus& bus_;
  CephMonitors monitors_;
  std::deque<Image> images_;
};

}  // namespace bedplate
