// The settings that a file gives (apps/configuration/configuration_checks.h), and every refusal of
// a file's shape with its exact position.
#include "tests/apps/configuration/configuration_support.h"

#include <algorithm>
#include <cstdio>
#include <random>

using namespace bedplate;

namespace {

// Returns `count` copies of a table, each with a number of its own.
std::string shards(int count) {
  std::string text;
  for (int index = 0; index < count; ++index) {
    const std::string number = std::to_string(index);
    text += "[[shard]]\nname = \"s" + number + "\"\ncpu = " + number + "\n";
  }
  return text;
}

std::string volumes(int count) {
  std::string text;
  for (int index = 0; index < count; ++index) {
    text += "[[blockd.volume]]\nname = \"v" + std::to_string(index) + "\"\nbytes = 4096\n";
  }
  return text;
}

}  // namespace

TEST_GROUP(Configuration){};

// ---- Accepted files ----

TEST(Configuration, SmallestFileHasTheDefaults) {
  const auto c = parsed(file_with({{8, ""}, {9, ""}, {10, ""}, {11, ""}, {12, ""}}));
  STRCMP_EQUAL("demo /run/bedplate 5000 268435456 1 0 33554432 - - 2 50 100 0 shard main 0 blockd "
               "0 0 64 64 10000 60",
               described(c).c_str());
  CHECK(c.event_loop.sockets == SocketBackendChoice::kIoUringOrEpoll);
}

TEST(Configuration, EveryKeyArrives) {
  const std::string text = R"(
[appliance]
name = "store-1"
runtime_directory = "/tmp/run"
drain_timeout_ms = 0
[pool]
bytes = "2 GiB"
pages = "1 GiB"
enforce = "seccomp"
heap_min_bytes = 1
heap_pages = "largest"
heap_node = 1023
[alloc]
expect = "ordinary"
[event_loop]
sockets = "epoll"
spin_us = 1000000
stall_ms = 600000
[[shard]]
name = "a"
cpu = 1023
[[shard]]
name = "b"
cpu = 1
[[shard]]
name = "c"
cpu = 2
[blockd]
listen = ["tcp:127.0.0.1:1", "tcp:[::1]:65535", "unix:/tmp/s", "activation:"]
connections_shard = "b"
volumes_shards = ["a"]
max_connections = 4096
requests_per_connection = 1024
handshake_timeout_ms = 100
client_timeout_s = 0
[[blockd.volume]]
name = "v"
bytes = 4096
[[blockd.volume]]
name = "w é"
bytes = "1TiB"
read_only = true
pages = "4 KiB"
node = 1
)";
  STRCMP_EQUAL("store-1 /tmp/run 0 2147483648 2 1 1 3 1023 1 1000000 600000 2 shard a 1023 shard b "
               "1 shard c 2 blockd 1 tcp:127.0.0.1:1 tcp:[::1]:65535 unix:/tmp/s activation: 1 0 "
               "4096 1024 100 0 volume v 4096 0 - - volume w é 1099511627776 1 0 1",
               described(parsed(text)).c_str());
}

TEST(Configuration, ConnectionsLiveOnTheFirstShardUnlessItIsSaid) {
  const auto c = parsed(file_with(5, "[[shard]]\nname = \"x\"\ncpu = 5\n[[shard]]"));
  CHECK(c.blockd().shards_of_connections() == std::vector<uint32_t>{0});
  CHECK(c.blockd().volumes_shards.empty());
}

TEST(Configuration, OtherSpellingsOfTomlMeanTheSame) {
  const std::string expected = described(parsed(file_with({})));
  const std::string inlined =
      "\xEF\xBB\xBFshard = [{name = 'main', cpu = 0x0}]\r\npool.bytes = 268_435_456\r\n"
      "appliance = {name = \"demo\"}\r\n[[blockd.volume]]\r\nbytes = \"65536KiB\"\r\n"
      "\"name\" = \"ram\\u0030\"\r\n[blockd]\r\nlisten = [\r\n  \"tcp:127.0.0.1:10809\",\r\n]\r\n";
  STRCMP_EQUAL(expected.c_str(), described(parsed(inlined)).c_str());
}

