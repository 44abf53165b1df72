// The quirks that are worked around, for each device. The tests that device_quirks.h names show
// that each quirk exists and is worked around.
#include "transport/verbs/device/device_quirks.h"

#include "tests/support/skip.h"
#include "tests/support/soft_roce.h"
#include "transport/verbs/device/verbs_device.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

int count_of(const DeviceQuirks& quirks) {
  return quirks.reset_keeps_reads + quirks.ends_without_answer + quirks.hides_long_messages +
         quirks.loses_manager + quirks.ignores_window_bounds;
}

}  // namespace

TEST_GROUP(VerbsQuirks){};

TEST(VerbsQuirks, AreThoseOfSoftRoceAlone) {
  ibv_device_attr device = {};
  device.vendor_id = 0xff'ffff;
  LONGS_EQUAL(4, count_of(quirks_of(device)));  // its windows are probed
  for (const uint32_t vendor : {0x0002c9u, 0x0014e4u, 0x008086u, 0x626d74u}) {  // the last: siw
    device.vendor_id = vendor;
    LONGS_EQUAL(0, count_of(quirks_of(device)));
  }
}

TEST(VerbsQuirks, AreDecidedWhenTheDeviceIsOpened) {
  if (!has_verbs_device()) BP_SKIP(kNoVerbs);
  auto opened = VerbsDevice::open({});
  CHECK(opened.ok());
  const VerbsDevice& device = *opened.value();
  const bool is_soft = device.port().device.starts_with("rxe");
  LONGS_EQUAL(is_soft ? 5 : device.quirks().ignores_window_bounds, count_of(device.quirks()));
}
