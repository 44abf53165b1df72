// [verbs], its peers and exports: the meaning of the keys, and every refusal with its exact
// position.
#include "apps/peers/verbs_settings.h"
#include "tests/apps/configuration/configuration_support.h"

using namespace bedplate;

namespace {

// Returns the valid file with [verbs] at line 13, and `lines` in it.
std::string with(const std::string& lines) { return file_with({}) + "[verbs]\n" + lines; }

constexpr const char* kListen = "listen = \"tcp:10.0.0.1:7471\"\n";

std::string with_peers(const std::string& lines) { return with(kListen + lines); }

}  // namespace

TEST_GROUP(VerbsTables){};

// ---- Accepted files ----

TEST(VerbsTables, AbsentItIsOff) { CHECK(!verbs_settings(parsed(file_with({}))).enabled); }

TEST(VerbsTables, ShortTablesHaveTheDefaults) {
  STRCMP_CONTAINS(" verbs 1 '' 0 0 tcp:10.0.0.1:7471 0 64 4096 64 1048576 0 1 0 10 1000 30000 0 '' "
                  "'' peer b -",
                  described(parsed(with_peers("[[verbs.peer]]\nname = \"b\"\n"))).c_str());
  LONGS_EQUAL(1, verbs_settings(parsed(with(""))).max_peers);
}

TEST(VerbsTables, EveryKeyArrives) {
  const std::string text = file_with({}) + R"([[shard]]
name = "net"
cpu = 1
[verbs]
required = false
device = "mlx5_0"
port = 2
shard = "net"
listen = "unix:/run/verbs.sock"
connect = "socket"
window = 128
message_bytes = "8 KiB"
operations = 9
bounce_bytes = "8 MiB"
datagrams = 256
max_peers = 5
trust_windows = true
back_off_min_ms = 20
back_off_max_ms = 40
give_up_ms = 50
remote = "read"
driver = "rdma_rxe"
interface = "eth0"
[[verbs.peer]]
name = "b"
address = "tcp:[fd00::2]:7471"
[[verbs.peer]]
name = "c"
[[verbs.export]]
name = "area"
bytes = "16 MiB"
rights = ["atomic", "read"]
pages = "4 KiB"
[[verbs.export]]
name = "box"
bytes = 4096
rights = ["write"]
)";
  STRCMP_CONTAINS(" verbs 0 'mlx5_0' 2 1 unix:/run/verbs.sock 0 128 8192 9 8388608 256 5 1 20 40 "
                  "50 1 'rdma_rxe' 'eth0' peer b tcp:[fd00::2]:7471 peer c - export area 16777216 "
                  "101 0 export box 4096 010 -",
                  described(parsed(text)).c_str());
  CHECK(verbs_settings(parsed(with("connect = \"rdma_cm\"\n"))).connect == VerbsConnect::kRdmaCm);
}

TEST(VerbsTables, AProcessMayUseThem) {
  CHECK(parsed(file_with_messages("verbs = true\n[verbs]\n")).processes[0].verbs);
  REFUSED("f:20:9: \"verbs\" is true, but there is no [verbs]; add the table [verbs], or leave "
          "verbs out",
          file_with_messages("verbs = true\n"));
  ACCEPTED(file_with_messages("verbs = false\n"));
}

// ---- Refused files ----

