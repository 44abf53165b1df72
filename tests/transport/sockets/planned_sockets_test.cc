// Sockets and watches are counted against the plan of their shard.
#include "tests/transport/sockets/stream_sockets_fixture.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "platform/assert.h"
#include "tests/support/stderr_capture.h"

using namespace bedplate;

class PlannedBodies : public SocketsFixture {
 public:
  ShardPlan own_plan{"main"};

  PlannedBodies() {
    own_plan.add(current_heap_owner(), "cache", {0, 1, 1});
    plan = &own_plan;
  }

  void sockets_as_planned() {
    connect_pair();
    Ours other;
    other.socket.fd = peer.number();
    test::StderrCapture capture;
    LONGS_EQUAL(ENOSPC, sockets->attach(other.socket));
    STRCMP_EQUAL("bedplate: warning: broken contract: service cache attaches more sockets to shard "
                 "main than it plans, 1: ServicePlan::connections (bp_plan_connections); "
                 "it is refused (ENOSPC)\n",
                 capture.finish().c_str());
    sockets->detach(ours.socket);
    LONGS_EQUAL(0, sockets->attach(other.socket));
    sockets->detach(other.socket);
    LONGS_EQUAL(0, sockets->attach(ours.socket));  // as teardown() expects
  }

  void watches_as_planned() {
    const Fd events[] = {Fd(eventfd(0, EFD_CLOEXEC)), Fd(eventfd(0, EFD_CLOEXEC))};
    Watch watches[2];
    for (int i = 0; i < 2; ++i) {
      watches[i].fd = events[i].number();
      watches[i].events = POLLIN;
      watches[i].ready = [](void*, uint32_t) noexcept {};
    }
    LONGS_EQUAL(0, sockets->start_watching(watches[0]));
    test::StderrCapture capture;
    LONGS_EQUAL(ENOSPC, sockets->start_watching(watches[1]));
    STRCMP_EQUAL("bedplate: warning: broken contract: service cache watches more descriptors on "
                 "shard main than it plans, 1: ServicePlan::watches (bp_plan_watches); "
                 "it is refused (ENOSPC)\n",
                 capture.finish().c_str());
    sockets->stop_watching(watches[0]);
    LONGS_EQUAL(0, sockets->start_watching(watches[1]));
    sockets->stop_watching(watches[1]);
  }

  // A release looks at the sum alone.
  void each_service_by_itself() {
    own_plan.add(HeapOwner{kHeapOwnerCountMax - 1}, "store", {0, 1, 0});
    connect_pair();
    Ours other;
    other.socket.fd = peer.number();
    test::StderrCapture capture;
    LONGS_EQUAL(0, sockets->attach(other.socket));
    STRCMP_EQUAL(BP_DEBUG == 0 ? ""
                               : "bedplate: warning: broken contract: service cache attaches more "
                                 "sockets to shard main than it plans, 1: ServicePlan::connections "
                                 "(bp_plan_connections)\n",
                 capture.finish().c_str());
    sockets->detach(other.socket);
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(Planned, PlannedBodies);

BP_BOTH_BACKENDS(Planned, NoMoreSocketsAreAttachedThanPlanned, sockets_as_planned())
BP_BOTH_BACKENDS(Planned, NoMoreDescriptorsAreWatchedThanPlanned, watches_as_planned())
BP_BOTH_BACKENDS(Planned, ADebugBuildLooksAtEachServiceByItself, each_service_by_itself())
