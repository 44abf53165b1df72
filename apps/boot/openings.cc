#include "apps/boot/openings.h"

#include <sys/socket.h>

#include "apps/boot/appliance_user.h"
#include "apps/boot/planned_datagrams.h"

namespace bedplate {
namespace {

void open_joiners(const Configuration& configuration, const AppliancePlan& plan,
                  JoinListener* joiners, std::vector<Error>* problems) {
  if (auto made = joiners->open(configuration.messages.socket); !made.ok()) {
    return problems->push_back(made.error());
  }
  if (configuration.appliance.user.empty()) return;
  // Those that connect are told the user that listened last, from the first moment on the one that
  // the appliance is going to be.
  const auto listen_again = [joiners](std::vector<Error>*) {
    (void)listen(joiners->number(), SOMAXCONN);
  };
  std::vector<Error> told_already;  // check_appliance_user() says why it cannot become that user
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
