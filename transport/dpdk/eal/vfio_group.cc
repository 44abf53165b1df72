#include "transport/dpdk/eal/vfio_group.h"

#include <rte_vfio.h>

#include "platform/text_words.h"
#include "transport/dpdk/eal/eal_log.h"

namespace bedplate {

Result<int> open_eal_vfio_group(const std::string& number) {
  int id = 0;
  const int group = parse_number(number, &id) ? rte_vfio_get_group_fd(id) : -1;
  if (group >= 0) return group;
  return error_while("opening IOMMU group %s by EAL", number.c_str())
      .set_answer("%s", take_eal_error())
      .set_cure("end the other program that uses a device of the group, and let this one read and "
                "write /dev/vfio/%s",
                number.c_str());
}

}  // namespace bedplate