TEST(Configuration, AcceptsLettersBeyondAsciiAfterAContinuedLine) {
  const auto c = parsed(file_with(11, "name = \"\"\"\\\n  \u00A7\"\"\""));
  STRCMP_EQUAL("\u00A7", c.blockd().volumes[0].name.c_str());
}

TEST(Configuration, AllowsAsManyAsTheLimitsSay) {
  const std::string head = "[appliance]\nname = \"x\"\n[pool]\nbytes = \"2 MiB\"\n" + shards(64);
  ACCEPTED(head + "[blockd]\nlisten = [\"activation:\"]\n" + volumes(64));
}

// ---- No text, or no TOML ----

TEST(Configuration, RefusesWhatIsNoText) {
  REFUSED("f:1:1: the file is empty; docs/configuration.md shows the smallest file that works",
          std::string());
  REFUSED("f:1:1: the file is larger than 1 MiB; expected a configuration, which is a few KiB of "
          "TOML text",
          std::string(kMiB + 1, '\n'));
  REFUSED("f:1:1: [appliance] is missing in the file; docs/configuration.md shows the smallest "
          "file that works",
          std::string(kMiB, '\n'));
  REFUSED("f:2:10: a NUL byte; the file must be text", 2, std::string("name = \"d\0\"", 11));
  REFUSED("f:2:3: a NUL byte; the file must be text", 2, std::string("# \0", 3));
}

TEST(Configuration, RefusesWhatIsNotUtf8) {
  for (const char* bytes : {"\xFF", "\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                            "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3",
                            "\xE2\x82", "\xF0\x9F\x98", "\xE2\x28\xA1"}) {
    // A column counts characters, so é counts once.
    REFUSED("f:11:10: a byte that is not UTF-8; save the file as UTF-8 text", 11,
            "name = \"\xC3\xA9" + std::string(bytes) + "\"");
  }
  ACCEPTED(11, "name = \"\xC2\x80 \xDF\xBF \xE0\xA0\x80 \xEF\xBF\xBF \xF0\x90\x80\x80 "
               "\xF4\x8F\xBF\xBF\"");
}

TEST(Configuration, RefusesLinesAndNestingThatWouldOverflowTheStack) {
  ACCEPTED(2, "name = \"demo\" #" + std::string(2048 - 15, '-'));
  REFUSED("f:2:2049: the line is longer than 2048 bytes; break the line: an array may span several "
          "lines",
          2, "name = \"demo\" #" + std::string(2048 - 14, '-'));
  std::string dots = "a";
  while (dots.size() < 200000) dots += ".a";
  REFUSED("f:2:2049: the line is longer than 2048 bytes; break the line: an array may span several "
          "lines",
          2, dots + " = 1");
  REFUSED("f:2:16: not TOML: Error while parsing value: exceeded maximum nested value depth of 8 "
          "(TOML_MAX_NESTED_VALUES); expected TOML 1.0, as in docs/configuration.md",
          2, "name = " + std::string(9, '[') + std::string(9, ']'));
}

// The parser takes memory of segment 0. Without exceptions it could not recover if that ran out.
TEST(Configuration, RefusesMoreValuesThanBootHasMemoryFor) {
  std::string list = "x = [\n";  // each line has 1000 elements
  for (int line = 0; line < 300; ++line) {
    for (int element = 0; element < 1000; ++element) list += "1,";
    list += "\n";
  }
  REFUSED("f:10:382: more than 8192 keys, values and dots; expected a configuration, which has a "
          "few hundred",
          list + "]");
}

TEST(Configuration, RefusesWhatIsNoToml) {
  REFUSED("f:7:8: not TOML: Error while parsing key-value pair: cannot redefine existing string "
          "'name'; expected TOML 1.0, as in docs/configuration.md",
          7, "name = 1");
  REFUSED("f:5:1: not TOML: Error while parsing table header: cannot redefine existing table "
          "'pool'; expected TOML 1.0, as in docs/configuration.md",
          5, "[pool]");
  REFUSED("f:7:7: not TOML: Error while parsing value: could not determine value type; expected "
          "TOML 1.0, as in docs/configuration.md",
          7, "cpu = zero");
  // The code of the TOML library assumes that these cannot occur.
  for (const char* header :
       {"[[=", "[[[a]]]", "[[[]]", "[=", "[\"a\"", "[[", "\u00E9 = 1", "[\u00E9]", "x = \u00E9"}) {
    STRCMP_CONTAINS("f:8:", refusal(8, header).c_str());
  }
}

