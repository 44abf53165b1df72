// Every counter of losses, drops or refusals has an alert, or says why it has none.
#include <string>
#include <vector>

#include "alloc/keyed_cache_counters.h"
#include "apps/blockd/nbd_counters.h"
#include "apps/blockd/stores/nvme_drives.h"
#include "apps/blockd/volume_counters.h"
#include "apps/boot/pool_counters.h"
#include "apps/boot/runtime_counters.h"
#include "apps/control/control_session.h"
#include "apps/counters/counter_alerts.h"
#include "apps/http/http_session.h"
#include "apps/kvd/kv_counters.h"
#include "apps/ports/eal_counters.h"
#include "apps/tsrelay/relay_counters.h"
#include "transport/dpdk/net/net_counters.h"
#include "transport/dpdk/port/port_counters.h"
#include "transport/files/files.h"
#include "transport/loop/limit_counters.h"
#include "transport/loop/loop_counters.h"
#include "transport/shm/endpoint/shm_counters.h"
#include "transport/sockets/socket_counters.h"
#include "transport/sockets/stream_server.h"
#include "transport/tls/tls_counters.h"
#include "transport/verbs/channel/verbs_counters.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

using AlertRule = CounterAlert::Rule;

template <typename Counters>
CounterSet set_of() {
  // The labels that texts of alerts name.
  return {"some", "set", "one", sizeof(Counters), described_counters<Counters>(), {{"place", ""}}};
}

// All counters of this tree. tests/system/command_line_test.py compares this list with the sources.
template <typename... Counters>
std::vector<CounterSet> sets_of() {
  return {set_of<Counters>()...};
}
std::vector<CounterSet> all_sets() {
  return sets_of<PoolCounters, WayBackCounters, SegmentCounters, OwnerCounters, HeapCounters,
                 HeapOwnerCounters, HeapClassCounters, ShardCounters, EventLoopCounters,
                 SocketCounters, SourceCounters, GroupCounters, ShmCounters, VerbsCounters,
                 DatagramCounters, ShardGroupCounters, SignalCounters, ProcessCounters,
                 VfioCounters, PeersCounters, PeerCounters, FileCounters, TlsCounters,
                 ControlCounters, HttpCounters, kvd::Counters, nbd::ConnectionCounters,
                 nbd::LaneCounters, VolumeRequestCounters, VolumeCounters, LimitCounters,
                 StoreCounters, NvmeCounters, NvmeQueueCounters, EalCounters, PortCounters,
                 PortQueueCounters, NetCounters, relay::StreamCounters, relay::LegCounters,
                 relay::OutputCounters, relay::RecordingCounters, relay::ReaderCounters,
                 KeyedCacheCounters, StreamServerCounters, MoveCounters>();
}

CounterDescription described(const char* name, const char* help, const char* unit = "packets",
                             CounterKind kind = CounterKind::kCounter) {
  return {name, kind, unit, help};
}

}  // namespace

TEST_GROUP(CounterTroubles){};

TEST(CounterTroubles, AreKnownByTheirWords) {
  CHECK(tells_of_trouble(described("dropped", "Some.")));
  CHECK(tells_of_trouble(described("some", "Dropped: no RTP.")));
  CHECK(tells_of_trouble(described("some", "Requests answered with an error.")));
  CHECK(tells_of_trouble(described("file_errors", "Some.")));
  CHECK(tells_of_trouble(described("some", "What lay in it is LOST.")));
  CHECK(tells_of_trouble(
      described("down", "Whether it was refused.", "boolean", CounterKind::kGauge)));
  CHECK(!tells_of_trouble(described("packets", "Valid datagrams received.")));
  CHECK(!tells_of_trouble(described("plosses", "Displosses.")));
  CHECK(!tells_of_trouble(
      described("peak", "The first that was missing.", "packets", CounterKind::kGauge)));
  CHECK(tells_of_trouble(described("lost", "Some.", "packets", CounterKind::kGauge)));
}

TEST(CounterTroubles, HaveAnAlertOrAReason) {
  std::string lacking;
  for (const CounterSet& set : all_sets()) {
    for (const CounterDescription& each : set.counters) {
      const bool is_told = each.alert.rule != AlertRule::kNone || !each.alert.why_none.empty();
      if (tells_of_trouble(each) && !is_told) lacking += each.name + ": " + each.help + "\n";
    }
  }
  STRCMP_EQUAL("", lacking.c_str());
}

// Alerts name existing counters, and their texts fit. The text of an alert on growth has the value
// of a counter.
TEST(CounterTroubles, AlertsAreSound) {
  for (const CounterSet& set : all_sets()) {
    for (const CounterDescription& each : set.counters) {
      const char* const defect = defect_of(each.alert, set);
      if (defect != nullptr) FAIL((each.name + ": " + defect + ": " + each.alert.says).c_str());
      if (each.alert.rule != AlertRule::kGrows) continue;
      CHECK_TEXT(each.alert.says.find('{') != std::string::npos, each.alert.says.c_str());
    }
  }
}
