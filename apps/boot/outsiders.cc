#include "apps/boot/outsiders.h"

#include <algorithm>

#include "apps/boot/messages_plan.h"
#include "pinned_pool/join/join_roster.h"
#include "platform/user.h"

namespace bedplate {
namespace {

const ProcessSettings* find_outsider(const Configuration& configuration,
                                     const OwnerName& segment) noexcept {
  for (const ProcessSettings& process : configuration.processes) {
    if (!may_write(configuration, process, segment)) continue;
    if (is_outsider(configuration, process)) return &process;
  }
  return nullptr;
}

Error refusal(const ProcessSettings& process, const OwnerName& segment) noexcept {
  return configuration_error_while("granting %s to the process %s", segment.text,
                                   process.name.c_str());
}

// A user that does not exist is refused before anybody joins.
uint32_t user_of(const Configuration& configuration) noexcept {
  const std::string& name = configuration.appliance.user;
  if (name.empty()) return own_user();
  auto user = find_user_id(name.c_str());
  return user.ok() ? user.value() : own_user();
}

const char* why_outsider(const ProcessSettings& process) noexcept {
  return process.trusted ? "it runs as another user" : "it is not trusted";
}

}  // namespace

bool is_outsider(const Configuration& configuration, const ProcessSettings& process) noexcept {
  auto user = find_user_id(process.user.c_str());
  return !user.ok() || is_outsider(process.trusted, user.value(), user_of(configuration));
}

bool may_write(const Configuration& configuration, const ProcessSettings& process,
               const OwnerName& segment) noexcept {
  if (names_segment("heap:" + process.name, segment)) return true;
  if (process.trusted) {
    if (segment == OwnerName("fifo", configuration.groups[process.group].name)) return true;
  } else if (names_segment("exchange:" + process.name, segment)) {
    return true;
  }
  return std::any_of(process.write.begin(), process.write.end(),
                     [&](const std::string& text) { return names_segment(text, segment); });
}

Result<void> keep_from_outsiders(const Configuration& configuration,
                                 std::vector<SegmentRequest>* segments) {
  for (SegmentRequest& segment : *segments) {
    const ProcessSettings* outsider = find_outsider(configuration, segment.owner);
    if (outsider == nullptr) continue;
    if (segment.owner.view().starts_with("export:")) {
      return refusal(*outsider, segment.owner)
          .set_answer("%s, and could remove pages that peers access through the RDMA device",
                      why_outsider(*outsider))
          .set_cure("name it in read, or let a trusted process of the appliance's user write it");
    }
    Placement& placement = segment.placement;
    if (placement.is_own_wish && placement.pages != PageWish::k4KiB) {
      return refusal(*outsider, segment.owner)
          .set_answer("%s, and could remove hugepages that the appliance uses",
                      why_outsider(*outsider))
          .set_cure("set its pages to \"4 KiB\", or leave pages out, or name it in read");
    }
    placement.pages = PageWish::k4KiB;
    segment.is_for_devices = false;
  }
  return {};
}

}  // namespace bedplate