// ---- Keys and tables ----

TEST(Configuration, RefusesUnknownKeys) {
  REFUSED("f:5:3: unknown key \"pgaes\"; did you mean \"pages\"? [pool] may have: bytes, pages, "
          "enforce, heap_min_bytes, heap_pages, heap_node",
          4, "bytes = \"256 MiB\"\n  pgaes = 3");
  REFUSED("f:8:1: unknown key \"priority\"; [[shard]] may have: name, cpu", 7,
          "cpu = 0\npriority = 0");
  REFUSED("f:9:1: unknown key \"port\"; [blockd] may have: listen, image_listen, "
          "connections_shard, connections_shards, volumes_shards, max_connections, "
          "requests_per_connection, "
          "handshake_timeout_ms, client_timeout_s, tls_certificate, tls_key, "
          "tls_client_authorities, tls_shared_keys, plain_text, [blockd.ceph], "
          "[[blockd.volume]], [[blockd.tenant]], ...",
          8, "[blockd]\nport = 1");
  REFUSED(
      "f:13:1: unknown key \"readonly\"; did you mean \"read_only\"? [[blockd.volume]] may "
      "have: name, bytes, file, device, polled, nvme, nvme_namespace, nvme_queue_depth, "
      "nvme_timeout_ms, nvme_write_cache, rbd, rbd_timeout_s, buffer_bytes, operations, read_only, "
      "pages, node, shard, tenant, [blockd.volume.limits]",
      12, "bytes = \"64 MiB\"\nreadonly = true");
  REFUSED("f:12:1: unknown key \"x?" + std::string(62, 'y') + "..." +
              "\"; [[blockd.volume]] may have: name, bytes, file, device, polled, nvme, "
              "nvme_namespace, nvme_queue_depth, nvme_timeout_ms, nvme_write_cache, rbd, "
              "rbd_timeout_s, buffer_bytes, operations, read_only, pages, node, shard, tenant, "
              "[blockd.volume.limits]",
          12, "\"x\\n" + std::string(100, 'y') + "\" = 1\nbytes = \"64 MiB\"");
}

TEST(Configuration, RefusesUnknownTables) {
  REFUSED("f:8:2: unknown table \"block\": no service of this program has it; did you mean "
          "\"blockd\"? the file may have: [appliance], [pool], [alloc], [[limit]], [event_loop], "
          "[[shard]], [[group]], [[process]], [messages], [verbs], [init], [[network]], "
          "[watchdog], [crash], [dpdk], [[port]], [blockd], [kvd], [tsrelay], [http], [control]",
          file_with({{8, "[block]"}, {10, "[[block.volume]]"}}));
  REFUSED("f:10:10: unknown key \"volumes\"; did you mean \"volume\"?", 10, "[[blockd.volumes]]");
}

TEST(Configuration, AVolumeLiesInMemoryOnAFileOrOnADevice) {
  const auto volume = [](const char* lines) {
    const auto read = parsed(file_with({}) + "[[blockd.volume]]\nname = \"disk\"\n" + lines);
    return read.blockd().volumes.back();
  };
  CHECK(volume("bytes = \"1 MiB\"").is_memory());
  const VolumeSettings file = volume("file = \"/disk\"\nbuffer_bytes = \"33 MiB\"");
  CHECK(!file.is_memory() && file.bytes == 0 && file.queue.buffer_bytes == 33 * kMiB);
  STRCMP_EQUAL("/disk", file.path().c_str());
  const VolumeSettings device = volume("device = \"/dev/sdb\"\nbytes = 4096\noperations = 7");
  CHECK(!device.is_memory() && device.bytes == 4096 && device.queue.task_count == 7);
  REFUSED("f:13:10: the volume also has \"file\"; expected only one of them", 12,
          "file = \"/a\"\ndevice = \"/b\"");
}

