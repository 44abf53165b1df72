// The names of devices, and the errors for devices that are missing.
#include "transport/dpdk/port/port_device.h"

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/death_test.h"
#include "tests/support/fake_root.h"
#include "transport/dpdk/eal/drivers.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using Kind = PortDevice::Kind;

namespace {

constexpr uid_t kNobody = 65534;

void check_parsed(const char* text, Kind kind, const char* argument) {
  auto device = parse_port_device(text);
  CHECK_TEXT(device.ok(), text);
  CHECK(device.value().kind == kind);
  STRCMP_EQUAL(argument, device.value().argument.c_str());
  STRCMP_EQUAL(text, device.value().text().c_str());
}

void check_refused(const char* text, const char* answer) {
  auto device = parse_port_device(text);
  CHECK_FALSE_TEXT(device.ok(), text);
  CHECK(device.error().kind == ErrorKind::kConfiguration);
  STRCMP_EQUAL_TEXT(answer, device.error().answer, text);
  STRCMP_CONTAINS("af_packet:eth0", device.error().cure);
}

std::vector<Error> look_at(const std::string& text, bool is_memif_server = false) {
  std::vector<Error> problems;
  look_at_port_device("wan", parse_port_device(text).take(), is_memif_server, &problems);
  return problems;
}

}  // namespace

TEST_GROUP(PortDevice){};

TEST(PortDevice, EachKindHasAWord) {
  check_parsed("0000:03:00.0", Kind::kPci, "0000:03:00.0");
  check_parsed("ab12:Ff:1f.7", Kind::kPci, "ab12:Ff:1f.7");
  check_parsed("af_packet:eth0", Kind::kAfPacket, "eth0");
  check_parsed("af_xdp:eth0", Kind::kAfXdp, "eth0");
  check_parsed("tap:lan", Kind::kTap, "lan");
  check_parsed("memif:/run/a.sock", Kind::kMemif, "/run/a.sock");
  check_parsed("ring:loop", Kind::kRing, "loop");
  check_parsed("null", Kind::kNull, "");
}

TEST(PortDevice, OtherWordsAreRefusedWithTheirReason) {
  check_refused("", "this kind of device does not exist");
  check_refused("eth0", "this kind of device does not exist");
  check_refused("03:00.0", "this kind of device does not exist");
  check_refused("0000:03:00.0x", "this kind of device does not exist");
  check_refused("0000:0g:00.0", "this kind of device does not exist");
  check_refused("pcap:eth0", "this kind of device does not exist");
  check_refused("af_packet", "its name or path is missing");
  check_refused("af_packet:", "its name or path is missing");
  check_refused("af_packet:a-name-of-17-bytes", "it is too long");
  check_refused("af_packet:eth0,qpairs=9", "it contains a space, a comma or a similar character");
  check_refused("af_packet:../eth0", "a name must not contain /");
  check_refused("memif:run/a.sock", "the path does not begin with /");
  check_refused("null:0", "this kind of device has no name or path");
}

TEST(PortDevice, WhatIsNotThereIsSaidWithItsCure) {
  std::vector<Error> problems = look_at("af_packet:no-such-if");
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("looking for the device af_packet:no-such-if of the port wan", problems[0].doing);
  STRCMP_EQUAL("there is no such network interface", problems[0].answer);
  STRCMP_EQUAL("name one that `ip link` lists", problems[0].cure);

  // The runtime reports the problems of a PCI device (tests/transport/vfio).
  LONGS_EQUAL(0, look_at("ffff:ff:1f.7").size());

  problems = look_at("memif:/no/such/folder/a.sock");
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("No such file or directory", problems[0].answer);
  STRCMP_CONTAINS("mkdir -p /no/such/folder/", problems[0].cure);
}

TEST(PortDevice, AServerOfMemifNeedsAFolderThatItMayWriteTo) {
  char folder[] = "/tmp/bedplate-memif-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  LONGS_EQUAL(0, chmod(folder, 0555));
  const std::string device = std::string("memif:") + folder + "/a.sock";
  LONGS_EQUAL(0, test::exit_code_of([&] {
                if (getuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) return 1;
                if (!look_at(device).empty()) return 2;
                const auto problems = look_at(device, true);
                if (problems.size() != 1) return 3;
                return std::string_view(problems[0].cure).ends_with("write to it") ? 0 : 4;
              }));
  rmdir(folder);
}

TEST(PortDevice, ADeviceOfPciWhoseDriverIsNotLinkedInIsNamed) {
  test::FakeRoot machine;
  const std::string device = "/sys/bus/pci/devices/0000:03:00.0";
  for (const char* part : {"/subsystem_vendor", "/subsystem_device"}) {
    machine.write(device + part, "0x1af4\n");
  }
  machine.write(device + "/vendor", "0x1234\n");
  machine.write(device + "/device", "0x11e8\n");
  std::vector<Error> problems;
  const PortDevice port = parse_port_device("0000:03:00.0").take();
  look_at_port_device("wan", port, false, &problems, machine.path());
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("looking for the device 0000:03:00.0 of the port wan", problems[0].doing);
  STRCMP_CONTAINS("it is a 1234:11e8, for which no driver is linked in; linked in are: af_",
                  problems[0].answer);
  STRCMP_CONTAINS("build with its driver in DRIVERS", problems[0].cure);

  machine.write(device + "/vendor", "0x8086\n");
  machine.write(device + "/device", "0x10d3\n");
  problems.clear();
  look_at_port_device("wan", port, false, &problems, machine.path());
  LONGS_EQUAL(has_dpdk_driver("e1000") ? 0 : 1, problems.size());
}

TEST(PortDevice, WhatNeedsNothingOfTheMachineIsAlwaysThere) {
  LONGS_EQUAL(0, look_at("null").size());
  LONGS_EQUAL(0, look_at("ring:loop").size());
  LONGS_EQUAL(0, look_at("memif:/tmp/a.sock").size());
  LONGS_EQUAL(0, look_at("memif:/tmp/a.sock", true).size());
}
