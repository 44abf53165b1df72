// The Ceph images of a block service: which volumes lie on which. An image is mapped once, for all
// volumes that lie on it; one that is written to has one volume.
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
  // A volume `name` on `image`, for which the cluster has ceph.timeout_s; `ceph` is else the same
  // for all. Returns what maps the image: this object's, until clear().
  // Errors (kConfiguration): two volumes on one image, of which one writes, or that disagree.
  Result<DeviceMaker*> add(const std::string& name, const RbdImage& image,
                           const CephSettings& ceph);

 private:
  struct Image {
    std::string volume;  // the first that lies on it
    RbdMaker maker;
  };

  RbdBus& bus_;
  CephMonitors monitors_;
  std::deque<Image> images_;
};

}  // namespace bedplate
