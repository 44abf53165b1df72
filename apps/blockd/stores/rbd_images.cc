#include "apps/blockd/stores/rbd_images.h"

#include <algorithm>

namespace bedplate {

void RbdImages::clear() {
  images_.clear();
  monitors_ = {};
}

Result<DeviceMaker*> RbdImages::add(const std::string& name, const RbdImage& image,
                                    const CephSettings& ceph) {
  const auto is_it = [&](const Image& each) { return each.maker.image().name() == image.name(); };
  const auto found = std::find_if(images_.begin(), images_.end(), is_it);
  if (found == images_.end()) {
    images_.push_back({name, {bus_, monitors_, ceph, image}});
    return &images_.back().maker;
  }
  Error error = configuration_error_while("putting volume %s on the Ceph image %s", name.c_str(),
                                          image.name().c_str());
  const char* other = found->volume.c_str();
  if (image.is_writable || found->maker.image().is_writable) {
    error.set_answer("volume %s uses it, too, and one of them writes to it", other);
    return error.set_cure("name another image, or set read_only = true for each");
  }
  if (found->maker.timeout_s() == ceph.timeout_s) return &found->maker;
  error.set_answer("volume %s has another timeout for it", other);
  return error.set_cure("set the same rbd_timeout_s");
}

}  // namespace bedplate
