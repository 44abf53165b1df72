// The devices that this program's DPDK drivers support, according to their PMD_INFO_STRING.
#include "transport/dpdk/eal/pci_drivers.h"

#include "transport/dpdk/eal/drivers.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr char kText[] =
    "PMD_INFO_STRING= {\"name\": \"net_77\", \"kmod\": \"* vfio-pci 1, 2, 3, 4\", \"pci_ids\": "
    "[[32902, 4298, 65535, 65535], [5555, 65535, 7, 8]]}";

}  // namespace

TEST_GROUP(PciDrivers){};

TEST(PciDrivers, ADriverIsForWhatItsTextLists) {
  CHECK(is_driver_for(kText, {0x8086, 4298, 1, 2}));
  CHECK(is_driver_for(kText, {5555, 1, 7, 8}));
  CHECK(is_driver_for(kText, {5555, 2, 7, 8}));
}

TEST(PciDrivers, AndForNothingElse) {
  CHECK_FALSE(is_driver_for(kText, {0x8086, 4299, 1, 2}));
  CHECK_FALSE(is_driver_for(kText, {0x8087, 4298, 1, 2}));
  CHECK_FALSE(is_driver_for(kText, {5555, 1, 7, 9}));
  CHECK_FALSE(is_driver_for(kText, {1, 2, 3, 4}));  // numbers in front of the list
}

TEST(PciDrivers, AnotherTextIsNoDrivers) {
  CHECK_FALSE(is_driver_for("", {1, 2, 3, 4}));
  CHECK_FALSE(is_driver_for("PMD_INFO_STRING= ", {1, 2, 3, 4}));
  CHECK_FALSE(is_driver_for("PMD_INFO_STRING= {\"pci_ids\": []}", {1, 2, 3, 4}));
  CHECK_FALSE(is_driver_for("PMD_INFO_STRING= {\"pci_ids\": [[1, 2, 3", {1, 2, 3, 4}));
  CHECK_FALSE(is_driver_for("\"pci_ids\": [[1, 2, 3, 4]]", {1, 2, 3, 4}));
}

TEST(PciDrivers, OfEachDriverInThisProgramADeviceIsKnown) {
  struct Known {
    const char* driver;
    PciIdentity device;
  };
  constexpr Known kKnown[] = {
      {"e1000", {0x8086, 0x10d3, 0x8086, 0}},  // QEMU's e1000e
      {"vmxnet3", {0x15ad, 0x07b0, 0x15ad, 0x07b0}},
      {"virtio", {0x1af4, 0x1041, 0x1af4, 0x1100}},
      {"mlx5", {0x15b3, 0x1017, 0, 0}},   // ConnectX-5
      {"ice", {0x8086, 0x1593, 0, 0}},    // E810-C
      {"i40e", {0x8086, 0x1572, 0, 0}},   // X710
      {"ixgbe", {0x8086, 0x10fb, 0, 0}},  // 82599
      {"ena", {0x1d0f, 0xec20, 0, 0}},
  };
  for (const Known& known : kKnown) {
    CHECK_EQUAL_TEXT(has_dpdk_driver(known.driver), has_pci_driver(known.device), known.driver);
  }
}

TEST(PciDrivers, WhatNoDriverIsForIsNotKnown) {
  CHECK_FALSE(has_pci_driver({0x1234, 0x11e8, 0x1af4, 0x1100}));  // QEMU's edu
  CHECK_FALSE(has_pci_driver({0xffff, 0xffff, 0xffff, 0xffff}));
}
