// State that the parts of a LinkConnector share with one another and with the connector. Each
// member has a contract of its own.
//
// Threads: the connector's; some functions of the members allow any.
#pragma once

#include <vector>

#include "platform/assert.h"
#include "platform/log_limit.h"
#include "platform/thread_owner.h"
#include "transport/verbs/connect/connection_manager.h"
#include "transport/verbs/connect/link_backoff.h"
#include "transport/verbs/connect/link_changes.h"
#include "transport/verbs/connect/link_connector_options.h"
#include "transport/verbs/connect/link_events.h"
#include "transport/verbs/connect/link_talks.h"
#include "transport/verbs/connect/refused_hosts.h"
#include "transport/verbs/connect/verbs_link.h"

namespace bedplate {

struct LinkParts {
  // ---- Set once ----

  LinkConnectorOptions options;
  std::vector<VerbsLink*> links;

  // ---- Shared ----

  std::vector<LinkBackoff> backoffs;  // of each link
  ThreadOwner owner;                  // held by the connector's thread, in debug builds
  LinkEvents events;
  ConnectionManager manager;
  LinkTalks talks{events, manager, owner};
  LinkChanges changes;
  RefusedHosts refused_hosts;

  bool is_own_thread() const noexcept { return owner.is_caller(); }
  LinkBackoff& backoff(const VerbsLink& link) noexcept {
    BP_DCHECK(link.index < backoffs.size() && is_own_thread());
    return backoffs[link.index];
  }
  // Returns nullptr if no link has the name.
  VerbsLink* link_named(const char* name) const noexcept {
    for (VerbsLink* link : links) {
      if (link->name == name) return link;
    }
    return nullptr;
  }
};

}  // namespace bedplate