TEST(VerbsTables, RefusesNumbers) {
  const struct {
    const char* key;
    long min, max;
    bool is_power_of_two;
  } kNumbers[] = {{"port", 1, 255, false},
                  {"window", 4, 4096, true},
                  {"message_bytes", 256, 65536, true},
                  {"operations", 1, 4096, false},
                  {"datagrams", 4, 4096, true},
                  {"max_peers", 1, 256, false},
                  {"back_off_max_ms", 10, 600'000, false},
                  {"give_up_ms", 1, 86'400'000, false}};
  for (const auto& number : kNumbers) {
    const std::string key = std::string(number.key) + " = ";
    ACCEPTED(with(key + std::to_string(number.min) + "\n"));
    ACCEPTED(with(key + std::to_string(number.max) + "\n"));
    CHECK_TEXT(!refusal(with(key + std::to_string(number.min - 1) + "\n")).empty(), number.key);
    CHECK_TEXT(!refusal(with(key + std::to_string(number.max + 1) + "\n")).empty(), number.key);
    if (number.is_power_of_two) {
      CHECK_TEXT(!refusal(with(key + std::to_string(number.min * 3) + "\n")).empty(), number.key);
    }
  }
  REFUSED("f:14:10: \"window\" is 48, not a power of two; expected integer: 4..4096, a power of "
          "two",
          with("window = 48\n"));
}

// A call over rdma_cm carries its caller's name as a hash.
TEST(VerbsTables, RefusesNamesThatRdmaCmCannotTellApart) {
  const std::string table = "[[verbs.peer]]\nname = ";
  const std::string peers = table + "\"glbvs\"\n" + table + "\"yacxa\"\n";
  ACCEPTED(with_peers(peers));
  REFUSED("f:19:8: \"name\" is \"yacxa\", which has the same hash as \"glbvs\"; give the peer "
          "another name: rdma_cm transfers only a hash (docs/verbs.md)",
          with_peers("connect = \"rdma_cm\"\n" + peers));
}

TEST(VerbsTables, RefusesAddresses) {
  for (const char* wrong : {"10.0.0.1:7471", "tcp:10.0.0.1", "tcp:host:1", "activation:", "unix:a",
                            "tcp:10.0.0.1:0", ""}) {
    REFUSED("f:14:10: \"listen\" is \"" + std::string(wrong) +
                "\"; expected address: "
                "tcp:ADDRESS:PORT or unix:/PATH",
            with("listen = \"" + std::string(wrong) + "\"\n"));
  }
  REFUSED("f:14:10: \"listen\" is an integer; expected address: tcp:ADDRESS:PORT or unix:/PATH",
          with("listen = 7471\n"));
  const std::string cm = "connect = \"rdma_cm\"\n";
  REFUSED("f:15:10: \"listen\" is \"unix:/a\"; expected tcp:ADDRESS:PORT: rdma_cm supports nothing "
          "else",
          with(cm + "listen = \"unix:/a\"\n"));
  REFUSED("f:17:11: \"address\" is \"unix:/a\"; expected tcp:ADDRESS:PORT: rdma_cm supports "
          "nothing else",
          with(cm + "[[verbs.peer]]\nname = \"b\"\naddress = \"unix:/a\"\n"));
}

TEST(VerbsTables, RefusesPeers) {
  const std::string b = "[[verbs.peer]]\nname = \"b\"\n";
  REFUSED("f:18:8: \"name\" \"b\" is already used by the [[verbs.peer]] at line 16; expected a "
          "different one: each [[verbs.peer]] has its own",
          with_peers(b + b));
  REFUSED("f:16:8: \"name\" is \"demo\", the name of this appliance; expected the peer's name in "
          "its [appliance]",
          with_peers("[[verbs.peer]]\nname = \"demo\"\n"));
  REFUSED("f:16:8: \"name\" is \"b\", the name of a [[process]]; give the process another name: "
          "messages are sent to both by name",
          with_peers(b + "[[process]]\nname = \"b\"\nuser = \"root\"\ntrusted = false\n"));
  REFUSED("f:14:1: \"address\" is missing in [[verbs.peer]]; expected address: tcp:ADDRESS:PORT or "
          "unix:/PATH; or set \"listen\" in [verbs], if the peer can dial",
          with(b));
  const std::string at = "address = \"tcp:10.0.0.2:1\"\n";
  ACCEPTED(with(b + at));
  REFUSED("f:19:11: \"address\" \"tcp:10.0.0.2:1\" is already used by the [[verbs.peer]] at line "
          "16; expected a different one: each [[verbs.peer]] has its own",
          with(b + at + "[[verbs.peer]]\nname = \"c\"\n" + at));
  REFUSED("f:15:13: \"max_peers\" is 1, but there are 2 peers; expected that many or more, or "
          "leave it out",
          with_peers("max_peers = 1\n" + b + "[[verbs.peer]]\nname = \"c\"\n"));
  const std::string long_name(32, 'x');
  REFUSED("f:1:1: the name of the appliance, \"" + long_name +
              "\", is too long for [verbs]; "
              "expected name in [appliance]: at most 31 bytes",
          file_with(2, "name = \"" + long_name + "\"") + "[verbs]\n");
}

TEST(VerbsTables, RefusesExports) {
  const auto with_export = [](const std::string& bytes, const std::string& rights) {
    return with("[[verbs.export]]\nname = \"a\"\nbytes = " + bytes + "\nrights = " + rights + "\n");
  };
  const std::string expected =
      "expected list of choices: 1..3 of \"read\", \"write\" or \"atomic\", unique";
  ACCEPTED(with_export("4096", "[\"read\"]"));
  REFUSED("f:17:10: \"rights\" has 0 elements; " + expected, with_export("4096", "[]"));
  REFUSED("f:17:11: element 1 of \"rights\" is \"own\"; " + expected,
          with_export("4096", "[\"own\"]"));
  REFUSED("f:17:19: element 2 of \"rights\" appears twice; " + expected,
          with_export("4096", "[\"read\", \"read\"]"));
  REFUSED("f:16:9: \"bytes\" is 5000 bytes, not a multiple of 4 KiB; expected size: 4 KiB..64 TiB, "
          "a multiple of 4 KiB",
          with_export("5000", "[\"read\"]"));
}

TEST(VerbsTables, RefusesWhatDoesNotGoTogether) {
  REFUSED("f:14:19: \"back_off_max_ms\" is 5, but \"back_off_min_ms\" is 10; expected the longest "
          "pause between two attempts to be no shorter than the first",
          with("back_off_max_ms = 5\n"));
  REFUSED("f:14:19: \"back_off_max_ms\" is 1000, but \"back_off_min_ms\" is 2000; expected the "
          "longest pause between two attempts to be no shorter than the first",
          with("back_off_min_ms = 2000\n"));
  REFUSED("f:13:1: \"interface\" is missing in [verbs]; expected text: the network interface that "
          "soft RoCE (rdma_rxe) is put on",
          with("driver = \"rdma_rxe\"\n"));
  REFUSED("f:15:1: \"interface\" is only for driver = \"rdma_rxe\"; leave it out: other devices "
          "have their interface",
          with("driver = \"mlx5_ib\"\ninterface = \"eth0\"\n"));
  REFUSED("f:14:9: no shard has the name \"net\"; expected one of: main",
          with("shard = \"net\"\n"));
}
