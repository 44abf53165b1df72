// NUMA nodes: the kernel's lists of nodes, the nodes of this machine, of cores and of devices, and
// binding to a node.
#include "platform/numa.h"

#include <cerrno>

#include <sys/sysmacros.h>

#include "platform/cpu.h"
#include "tests/support/fake_root.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Numa){};

TEST(Numa, ListsAreTheKernels) {
  CHECK(parse_nodes("0\n") == NodeSet(0b1));
  CHECK(parse_nodes("0-1\n") == NodeSet(0b11));
  CHECK(parse_nodes("1,3-5,7\n") == NodeSet(0b10111010));
  CHECK(parse_nodes("1023").test(1023));
}

TEST(Numa, WhatIsNoListIsEmpty) {
  for (const char* text : {"", "\n", "-", ",1", "x", "1024", "5-4", "99999999999999999999"}) {
    CHECK_TEXT(parse_nodes(text).none(), text);
  }
  LONGS_EQUAL(3, parse_nodes("1021-99999999").count());
}

TEST(Numa, EveryMachineHasANodeWithMemory) { CHECK(memory_nodes().any()); }

TEST(Numa, EveryCoreHasANodeThatExists) {
  for (int cpu = 0; cpu < 64; ++cpu) {
    if (cpu_is_usable(cpu)) CHECK(memory_nodes().test(static_cast<size_t>(node_of_cpu(cpu))));
  }
  LONGS_EQUAL(0, node_of_cpu(100'000));
}

TEST(Numa, ADeviceIsWhereItOrTheNearestAboveItSays) {
  test::FakeRoot sysfs;
  sysfs.write("/host/numa_node", "1\n");
  sysfs.write("/host/bridge/numa_node", "3\n");
  sysfs.write("/host/bridge/drive/numa_node", "-1\n");
  sysfs.write("/host/bridge/drive/namespace/size", "7\n");
  const auto node_of = [&](const char* name) {
    return node_of_device((sysfs.path() + name).c_str());
  };
  LONGS_EQUAL(3, node_of("/host/bridge"));
  LONGS_EQUAL(3, node_of("/host/bridge/drive/namespace"));
  LONGS_EQUAL(1, node_of("/host"));
  LONGS_EQUAL(kAnyNode, node_of(""));
  LONGS_EQUAL(kAnyNode, node_of("/host/none"));
  sysfs.write("/host/bridge/drive/numa_node", "99999999999\n");
  LONGS_EQUAL(3, node_of("/host/bridge/drive"));
}

TEST(Numa, ABlockDeviceThatThereIsNotIsAtAnyNode) {
  LONGS_EQUAL(kAnyNode, node_of_block_device(makedev(0xfff, 0xfffff)));
}

TEST(Numa, AreNamedInMessages) {
  STRCMP_EQUAL("node 12", format_node(12).text);
  STRCMP_EQUAL("any node", format_node(kAnyNode).text);
}

TEST(Numa, NothingIsBoundToAnyNode) {
  LONGS_EQUAL(0, bind_to_node(nullptr, 4096, kAnyNode));
  if (memory_nodes().count() == 1) LONGS_EQUAL(0, bind_to_node(nullptr, 4096, 0));
}
