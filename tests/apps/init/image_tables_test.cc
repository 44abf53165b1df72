// The tables that only the first process of an image uses.
#include "apps/init/image_settings.h"
#include "tests/apps/configuration/configuration_support.h"

using namespace bedplate;

namespace {

// Returns the valid file with `lines` appended, from line 13 on.
std::string with(const std::string& lines) { return file_with({}) + lines; }

}  // namespace

TEST_GROUP(ImageTables){};

TEST(ImageTables, EveryKeyArrives) {
  const auto c = parsed(with(R"([init]
on_terminate = "halt"
on_ctrl_alt_del = "power-off"
[[network]]
interface = "eth0"
address = "192.0.2.7/25"
gateway = "192.0.2.1"
mtu = 9000
driver = "e1000e"
[[network]]
interface = "eth1"
address = "fd00::7/64"
gateway = "fd00::1"
[watchdog]
device = "/dev/watchdog1"
timeout_s = 3600
required = false
driver = "softdog"
[crash]
action = "halt"
delay_s = 0
dump = "owners"
owners = ["heap", "volume:ram0"]
device = "/dev/vda"
drivers = ["virtio_blk", "ramoops"]
)"));
  STRCMP_EQUAL(" init 2 1 network eth0 192.0.2.7/25 192.0.2.1 9000 e1000e network eth1 fd00::7/64 "
               "fd00::1 0 virtio_net watchdog 1 /dev/watchdog1 3600 0 softdog crash 2 0 2 heap "
               "volume:ram0 /dev/vda virtio_blk ramoops",
               described_init(c).c_str());
}

TEST(ImageTables, DefaultsAreThose) {
  STRCMP_EQUAL(" init 1 0 watchdog 0 /dev/watchdog 30 1  crash 0 5 0 ",
               described_init(parsed(file_with({}))).c_str());
  CHECK(image_settings(parsed(with("[watchdog]\n"))).watchdog.enabled);
}

TEST(ImageTables, AnImageMayListenElsewhere) {
  const auto c =
      parsed(file_with(9, "listen = [\"tcp:127.0.0.1:1\"]\nimage_listen = [\"tcp:0.0.0.0:2\"]"));
  LONGS_EQUAL(1, c.blockd().listen.size());
  LONGS_EQUAL(1, c.blockd().image_listen.size());
  STRCMP_EQUAL("tcp:0.0.0.0:2", c.blockd().image_listen[0].text().c_str());
  // The two lists may take the same port: only one of them is used.
  ACCEPTED(file_with(9, "listen = [\"tcp:127.0.0.1:1\"]\nimage_listen = [\"tcp:0.0.0.0:1\"]"));
  REFUSED("f:10:36: \"tcp:0.0.0.0:2\" clashes with \"tcp:127.0.0.1:2\" at line 10; expected "
          "another port or path (0.0.0.0 and [::] use a port on all addresses)",
          file_with(9, "listen = [\"tcp:127.0.0.1:1\"]\n"
                       "image_listen = [\"tcp:127.0.0.1:2\", \"tcp:0.0.0.0:2\"]"));
}

TEST(ImageTables, RefusesAddresses) {
  const std::string expected =
      "; expected address/prefix: a numeric IPv4 or IPv6 address, / and the prefix length, unique";
  for (const char* wrong : {"10.0.0.1", "10.0.0.1/", "10.0.0.1/33", "10.0.0.1/0", "10.0.0/8",
                            "fd00::/129", "host/24", "10.0.0.1/24 ", "10.0.0.1/+8", ""}) {
    REFUSED("f:15:11: \"address\" is \"" + std::string(wrong) + "\"" + expected,
            with("[[network]]\ninterface = \"a\"\naddress = \"" + std::string(wrong) + "\"\n"));
  }
  REFUSED("f:16:11: \"gateway\" is \"10.0.0.1/8\"; expected address: a numeric IPv4 or IPv6 "
          "address",
          with("[[network]]\ninterface = \"a\"\naddress = \"10.0.0.2/8\"\n"
               "gateway = \"10.0.0.1/8\"\n"));
}

TEST(ImageTables, AGatewayNeedsAnAddressOfItsKind) {
  REFUSED("f:15:11: \"gateway\" is \"10.0.0.1\", but the interface has no address; expected an "
          "\"address\" from which the gateway can be reached",
          with("[[network]]\ninterface = \"a\"\ngateway = \"10.0.0.1\"\n"));
  REFUSED("f:16:11: \"gateway\" is \"10.0.0.1\", but the interface has an address of the other "
          "family; expected an \"address\" from which the gateway can be reached",
          with("[[network]]\ninterface = \"a\"\naddress = \"fd00::2/64\"\n"
               "gateway = \"10.0.0.1\"\n"));
}

TEST(ImageTables, AGatewayLiesInTheNetwork) {
  REFUSED("f:16:11: \"gateway\" is \"10.0.1.1\", but the interface has the address "
          "\"10.0.0.2/24\"; expected an \"address\" from which the gateway can be reached",
          with("[[network]]\ninterface = \"a\"\naddress = \"10.0.0.2/24\"\n"
               "gateway = \"10.0.1.1\"\n"));
  ACCEPTED(with("[[network]]\ninterface = \"a\"\naddress = \"10.0.0.2/23\"\n"
                "gateway = \"10.0.1.1\"\n"));
  ACCEPTED(with("[[network]]\ninterface = \"a\"\naddress = \"fd00::2/64\"\n"
                "gateway = \"fe80::1\"\n"));
}

TEST(ImageTables, AFamilyHasOneGateway) {
  const std::string one = "[[network]]\ninterface = \"a\"\naddress = \"10.0.0.2/24\"\n"
                          "gateway = \"10.0.0.1\"\n[[network]]\ninterface = \"b\"\n";
  REFUSED("f:20:11: \"gateway\" \"10.0.1.1\" is the second of its address family: a has one "
          "already; expected one gateway for IPv4 and one for IPv6: leave out the others",
          with(one + "address = \"10.0.1.2/24\"\ngateway = \"10.0.1.1\"\n"));
  ACCEPTED(with(one + "address = \"fd00::2/64\"\ngateway = \"fd00::1\"\n"));
}

TEST(ImageTables, ADumpsDeviceIsOneWord) {
  for (const char* wrong : {"/dev/disk/by-label/a b", "/dev/%p"}) {
    REFUSED("f:15:10: \"device\" is \"" + std::string(wrong) +
                "\", which the kernel would not read as one word; expected a path without blanks "
                "or %",
            with("[crash]\ndump = \"metadata\"\ndevice = \"" + std::string(wrong) + "\"\n"));
  }
}

TEST(ImageTables, InterfacesAreDifferent) {
  REFUSED("f:16:13: \"interface\" \"a\" is already used by the [[network]] at line 14; expected a "
          "different one: each [[network]] has its own",
          with("[[network]]\ninterface = \"a\"\n[[network]]\ninterface = \"a\"\n"));
}

TEST(ImageTables, ADumpHasADeviceAndOwners) {
  REFUSED("f:13:1: \"device\" is missing in [crash]; expected path: the block device that a dump "
          "is written to; or dump = \"none\"",
          with("[crash]\ndump = \"metadata\"\n"));
  REFUSED("f:13:1: \"owners\" is missing in [crash]; expected list of owners: the segments that "
          "the dump keeps",
          with("[crash]\ndump = \"owners\"\ndevice = \"/dev/vda\"\n"));
  REFUSED("f:14:1: \"device\" is only for a dump; leave it out, or set \"dump\"",
          with("[crash]\ndevice = \"/dev/vda\"\n"));
  REFUSED("f:16:1: \"owners\" is only for dump = \"owners\"; leave it out, or set dump to "
          "\"owners\"",
          with("[crash]\ndump = \"metadata\"\ndevice = \"/dev/vda\"\nowners = [\"heap\"]\n"));
}