TEST(Configuration, OnlyVolumesOfTheKernelsDrivesArePolled) {
  const auto read = parsed(file_with({}) + "[[blockd.volume]]\nname = \"disk\"\n"
                                           "device = \"/dev/a\"\npolled = true");
  CHECK(read.blockd().volumes.back().polled && !read.blockd().volumes.front().polled);
  const std::string refused = "f:13:1: \"polled\" is for a volume on a file or a block device; "
                              "expected \"file\" or \"device\" beside it";
  REFUSED(refused, 12, "bytes = 4096\npolled = true");
  REFUSED(refused, 12, "nvme = \"0000:01:00.0\"\npolled = true");
}

TEST(Configuration, AVolumeLiesOnADriveInstead) {
  const auto read =
      parsed(file_with({}) + "[[blockd.volume]]\nname = \"disk\"\nnvme = \"0000:01:00.0\"\n"
                             "nvme_namespace = 2\nnvme_write_cache = \"off\"");
  const VolumeSettings& drive = read.blockd().volumes.back();
  CHECK(!drive.is_memory() && drive.is_nvme() && drive.path().empty());
  LONGS_EQUAL(2, drive.nvme.space);
  CHECK(drive.nvme.has_write_cache.has_value() && !*drive.nvme.has_write_cache);
  REFUSED("f:13:8: the volume also has \"device\"; expected only one of them", 12,
          "device = \"/a\"\nnvme = \"0000:01:00.0\"");
  REFUSED("f:13:1: \"nvme_timeout_ms\" is for a volume on an NVMe drive; expected \"nvme\" beside "
          "it",
          12, "bytes = 4096\nnvme_timeout_ms = 1000");
}

TEST(Configuration, AVolumeLiesOnAnImageOfACluster) {
  const std::string volume = "[[blockd.volume]]\nname = \"disk\"\nrbd = \"rbd/disk\"\n";
  const std::string monitors = "monitors = [\"tcp:10.0.0.1:6789\", \"tcp:[fd00::1]:6789\"]\n";
  const std::string keyring = "keyring = \"/etc/ceph/keyring\"\n";
  const std::string cluster = "[blockd.ceph]\n" + monitors + "user = \"bed\"\n" + keyring;
  const auto file = [](const std::string& lines) { return file_with({}) + lines; };
  const auto read = parsed(file(volume + cluster + "timeout_s = 7"));
  const VolumeSettings& image = read.blockd().volumes.back();
  CHECK(!image.is_memory() && image.is_rbd() && image.path().empty());
  STRCMP_EQUAL("rbd/disk", image.rbd.c_str());
  const CephSettings& ceph = read.blockd().ceph;
  LONGS_EQUAL(2, ceph.monitors.size());
  STRCMP_EQUAL("bed", ceph.user.c_str());
  STRCMP_EQUAL("/etc/ceph/keyring", ceph.keyring.c_str());
  LONGS_EQUAL(7, ceph.timeout_s);
  LONGS_EQUAL(60, parsed(file(cluster + volume)).blockd().ceph.timeout_s);
  CHECK(!image.rbd_timeout_s.has_value());
  const auto own = parsed(file(volume + "rbd_timeout_s = 600\n" + cluster));
  LONGS_EQUAL(600, own.blockd().volumes.back().rbd_timeout_s.value_or(0));
  REFUSED("f:16:17: \"rbd_timeout_s\" is 601; expected integer: 1..600",
          file(volume + "rbd_timeout_s = 601\n" + cluster));
  REFUSED("f:13:1: \"rbd_timeout_s\" is for a volume on a Ceph image; expected \"rbd\" beside it",
          12, "bytes = 4096\nrbd_timeout_s = 7");
  REFUSED("f:20:13: \"timeout_s\" is 601; expected integer: 1..600",
          file(volume + cluster + "timeout_s = 601"));
  REFUSED("f:8:1: [blockd.ceph] is missing, but a volume has \"rbd\"; expected its monitors, user "
          "and keyring",
          file(volume));
  REFUSED("f:8:1: [blockd.ceph] is set, but no volume has \"rbd\"; expected such a volume, or "
          "no [blockd.ceph]",
          file(cluster));
  REFUSED("f:15:7: \"rbd\" is \"disk\", which is not the name of an image; expected "
          "\"POOL/IMAGE\"",
          file("[[blockd.volume]]\nname = \"disk\"\nrbd = \"disk\"\n" + cluster));
  REFUSED("f:17:12: a monitor is at unix:/mon; expected \"tcp:ADDRESS:PORT\"",
          file(volume + "[blockd.ceph]\nmonitors = [\"unix:/mon\"]\nuser = \"bed\"\n" + keyring));
  REFUSED("f:18:8: \"user\" has a comma or a blank; expected the X of client.X",
          file(volume + "[blockd.ceph]\n" + monitors + "user = \"bed,ro\"\n" + keyring));
}

