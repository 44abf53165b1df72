#include "apps/boot/openings.h"

#include <sys/socket.h>
#include <unistd.h>

#include "apps/boot/appliance_user.h"
#include "apps/services/planned_datagrams.h"

namespace bedplate {
namespace {

void open_joiners(const Configuration& configuration, const AppliancePlan& plan,
                  JoinListener* joiners, std::vector<Error>* problems) {
  if (auto made = joiners->open(configuration.messages.socket); !made.ok()) {
    return problems->push_back(made.error());
  }
  auto found = find_appliance_user(configuration);
  if (!found.ok() || !found.value()) return;  // check_appliance_user() has reported it
  const User& user = *found.value();
  if (lchown(configuration.messages.socket.c_str(), user.id, user.group) != 0) {
    problems->push_back(error_from_errno("giving %s to the user %s",
                                         configuration.messages.socket.c_str(), user.name.c_str())
                            .set_cure("run it in a container with CAP_CHOWN"));
  }
  // SO_PEERCRED shows a connecting process the user that called listen() last. So the appliance's
  // later user listens again, and clients see that user from the start.
  const auto listen_again = [joiners](std::vector<Error>*) {
    (void)listen(joiners->number(), SOMAXCONN);
  };
  std::vector<Error> told_already;
  look_as_appliance(configuration, plan, listen_again, &told_already);
}

}  // namespace

Openings open_all(const Configuration& configuration, const AppliancePlan& plan,
                  OpeningPurpose purpose, std::vector<Error>* problems) {
  const bool is_boot = purpose == OpeningPurpose::kBoot;
  Openings opened;
  opened.listeners = open_listeners(plan.services, is_boot, problems);
  opened.files = open_files(plan.services, is_boot, problems);
  opened.datagrams = open_datagrams(plan.services, problems);
  if (!plan.groups.empty()) open_joiners(configuration, plan, &opened.joiners, problems);
  return opened;
}

}  // namespace bedplate