TEST(Configuration, ReadsLimitsOfVolumesTenantsAndListeners) {
  const auto read = parsed(file_with(12, "bytes = \"64 MiB\"\ntenant = \"acme\"\n"
                                         "limits = { read_rate = 1, burst_ms = 3600000 }") +
                           "[[blockd.tenant]]\nname = \"acme\"\n"
                           "limits = { write_rate_bytes = \"1 TiB\" }\n"
                           "[[blockd.listener]]\naddress = \"tcp:127.0.0.1:10809\"\n"
                           "[blockd.listener.limits]\nread_rate_bytes = \"4 KiB\"\n"
                           "write_rate = 1000000000\n");
  const BlockdSettings& blockd = read.blockd();
  STRCMP_EQUAL("acme", blockd.volumes[0].tenant.c_str());
  CHECK(blockd.volumes[0].limits.reads() == (Rates{1, 0, 3600 * kNsPerSecond}));
  CHECK(!blockd.volumes[0].limits.writes().is_limited());
  LONGS_EQUAL(1, blockd.tenants.size());
  CHECK(blockd.tenants[0].limits.writes() == (Rates{0, kTiB, 100 * kNsPerMs}));
  LONGS_EQUAL(1, blockd.listeners.size());
  CHECK(blockd.listeners[0].limits.reads().bytes_per_second == 4096);
  CHECK(blockd.listeners[0].limits.writes().operations_per_second == 1'000'000'000);
  CHECK(!parsed(file_with({})).blockd().volumes[0].limits.are_limited());
}

TEST(Configuration, RefusesLimitsThatLetNothingGo) {
  const auto limits = [](const char* line) {
    return file_with({}) + "[blockd.volume.limits]\n" + line + "\n";
  };
  REFUSED("f:14:13: \"read_rate\" is 0; expected integer: 1..1000000000", limits("read_rate = 0"));
  REFUSED("f:14:19: \"read_rate_bytes\" is 4095; expected size: 4 KiB..1 TiB",
          limits("read_rate_bytes = 4095"));
  REFUSED("f:14:20: \"write_rate_bytes\" is \"2 TiB\"; expected size: 4 KiB..1 TiB",
          limits("write_rate_bytes = \"2 TiB\""));
  REFUSED("f:14:12: \"burst_ms\" is 0; expected integer: 1..3600000", limits("burst_ms = 0"));
}

TEST(Configuration, TenantsAndListenersOfLimitsExist) {
  REFUSED("f:13:10: \"tenant\" is \"acme\", but no [[blockd.tenant]] has this name; expected the "
          "name of one",
          12, "bytes = 4096\ntenant = \"acme\"");
  REFUSED("f:14:8: \"name\" is \"acme\", but no volume has this tenant; expected tenant = \"acme\" "
          "in a [[blockd.volume]]",
          file_with({}) + "[[blockd.tenant]]\nname = \"acme\"\n");
  REFUSED(
      "f:14:11: \"address\" is \"tcp:127.0.0.1:10810\", which is not in \"listen\"; expected an "
      "address of \"listen\" or \"image_listen\", as it is there",
      file_with({}) + "[[blockd.listener]]\naddress = \"tcp:127.0.0.1:10810\"\n");
  ACCEPTED(file_with(9, "listen = [\"tcp:127.0.0.1:10809\"]\nimage_listen = [\"unix:/nbd\"]") +
           "[[blockd.listener]]\naddress = \"unix:/nbd\"\n");
  // A mistake in a tenant's name is told once, and so are two tables of one name or address.
  const std::string acme = file_with(12, "bytes = 4096\ntenant = \"acme\"");
  const char* const tenant = "[[blockd.tenant]]\nname = \"acme\"\n";
  const char* const listener = "[[blockd.listener]]\naddress = \"tcp:127.0.0.1:10809\"\n";
  LONGS_EQUAL(1, refusals(acme + "[[blockd.tenant]]\nname = \"ACME\"\n").size());
  LONGS_EQUAL(1, refusals(acme + tenant + tenant).size());
  LONGS_EQUAL(1, refusals(file_with({}) + listener + listener).size());
}

TEST(Configuration, RefusesMissingKeysAtTheirTable) {
  REFUSED("f:1:1: \"name\" is missing in [appliance]; expected name: 1..32 of a-z, 0-9 and -", 2,
          "");
  REFUSED("f:3:1: \"bytes\" is missing in [pool]; expected size: 4 KiB..64 TiB, a multiple of the "
          "page size",
          4, "");
  REFUSED("f:5:1: \"name\" is missing in [[shard]]; expected name: 1..32 of a-z, 0-9 and -, unique",
          6, "");
  REFUSED("f:5:1: \"cpu\" is missing in [[shard]]; expected integer: 0..1023", 7, "");
  REFUSED("f:8:1: \"cpu\" is missing in [[shard]]; expected integer: 0..1023", 7,
          "cpu = 0\n[[shard]]\nname = \"second\"");
  REFUSED("f:8:1: \"listen\" is missing in [blockd]; expected list of addresses: 1..8 addresses, "
          "unique",
          9, "");
  REFUSED("f:10:1: \"name\" is missing in [[blockd.volume]]; expected text: 1..255 bytes, unique",
          11, "");
  REFUSED("f:10:1: \"bytes\" is missing in [[blockd.volume]]; expected it, or \"file\", or "
          "\"device\", or \"nvme\", or \"rbd\"",
          12, "");
}

TEST(Configuration, RefusesMissingTables) {
  const std::string cure = "; docs/configuration.md shows the smallest file that works";
  REFUSED("f:1:1: [appliance] is missing in the file" + cure, file_with({{1, "#"}, {2, ""}}));
  REFUSED("f:1:1: [pool] is missing in the file" + cure, file_with({{3, ""}, {4, ""}}));
  REFUSED("f:1:1: [[shard]] is missing in the file" + cure, file_with({{5, ""}, {6, ""}, {7, ""}}));
  REFUSED("f:8:1: [[blockd.volume]] is missing in [blockd]" + cure,
          file_with({{10, ""}, {11, ""}, {12, ""}}));
}

TEST(Configuration, RefusesTablesOfTheWrongShape) {
  REFUSED("f:5:1: \"shard\" is a table; expected [[shard]], once or more", 5, "[shard]");
  REFUSED("f:3:1: \"pool\" is an array; expected [pool], once", 3, "[[pool]]");
  REFUSED("f:1:8: \"pool\" is an integer; expected [pool], once",
          "pool = 3\n" + file_with({{3, ""}, {4, ""}}));
  REFUSED("f:1:9: \"shard\" is an empty array; expected [[shard]], 1..64 times",
          "shard = []\n" + file_with({{5, ""}, {6, ""}, {7, ""}}));
  REFUSED("f:1:36: [[shard]] is a string; expected a table",
          "shard = [{name = \"main\", cpu = 0}, \"x\"]\n" + file_with({{5, ""}, {6, ""}, {7, ""}}));
  REFUSED("f:4:1: \"bytes\" is a table; expected size: 4 KiB..64 TiB, a multiple of the page size",
          4, "[pool.bytes]");
}

TEST(Configuration, RefusesTooManyTables) {
  const std::string head = "[appliance]\nname = \"x\"\n[pool]\nbytes = \"2 MiB\"\n";
  REFUSED("f:197:1: [[shard]] number 65 is too many; expected 1..64 of them", head + shards(65));
  REFUSED("f:202:1: [[blockd.volume]] number 65 is too many; expected 1..64 of them",
          head + shards(1) + "[blockd]\nlisten = [\"activation:\"]\n" + volumes(65));
}

// ---- All problems, without their consequences ----

TEST(Configuration, ReportsEveryProblemInTheOrderOfTheFile) {
  const auto begins = [](const std::vector<std::string>& messages,
                         const std::vector<const char*>& expected) {
    LONGS_EQUAL(expected.size(), messages.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK_TEXT(messages[i].starts_with(expected[i]), messages[i].c_str());
    }
  };
  begins(
      refusals(file_with({{12, "bytes = 4097"}, {9, listen_line("activation:", "activation:")}})),
      {"f:10:3: \"activation:\" clashes", "f:13:9: \"bytes\" is 4097"});
  begins(refusals(file_with({{7, ""}, {11, "nmae = 1"}})),
         {"f:5:1: \"cpu\" is missing", "f:11:1: unknown key \"nmae\""});
  begins(refusals(file_with({{2, "name = \"Demo\"\nspeed = 1"}, {6, ""}, {7, ""}})),
         {"f:2:8: \"name\" is \"Demo\"", "f:3:1: unknown key \"speed\"",
          "f:6:1: \"name\" is missing in [[shard]]", "f:6:1: \"cpu\" is missing in [[shard]]"});
  begins(refusals(std::string("x = 1\n")),
         {"f:1:1: unknown key \"x\"", "f:1:1: [appliance] is missing", "f:1:1: [pool] is missing",
          "f:1:1: [[shard]] is missing"});
  // Problems come in the order of the file, not of the alphabet or of the documentation.
  STRCMP_CONTAINS("f:1:25: \"spin_us\" is -1",
                  refusal("event_loop = {spin_us = -1}\n" + file_with(2, "name = 1")).c_str());
}

TEST(Configuration, BlamesACauseAndNotItsConsequence) {
  // A misspelt key is unknown, not missing.
  STRCMP_CONTAINS("f:4:1: unknown key \"byte\"; did you mean \"bytes\"?",
                  refusal(4, "byte = \"256 MiB\"").c_str());
  STRCMP_CONTAINS("f:3:2: unknown table \"pol\": no service of this program has it; did you mean "
                  "\"pool\"?",
                  refusal(3, "[pol]").c_str());
  LONGS_EQUAL(1, refusals(file_with(4, "byte = \"256 MiB\"")).size());
  // Keys that depend on a misspelt key or table cause no further problem.
  const std::string misspelt[] = {
      file_with({}) + "[[group]]\nname = \"main\"\nmembers = 2\n"
                      "[[process]]\nname = \"w\"\nuser = \"1\"\ngruop = \"main\"\n",
      file_with({}) + "[[groups]]\nname = \"main\"\nmembers = 2\n"
                      "[[process]]\nname = \"w\"\nuser = \"1\"\ngroup = \"main\"\n",
      file_with({}) + "[[group]]\nname = \"main\"\nmembers = 2\nlayuot = \"mesh\"\n"
                      "multi_threaded = true\n",
      file_with_messages("verbs = true\n[verb]\n"),
      file_with({}) + "[verbs]\ndriver = \"rdma_rxe\"\ninterfaces = \"eth0\"\n",
      file_with({}) + "[verbs]\n[[verbs.peer]]\nname = \"b\"\nadress = \"tcp:1.2.3.4:1\"\n",
      file_with({}) + "[crash]\ndump = \"metadata\"\ndevise = \"/dev/vda\"\n",
      file_with({}) + "[[network]]\ninterface = \"a\"\nadress = \"1.2.3.4/8\"\n"
                      "gateway = \"1.2.3.5\"\n"};
  for (const std::string& text : misspelt) {
    const std::vector<std::string> messages = refusals(text);
    LONGS_EQUAL(1, messages.size());
    STRCMP_CONTAINS("did you mean", messages[0].c_str());
  }
  // A wrong page size causes no problem with the size of the pool.
  STRCMP_CONTAINS("f:5:9: \"pages\" is \"4 KB\"",
                  refusal(4, "bytes = \"1028 KiB\"\npages = \"4 KB\"").c_str());
  // A shard with an invalid name is not reported as unknown.
  STRCMP_CONTAINS("f:14:8: \"name\" is \"Other\"",
                  refusal(file_with({{8, "[blockd]\nvolumes_shards = [\"Other\"]"},
                                     {10, ""},
                                     {11, "volume = [{name = \"v\", bytes = 4096}]\n[[shard]]"},
                                     {12, "name = \"Other\"\ncpu = 1"}}))
                      .c_str());
}

// Each problem is short, but a file may have thousands.
TEST(Configuration, EndsTheReportWhereItIsOfNoMoreHelp) {
  std::string text = file_with({});
  for (int i = 0; i < 1000; ++i) text += "[x" + std::to_string(i) + "]\n";
  const std::vector<std::string> messages = refusals(text);
  LONGS_EQUAL(65, messages.size());
  STRCMP_EQUAL("f:77:2: there are 936 more problems from here on; correct those above first",
               messages[64].c_str());
}

TEST(Configuration, MessagesStayOneLineWithTheirPosition) {
  const std::string long_path = std::string(400, 'd') + "/demo.toml";
  const std::string message = refusal(file_with(7, "cpu = -1"), long_path.c_str());
  CHECK(message.starts_with("...d"));
  STRCMP_CONTAINS("d/demo.toml:7:7: \"cpu\" is -1; expected", message.c_str());
  const std::string bad = refusal(11, "name = \"r\"\n\"\\n\\t\\u001b[31m\\u007f\" = 1");
  for (const char letter : bad) CHECK(letter >= 0x20 && letter != 0x7F);
}

// ---- Random damage ----

// A damaged file is accepted, or refused with a position within the file.
TEST(Configuration, DamagedFilesAreRefusedWithAPosition) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  const std::string good = source_text("apps/demo-two-shards.toml");
  constexpr std::string_view kLetters = "[]{}=\"'.,#\\\n\r\t\0\xFF\xC3 -0e9abtn_:";
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = kLetters[random() % kLetters.size()]; break;
        case 1: text.erase(at, 1 + random() % 8); break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 40)); break;
      }
    }
    const std::string message = refusal(text);
    if (message.empty()) {
      ++accepted;
      continue;
    }
    long line = 0, column = 0;
    const bool has_position = std::sscanf(message.c_str(), "f:%ld:%ld: ", &line, &column) == 2;
    const long line_count = 1 + std::count(text.begin(), text.end(), '\n');
    if (!has_position || line < 1 || line > line_count || column < 1) {
      FAIL((message + " (seed " + std::to_string(seed) + ")").c_str());
    }
  }
  CHECK(accepted > 0);
}

TEST(Configuration, TlsIsWhole) {
  const auto with = [](const char* lines) {
    return file_with(9, std::string("listen = [\"unix:/s\"]\n") + lines);
  };
  ACCEPTED(with("tls_certificate = \"/c\"\ntls_key = \"/k\"\nplain_text = \"refused\""));
  ACCEPTED(with("tls_shared_keys = \"/k\"\nplain_text = \"refused\""));
  REFUSED("f:10:19: its key is missing; expected \"tls_key\" beside it",
          with("tls_certificate = \"/c\""));
  REFUSED("f:10:1: \"tls_key\" is only for a server with a certificate; expected "
          "\"tls_certificate\" beside it",
          with("tls_key = \"/k\"\ntls_shared_keys = \"/p\""));
  // A refused value is no missing one.
  LONGS_EQUAL(1, refusals(with("tls_certificate = \"c\""), "f").size());
  LONGS_EQUAL(1, refusals(with("tls_certificate = \"c\"\ntls_key = \"/k\""), "f").size());
}
