// Every refusal of the configuration with its exact position, and the documentation against the
// parser.
#include "apps/boot/configuration.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "CppUTest/TestHarness.h"

#ifndef BP_SOURCE_DIRECTORY
#define BP_SOURCE_DIRECTORY "."
#endif

using namespace bedplate;

namespace {

constexpr std::array<const char*, 12> kLines = {
    "[appliance]",                         // 1
    "name = \"demo\"",                     // 2
    "[pool]",                              // 3
    "bytes = \"256 MiB\"",                 // 4
    "[[shard]]",                           // 5
    "name = \"main\"",                     // 6
    "cpu = 0",                             // 7
    "[blockd]",                            // 8
    "listen = [\"tcp:127.0.0.1:10809\"]",  // 9
    "[[blockd.volume]]",                   // 10
    "name = \"ram0\"",                     // 11
    "bytes = \"64 MiB\"",                  // 12
};

struct Change {
  size_t line;       // from 1
  std::string text;  // instead of it; may hold several lines, or none
};

// The good file with some lines replaced.
std::string file_with(const std::vector<Change>& changes) {
  std::string text;
  for (size_t index = 0; index < kLines.size(); ++index) {
    std::string line = kLines[index];
    for (const Change& change : changes) {
      if (change.line == index + 1) line = change.text;
    }
    text += line + "\n";
  }
  return text;
}

std::string file_with(size_t line, const std::string& text) { return file_with({{line, text}}); }

// The message for `text`, "" when it is accepted.
std::string refusal(const std::string& text, const char* path = "f") {
  const Result<Configuration> result = parse_configuration(text, path);
  if (result.ok()) return "";
  CHECK(result.error().kind == ErrorKind::kConfiguration);
  char message[1024];
  return format_error(result.error(), message, sizeof message);
}

std::string refusal(size_t line, const std::string& text) { return refusal(file_with(line, text)); }

#define REFUSED(message, ...) \
  STRCMP_EQUAL(std::string(message).c_str(), refusal(__VA_ARGS__).c_str())
#define ACCEPTED(...) STRCMP_EQUAL("", refusal(__VA_ARGS__).c_str())

Configuration parsed(const std::string& text) {
  STRCMP_EQUAL("", refusal(text).c_str());
  return parse_configuration(text, "f").take();
}

// Everything that a configuration says, for comparisons.
std::string described(const Configuration& c) {
  std::ostringstream out;
  out << c.appliance.name << ' ' << c.appliance.runtime_directory << ' '
      << c.appliance.drain_timeout_ms << ' ' << c.pool.bytes << ' ' << page_bytes(c.pool.page)
      << ' ' << c.pool.heap_min_bytes << ' ' << static_cast<int>(c.event_loop.sockets) << ' '
      << c.event_loop.spin_us;
  for (const ShardSettings& shard : c.shards) out << " shard " << shard.name << ' ' << shard.cpu;
  out << " blockd " << c.blockd.enabled;
  for (const SocketAddress& address : c.blockd.listen) out << ' ' << address.text();
  out << ' ' << c.blockd.connections_shard << ' ' << c.blockd.volumes_shard << ' '
      << c.blockd.max_connections << ' ' << c.blockd.requests_per_connection << ' '
      << c.blockd.handshake_timeout_ms;
  for (const VolumeSettings& volume : c.blockd.volumes) {
    out << " volume " << volume.name << ' ' << volume.bytes << ' ' << volume.read_only;
  }
  return out.str();
}

std::string source_path(const char* name) { return std::string(BP_SOURCE_DIRECTORY "/") + name; }

std::string source_text(const char* name) {
  std::ifstream file(source_path(name));
  CHECK_TEXT(file.good(), "run the tests in the source tree, or set BP_SOURCE_DIRECTORY");
  return {std::istreambuf_iterator<char>(file), {}};
}

// What a cell of a Markdown table says, without blanks and backquotes.
std::string trimmed(const std::string& cell) {
  const size_t begin = cell.find_first_not_of(" `");
  if (begin == std::string::npos) return "";
  return cell.substr(begin, cell.find_last_not_of(" `") - begin + 1);
}

// A line of `count` copies of a table, each with numbers that differ.
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

std::string listen_line(const std::string& first, const std::string& second) {
  return "listen = [\"" + first + "\",\n  \"" + second + "\"]";
}

// A file that goes away with the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    const int fd = mkstemp(path_);
    CHECK(fd >= 0);
    LONGS_EQUAL(text.size(), write(fd, text.data(), text.size()));
    close(fd);
  }
  ~TemporaryFile() { unlink(path_); }
  const char* path() const { return path_; }

 private:
  char path_[32] = "/tmp/bp_configuration_XXXXXX";
};

std::string load_refusal(const char* path) {
  const Result<Configuration> result = load_configuration(path);
  if (result.ok()) return "";
  CHECK(result.error().kind == ErrorKind::kConfiguration);
  char message[1024];
  return format_error(result.error(), message, sizeof message);
}

}  // namespace

TEST_GROUP(Configuration){};

// ---- It works ----

TEST(Configuration, SmallestFileHasTheDefaults) {
  const Configuration c = parsed(file_with(
      {{8, ""}, {9, ""}, {10, ""}, {11, ""}, {12, ""}}));
  STRCMP_EQUAL("demo /run/bedplate 5000 268435456 2097152 33554432 2 50 shard main 0 blockd 0 0 0 "
               "64 64 10000",
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
page = "1 GiB"
heap_min_bytes = 1
[event_loop]
sockets = "epoll"
spin_us = 1000000
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
volumes_shard = "a"
max_connections = 4096
requests_per_connection = 1024
handshake_timeout_ms = 100
[[blockd.volume]]
name = "v"
bytes = 4096
[[blockd.volume]]
name = "w é"
bytes = "1TiB"
read_only = true
)";
  STRCMP_EQUAL("store-1 /tmp/run 0 2147483648 1073741824 1 1 1000000 shard a 1023 shard b 1 "
               "shard c 2 blockd 1 tcp:127.0.0.1:1 tcp:[::1]:65535 unix:/tmp/s activation: 1 0 "
               "4096 1024 100 volume v 4096 0 volume w é 1099511627776 1",
               described(parsed(text)).c_str());
}

TEST(Configuration, ShardsDefaultToTheFirstAndTheLast) {
  const Configuration c = parsed(file_with(5, "[[shard]]\nname = \"x\"\ncpu = 5\n[[shard]]"));
  LONGS_EQUAL(0, c.blockd.connections_shard);
  LONGS_EQUAL(1, c.blockd.volumes_shard);
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
  const Configuration c = parsed(file_with(11, "name = \"\"\"\\\n  \u00A7\"\"\""));
  STRCMP_EQUAL("\u00A7", c.blockd.volumes[0].name.c_str());
}

TEST(Configuration, AllowsAsManyAsTheLimitsSay) {
  const std::string head = "[appliance]\nname = \"x\"\n[pool]\nbytes = \"2 MiB\"\n" + shards(64);
  ACCEPTED(head + "[blockd]\nlisten = [\"activation:\"]\n" + volumes(64));
}

// ---- What is no text, or no TOML ----

TEST(Configuration, RefusesWhatIsNoText) {
  REFUSED("f:1:1: the file is empty; docs/configuration.md shows the smallest file that works",
          std::string());
  REFUSED("f:1:1: the file has more than 1 MiB; expected a configuration, which is a few KiB of "
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
    // Columns count characters: é is one.
    REFUSED("f:11:10: a byte that is not UTF-8; save the file as UTF-8 text", 11,
            "name = \"\xC3\xA9" + std::string(bytes) + "\"");
  }
  ACCEPTED(11, "name = \"\xC2\x80 \xDF\xBF \xE0\xA0\x80 \xEF\xBF\xBF \xF0\x90\x80\x80 "
               "\xF4\x8F\xBF\xBF\"");
}

TEST(Configuration, RefusesLinesAndNestingThatWouldOverflowTheStack) {
  ACCEPTED(2, "name = \"demo\" #" + std::string(2048 - 15, '-'));
  REFUSED("f:2:2049: the line has more than 2048 bytes; break the line; an array may go over "
          "several",
          2, "name = \"demo\" #" + std::string(2048 - 14, '-'));
  std::string dots = "a";
  while (dots.size() < 200000) dots += ".a";
  REFUSED("f:2:2049: the line has more than 2048 bytes; break the line; an array may go over "
          "several",
          2, dots + " = 1");
  REFUSED("f:2:16: not TOML: Error while parsing value: exceeded maximum nested value depth of 8 "
          "(TOML_MAX_NESTED_VALUES); expected TOML 1.0, as docs/configuration.md shows it",
          2, "name = " + std::string(9, '[') + std::string(9, ']'));
}

// Reading takes memory of segment 0, and without exceptions there is no way back.
TEST(Configuration, RefusesMoreValuesThanBootHasMemoryFor) {
  std::string list = "x = [\n";  // a line is 1000 elements
  for (int line = 0; line < 300; ++line) {
    for (int element = 0; element < 1000; ++element) list += "1,";
    list += "\n";
  }
  REFUSED("f:10:382: more keys, values and dots than 8192; expected a configuration, which has "
          "some hundreds",
          list + "]");
}

TEST(Configuration, RefusesWhatIsNoToml) {
  REFUSED("f:7:8: not TOML: Error while parsing key-value pair: cannot redefine existing string "
          "'name'; expected TOML 1.0, as docs/configuration.md shows it",
          7, "name = 1");
  REFUSED("f:5:1: not TOML: Error while parsing table header: cannot redefine existing table "
          "'pool'; expected TOML 1.0, as docs/configuration.md shows it",
          5, "[pool]");
  REFUSED("f:7:7: not TOML: Error while parsing value: could not determine value type; expected "
          "TOML 1.0, as docs/configuration.md shows it",
          7, "cpu = zero");
  // What the TOML library takes for impossible in its own code.
  for (const char* header : {"[[=", "[[[a]]]", "[[[]]", "[=", "[\"a\"", "[[", "\u00E9 = 1",
                             "[\u00E9]", "x = \u00E9"}) {
    STRCMP_CONTAINS("f:8:", refusal(8, header).c_str());
  }
}

// ---- Keys and tables ----

TEST(Configuration, RefusesUnknownKeys) {
  REFUSED("f:5:3: unknown key \"pgae\"; did you mean \"page\"? [pool] may have: bytes, page, "
          "heap_min_bytes",
          4, "bytes = \"256 MiB\"\n  pgae = 3");
  REFUSED("f:8:1: unknown key \"priority\"; [[shard]] may have: name, cpu", 7,
          "cpu = 0\npriority = 0");
  REFUSED("f:9:1: unknown key \"port\"; [blockd] may have: listen, connections_shard, "
          "volumes_shard, max_connections, requests_per_connection, handshake_timeout_ms, "
          "[[blockd.volume]]",
          8, "[blockd]\nport = 1");
  REFUSED("f:13:1: unknown key \"readonly\"; did you mean \"read_only\"? [[blockd.volume]] may "
          "have: name, bytes, read_only",
          12, "bytes = \"64 MiB\"\nreadonly = true");
  REFUSED("f:12:1: unknown key \"x?" + std::string(62, 'y') + "..." +
              "\"; [[blockd.volume]] may have: name, bytes, read_only",
          12, "\"x\\n" + std::string(100, 'y') + "\" = 1\nbytes = \"64 MiB\"");
}

TEST(Configuration, RefusesUnknownTables) {
  REFUSED("f:8:2: unknown key \"block\"; did you mean \"blockd\"? the file may have: [appliance], "
          "[pool], [event_loop], [[shard]], [blockd]",
          file_with({{8, "[block]"}, {10, "[[block.volume]]"}}));
  REFUSED("f:10:10: unknown key \"volumes\"; did you mean \"volume\"? [blockd] may have: listen, "
          "connections_shard, volumes_shard, max_connections, requests_per_connection, "
          "handshake_timeout_ms, [[blockd.volume]]",
          10, "[[blockd.volumes]]");
}

TEST(Configuration, RefusesMissingKeysAtTheirTable) {
  REFUSED("f:1:1: \"name\" is missing in [appliance]; expected name: 1..32 of a-z, 0-9 and -", 2,
          "");
  REFUSED("f:3:1: \"bytes\" is missing in [pool]; expected size: 4 KiB..64 TiB, a multiple of page",
          4, "");
  REFUSED("f:5:1: \"name\" is missing in [[shard]]; expected name: 1..32 of a-z, 0-9 and -, unique",
          6, "");
  REFUSED("f:5:1: \"cpu\" is missing in [[shard]]; expected integer: 0..1023, unique", 7, "");
  REFUSED("f:8:1: \"cpu\" is missing in [[shard]]; expected integer: 0..1023, unique", 7,
          "cpu = 0\n[[shard]]\nname = \"second\"");
  REFUSED("f:8:1: \"listen\" is missing in [blockd]; expected list of addresses: 1..8 addresses, "
          "unique",
          9, "");
  REFUSED("f:10:1: \"name\" is missing in [[blockd.volume]]; expected text: 1..255 bytes, unique",
          11, "");
  REFUSED("f:10:1: \"bytes\" is missing in [[blockd.volume]]; expected size: 4 KiB..64 TiB, a "
          "multiple of 4 KiB",
          12, "");
}

TEST(Configuration, RefusesMissingTables) {
  const std::string cure = "; docs/configuration.md shows the smallest file that works";
  REFUSED("f:1:1: [appliance] is missing in the file" + cure,
          file_with({{1, "#"}, {2, ""}}));
  REFUSED("f:1:1: [pool] is missing in the file" + cure,
          file_with({{3, ""}, {4, ""}}));
  REFUSED("f:1:1: [[shard]] is missing in the file" + cure,
          file_with({{5, ""}, {6, ""}, {7, ""}}));
  REFUSED("f:8:1: [[blockd.volume]] is missing in [blockd]" + cure,
          file_with({{10, ""}, {11, ""}, {12, ""}}));
}

TEST(Configuration, RefusesTablesOfTheWrongShape) {
  REFUSED("f:5:1: \"shard\" is a table; expected [[shard]], once for each", 5, "[shard]");
  REFUSED("f:3:1: \"pool\" is an array; expected [pool], once", 3, "[[pool]]");
  REFUSED("f:1:8: \"pool\" is an integer; expected [pool], once",
          "pool = 3\n" + file_with({{3, ""}, {4, ""}}));
  REFUSED("f:1:9: \"shard\" is an empty array; expected [[shard]], 1..64 times",
          "shard = []\n" + file_with({{5, ""}, {6, ""}, {7, ""}}));
  REFUSED("f:1:36: [[shard]] is a string; expected a table",
          "shard = [{name = \"main\", cpu = 0}, \"x\"]\n" +
              file_with({{5, ""}, {6, ""}, {7, ""}}));
  REFUSED("f:4:1: \"bytes\" is a table; expected size: 4 KiB..64 TiB, a multiple of page", 4,
          "[pool.bytes]");
}

TEST(Configuration, RefusesTooManyTables) {
  const std::string head = "[appliance]\nname = \"x\"\n[pool]\nbytes = \"2 MiB\"\n";
  REFUSED("f:197:1: [[shard]] number 65 is too many; expected 1..64 of them", head + shards(65));
  REFUSED("f:202:1: [[blockd.volume]] number 65 is too many; expected 1..64 of them",
          head + shards(1) + "[blockd]\nlisten = [\"activation:\"]\n" + volumes(65));
}

// ---- Values ----

TEST(Configuration, RefusesNames) {
  const std::string cure = "; expected name: 1..32 of a-z, 0-9 and -";
  REFUSED("f:2:8: \"name\" is an integer" + cure, 2, "name = 7");
  REFUSED("f:2:8: \"name\" is a date or time" + cure, 2, "name = 2024-01-01");
  REFUSED("f:2:8: \"name\" is empty" + cure, 2, "name = \"\"");
  REFUSED("f:2:8: \"name\" is \"Demo\"" + cure, 2, "name = \"Demo\"");
  REFUSED("f:2:8: \"name\" is \"../x\"" + cure, 2, "name = \"../x\"");
  REFUSED("f:2:8: \"name\" contains a control character" + cure, 2, "name = \"a\\nb\"");
  REFUSED("f:2:8: \"name\" is 33 bytes long" + cure, 2,
          "name = \"" + std::string(33, 'x') + "\"");
  ACCEPTED(2, "name = \"" + std::string(32, 'x') + "\"");
}

TEST(Configuration, RefusesTexts) {
  const std::string cure = "; expected text: 1..255 bytes, unique";
  REFUSED("f:11:8: \"name\" is a boolean" + cure, 11, "name = true");
  REFUSED("f:11:8: \"name\" is empty" + cure, 11, "name = \"\"");
  REFUSED("f:11:8: \"name\" contains a control character" + cure, 11,
          "name = \"a\\u0000b\"");
  REFUSED("f:11:8: \"name\" is 256 bytes long" + cure, 11,
          "name = \"" + std::string(256, 'x') + "\"");
  ACCEPTED(11, "name = \"" + std::string(255, 'x') + "\"");
}

TEST(Configuration, RefusesPaths) {
  const std::string cure = "; expected path: begins with /, 1..255 bytes";
  const auto file = [](const std::string& value) {
    return file_with(2, "name = \"demo\"\nruntime_directory = " + value);
  };
  REFUSED("f:3:21: \"runtime_directory\" is an array" + cure, file("[\"/run\"]"));
  REFUSED("f:3:21: \"runtime_directory\" is empty" + cure, file("\"\""));
  REFUSED("f:3:21: \"runtime_directory\" is \"run\"" + cure, file("\"run\""));
  REFUSED("f:3:21: \"runtime_directory\" contains a control character" + cure,
          file("\"/run\\u007f\""));
  REFUSED("f:3:21: \"runtime_directory\" is 256 bytes long" + cure,
          file("\"/" + std::string(255, 'x') + "\""));
  ACCEPTED(file("\"/" + std::string(254, 'x') + "\""));
}

TEST(Configuration, RefusesIntegers) {
  const std::string cure = "; expected integer: 0..1023, unique";
  REFUSED("f:7:7: \"cpu\" is a string" + cure, 7, "cpu = \"0\"");
  REFUSED("f:7:7: \"cpu\" is a floating-point number" + cure, 7, "cpu = 0.0");
  REFUSED("f:7:7: \"cpu\" is -1" + cure, 7, "cpu = -1");
  REFUSED("f:7:7: \"cpu\" is 1024" + cure, 7, "cpu = 1024");
  REFUSED("f:7:7: \"cpu\" is 9223372036854775807" + cure, 7,
          "cpu = 9223372036854775807");
}

// Each integer key at its limits and one past them, as configuration_keys() states them.
TEST(Configuration, IntegersKeepTheirLimits) {
  int checked = 0;
  for (const ConfigurationKey& key : configuration_keys()) {
    if (key.type != "integer" || key.name.starts_with("shard.")) continue;
    const size_t dot = key.name.rfind('.');
    const std::string table = key.name.substr(0, dot), name = key.name.substr(dot + 1);
    long min = 0, max = 0;
    LONGS_EQUAL(2, std::sscanf(key.range.c_str(), "%ld..%ld", &min, &max));
    const std::string header = "[" + table + "]";
    const auto file = [&](long value) {
      const std::string lines = header + "\n" + name + " = " + std::to_string(value);
      for (size_t line = 1; line <= kLines.size(); ++line) {
        if (kLines[line - 1] == header) return file_with(line, lines);
      }
      return file_with({}) + lines + "\n";
    };
    ACCEPTED(file(min));
    ACCEPTED(file(max));
    for (const long value : {min - 1, max + 1}) {
      const std::string message = refusal(file(value));
      STRCMP_CONTAINS(("\"" + name + "\" is " + std::to_string(value) + "; expected integer: " +
                       key.range).c_str(), message.c_str());
    }
    ++checked;
  }
  LONGS_EQUAL(5, checked);
}

TEST(Configuration, RefusesSizes) {
  const std::string cure = "; expected size: 4 KiB..64 TiB, a multiple of 4 KiB";
  REFUSED("f:12:9: \"bytes\" is a boolean" + cure, 12, "bytes = true");
  REFUSED("f:12:9: \"bytes\" is a floating-point number" + cure, 12, "bytes = 4096.0");
  REFUSED("f:12:9: \"bytes\" is \"64 MB\"" + cure, 12, "bytes = \"64 MB\"");
  REFUSED("f:12:9: \"bytes\" is \"\"" + cure, 12, "bytes = \"\"");
  REFUSED("f:12:9: \"bytes\" is \"-4096\"" + cure, 12, "bytes = \"-4096\"");
  REFUSED("f:12:9: \"bytes\" is \"1.5 GiB\"" + cure, 12, "bytes = \"1.5 GiB\"");
  REFUSED("f:12:9: \"bytes\" is -4096" + cure, 12, "bytes = -4096");
  REFUSED("f:12:9: \"bytes\" is \"0\"" + cure, 12, "bytes = \"0\"");
  REFUSED("f:12:9: \"bytes\" is \"65 TiB\"" + cure, 12, "bytes = \"65 TiB\"");
  REFUSED("f:12:9: \"bytes\" is \"99999999 TiB\"" + cure, 12,
          "bytes = \"99999999 TiB\"");
  REFUSED("f:12:9: \"bytes\" is 4097 bytes, no multiple of 4 KiB" + cure, 12,
          "bytes = 4097");
  ACCEPTED(12, "bytes = \"64 TiB\"");
}

TEST(Configuration, RefusesBooleans) {
  REFUSED("f:13:13: \"read_only\" is an integer; expected boolean: true or false", 12,
          "bytes = 4096\nread_only = 1");
  REFUSED("f:13:13: \"read_only\" is a string; expected boolean: true or false", 12,
          "bytes = 4096\nread_only = \"true\"");
}

TEST(Configuration, RefusesChoices) {
  const auto page = [](const char* value) {
    return file_with(4, std::string("bytes = \"1 GiB\"\npage = ") + value);
  };
  const std::string cure = "; expected choice: \"4 KiB\", \"2 MiB\" or \"1 GiB\"";
  REFUSED("f:5:8: \"page\" is \"3 MiB\"" + cure, page("\"3 MiB\""));
  REFUSED("f:5:8: \"page\" is \"huge\"" + cure, page("\"huge\""));
  REFUSED("f:5:8: \"page\" is an integer" + cure, page("4096"));
  CHECK(parsed(page("\"4KiB\"")).pool.page == PageSize::k4KiB);
  CHECK(parsed(page("\"2097152\"")).pool.page == PageSize::k2MiB);
  CHECK(parsed(page("\"1 GiB\"")).pool.page == PageSize::k1GiB);

  const auto sockets = [](const char* value) {
    return file_with(5, std::string("[event_loop]\nsockets = ") + value + "\n[[shard]]");
  };
  REFUSED("f:6:11: \"sockets\" is \"iouring\"; expected choice: \"io_uring-or-epoll\", "
          "\"io_uring\" or \"epoll\"",
          sockets("\"iouring\""));
  CHECK(parsed(sockets("\"io_uring\"")).event_loop.sockets == SocketBackendChoice::kIoUring);
  CHECK(parsed(sockets("\"epoll\"")).event_loop.sockets == SocketBackendChoice::kEpoll);
}

TEST(Configuration, RefusesListenLists) {
  const std::string cure = "; expected list of addresses: 1..8 addresses, unique";
  REFUSED("f:9:10: \"listen\" is a string" + cure, 9, "listen = \"activation:\"");
  REFUSED("f:9:10: \"listen\" has 0 addresses" + cure, 9, "listen = []");
  std::string list;
  for (int port = 1; port <= 8; ++port) list += "\"tcp:127.0.0.1:" + std::to_string(port) + "\",";
  ACCEPTED(9, "listen = [" + list + "]");
  REFUSED("f:9:10: \"listen\" has 9 addresses" + cure, 9,
          "listen = [" + list + "\"tcp:127.0.0.1:9\"]");
}

TEST(Configuration, RefusesAddressesWhereTheyStand) {
  REFUSED("f:10:3: \"tcp:localhost:1\" is not a listen address: the address is not a numeric one; "
          "write \"tcp:ADDRESS:PORT\" with a numeric address ([...] around IPv6), \"unix:/PATH\" "
          "or \"activation:\"",
          9, listen_line("tcp:127.0.0.1:1", "tcp:localhost:1"));
  REFUSED("f:10:13: an address in \"listen\" is an integer; write it as \"tcp:ADDRESS:PORT\", "
          "\"unix:/PATH\" or \"activation:\"",
          9, "listen = [\"tcp:127.0.0.1:1\",\n            10809]");
  // Cut off at its NUL the path would be a good one.
  REFUSED("f:9:11: an address in \"listen\" contains a control character; write it as "
          "\"tcp:ADDRESS:PORT\", \"unix:/PATH\" or \"activation:\"",
          9, "listen = [\"unix:/run/a\\u0000b\"]");
}

// ---- Across keys ----

TEST(Configuration, RefusesWhatIsTaken) {
  REFUSED("f:9:8: \"name\" \"main\" is taken by the [[shard]] at line 6; expected another one: "
          "each [[shard]] has its own",
          7, "cpu = 0\n[[shard]]\nname = \"main\"\ncpu = 1");
  REFUSED("f:10:7: \"cpu\" 0 is taken by the [[shard]] at line 7; expected another one: each "
          "[[shard]] has its own",
          7, "cpu = 0\n[[shard]]\nname = \"second\"\ncpu = 0");
  REFUSED("f:14:8: \"name\" \"ram0\" is taken by the [[blockd.volume]] at line 11; expected "
          "another one: each [[blockd.volume]] has its own",
          12, "bytes = 4096\n[[blockd.volume]]\nname = \"ram0\"\nbytes = 4096");
  // The same name in another kind of table is no clash.
  ACCEPTED(11, "name = \"main\"");
  // Names are compared whole, however alike they look in a message.
  const std::string stem(254, 'x');
  ACCEPTED(file_with({{11, "name = \"" + stem + "a\""},
                      {12, "bytes = 4096\n[[blockd.volume]]\nname = \"" + stem +
                               "b\"\nbytes = 4096"}}));
}

TEST(Configuration, RefusesUnknownShards) {
  REFUSED("f:9:21: no shard has the name \"mian\"; expected one of: main, other", 
          file_with({{7, "cpu = 0"},
                     {8, "[blockd]\nconnections_shard = \"mian\""},
                     {12, "bytes = 4096\n[[shard]]\nname = \"other\"\ncpu = 1"}}));
  REFUSED("f:9:17: no shard has the name \"\"; expected one of: main", 8,
          "[blockd]\nvolumes_shard = \"\"");
  REFUSED("f:9:17: \"volumes_shard\" is an integer; expected shard: the name of a shard", 8,
          "[blockd]\nvolumes_shard = 0");
}

TEST(Configuration, RefusesPoolsThatAreNoMultipleOfThePage) {
  REFUSED("f:4:9: \"bytes\" is 268439552, no multiple of the page of 2 MiB; expected 256 MiB or "
          "258 MiB",
          4, "bytes = 268439552");
  REFUSED("f:4:9: \"bytes\" is 4096, no multiple of the page of 2 MiB; expected 2 MiB", 4,
          "bytes = \"4 KiB\"");
  REFUSED("f:5:9: \"bytes\" is 268435456, no multiple of the page of 1 GiB; expected 1 GiB", 4,
          "page = \"1 GiB\"\nbytes = \"256 MiB\"");
  REFUSED("f:4:9: \"bytes\" is 4097, no multiple of the page of 4 KiB; expected 4 KiB or 8 KiB", 4,
          "bytes = 4097\npage = \"4 KiB\"");
  ACCEPTED(4, "bytes = 4096\npage = \"4 KiB\"");
}

TEST(Configuration, RefusesAddressesThatClash) {
  const auto clash = [](const std::string& first, const std::string& second) {
    STRCMP_EQUAL(("f:10:3: \"" + second + "\" clashes with \"" + first + "\" at line 9; expected "
                  "another port or path (0.0.0.0 and [::] take a port everywhere)").c_str(),
                 refusal(9, listen_line(first, second)).c_str());
  };
  clash("tcp:127.0.0.1:1", "tcp:127.0.0.1:1");
  clash("tcp:127.0.0.1:1", "tcp:0.0.0.0:1");
  clash("tcp:0.0.0.0:1", "tcp:127.0.0.1:1");
  clash("tcp:[::1]:1", "tcp:[0:0::1]:1");
  clash("tcp:[::]:1", "tcp:[::1]:1");
  clash("unix:/s", "unix:/s");
  clash("activation:", "activation:");
  ACCEPTED(9, listen_line("tcp:127.0.0.1:1", "tcp:127.0.0.2:1"));
  ACCEPTED(9, listen_line("tcp:127.0.0.1:1", "tcp:127.0.0.1:2"));
  ACCEPTED(9, listen_line("tcp:0.0.0.0:1", "tcp:[::]:1"));
  ACCEPTED(9, listen_line("tcp:[::1]:1", "tcp:[::2]:1"));
  ACCEPTED(9, listen_line("unix:/s", "unix:/t"));
}

// The kernel is the reference: what clashes here is what it refuses to listen at together.
TEST(Configuration, AddressesClashAsTheKernelSays) {
  const auto listener = [](const char* host, uint16_t port) {
    SocketAddress address;
    address.kind =
        std::strchr(host, ':') ? SocketAddress::Kind::kTcp6 : SocketAddress::Kind::kTcp4;
    address.host = host;
    address.port = port;
    return address;
  };
  std::vector<const char*> hosts = {"0.0.0.0", "127.0.0.1", "127.0.0.2"};
  // Without IPv6 the table is smaller, and as true.
  if (listen_at(listener("::1", 0)).ok()) hosts.insert(hosts.end(), {"::", "::1"});
  for (const char* first_host : hosts) {
    for (const char* second_host : hosts) {
      Result<Fd> first = listen_at(listener(first_host, 0));
      CHECK(first.ok());
      sockaddr_in6 bound{};  // both families keep the port at the same place
      socklen_t bound_bytes = sizeof bound;
      getsockname(first.value().number(), reinterpret_cast<sockaddr*>(&bound), &bound_bytes);
      const uint16_t port = ntohs(bound.sin6_port);
      const bool kernel_accepts = listen_at(listener(second_host, port)).ok();
      const std::string lines =
          listen_line(listener(first_host, port).text(), listener(second_host, port).text());
      CHECK_EQUAL_TEXT(kernel_accepts, refusal(9, lines).empty(), lines.c_str());
    }
  }
}

// ---- The first problem, and only true ones ----

TEST(Configuration, ReportsTheFirstProblemOfTheFile) {
  const std::string both = refusal(
      file_with({{12, "bytes = 4097"}, {9, listen_line("activation:", "activation:")}}));
  STRCMP_CONTAINS("f:10:3: \"activation:\" clashes", both.c_str());
  STRCMP_CONTAINS("f:5:1: \"cpu\" is missing",
                  refusal(file_with({{7, ""}, {11, "nmae = 1"}})).c_str());
  // Tables come in the file's order, not in the alphabet's or in that of the documentation.
  STRCMP_CONTAINS("f:1:25: \"spin_us\" is -1",
                  refusal("event_loop = {spin_us = -1}\n" + file_with(2, "name = 1")).c_str());
}

TEST(Configuration, BlamesACauseAndNotItsConsequence) {
  // A misspelt key is unknown, not missing.
  STRCMP_CONTAINS("f:4:1: unknown key \"byte\"; did you mean \"bytes\"?",
                  refusal(4, "byte = \"256 MiB\"").c_str());
  STRCMP_CONTAINS("f:3:2: unknown key \"pol\"; did you mean \"pool\"?",
                  refusal(3, "[pol]").c_str());
  // A wrong page is not a wrong pool size.
  STRCMP_CONTAINS("f:5:8: \"page\" is \"4 KB\"",
                  refusal(4, "bytes = \"1028 KiB\"\npage = \"4 KB\"").c_str());
  // A shard with a bad name is not one that nobody knows.
  STRCMP_CONTAINS("f:14:8: \"name\" is \"Other\"",
                  refusal(file_with({{8, "[blockd]\nvolumes_shard = \"Other\""},
                                     {10, ""},
                                     {11, "volume = [{name = \"v\", bytes = 4096}]\n[[shard]]"},
                                     {12, "name = \"Other\"\ncpu = 1"}}))
                      .c_str());
}

TEST(Configuration, MessagesStayOneLineWithTheirPosition) {
  const std::string long_path = std::string(400, 'd') + "/demo.toml";
  const std::string message = refusal(file_with(7, "cpu = -1"), long_path.c_str());
  CHECK(message.starts_with("...d"));
  STRCMP_CONTAINS("d/demo.toml:7:7: \"cpu\" is -1; expected", message.c_str());
  const std::string bad =
      refusal(11, "name = \"r\"\n\"\\n\\t\\u001b[31m\\u007f\" = 1");
  for (const char letter : bad) CHECK(letter >= 0x20 && letter != 0x7F);
}

// ---- Files ----

TEST(Configuration, LoadsAFile) {
  const TemporaryFile file(file_with({}));
  Result<Configuration> result = load_configuration(file.path());
  CHECK(result.ok());
  STRCMP_EQUAL(described(parsed(file_with({}))).c_str(), described(result.value()).c_str());
}

TEST(Configuration, RefusesFilesThatCannotBeRead) {
  const std::string cure = "; name a readable file with the appliance's configuration";
  STRCMP_EQUAL(
      ("reading the configuration /tmp/bp_none.toml: No such file or directory" + cure).c_str(),
      load_refusal("/tmp/bp_none.toml").c_str());
  STRCMP_EQUAL(("reading the configuration /tmp: Is a directory" + cure).c_str(),
               load_refusal("/tmp").c_str());
  STRCMP_EQUAL("/dev/null:1:1: the file is empty; docs/configuration.md shows the smallest file "
               "that works",
               load_refusal("/dev/null").c_str());
  STRCMP_EQUAL("/dev/zero:1:1: the file has more than 1 MiB; expected a configuration, which is a "
               "few KiB of TOML text",
               load_refusal("/dev/zero").c_str());
  const TemporaryFile largest(std::string(kMiB, '\n'));
  STRCMP_CONTAINS(":1:1: [appliance] is missing", load_refusal(largest.path()).c_str());
  const TemporaryFile too_large(std::string(kMiB + 1, '\n'));
  STRCMP_CONTAINS(":1:1: the file has more than 1 MiB", load_refusal(too_large.path()).c_str());
}

TEST(Configuration, TheDemosAreGood) {
  const Result<Configuration> one = load_configuration(source_path("apps/demo.toml").c_str());
  CHECK(one.ok());
  const Result<Configuration> two =
      load_configuration(source_path("apps/demo-two-shards.toml").c_str());
  CHECK(two.ok());
}

TEST(Configuration, TheDemoServesRam0) {
  const Configuration c = parsed(source_text("apps/demo.toml"));
  STRCMP_EQUAL("demo /run/bedplate 5000 268435456 2097152 33554432 2 50 shard main 0 blockd 1 "
               "tcp:127.0.0.1:10809 0 0 64 64 10000 volume ram0 67108864 0",
               described(c).c_str());
}

// What apps/demo.toml says in a comment is what apps/demo-two-shards.toml does.
TEST(Configuration, TheDemosCommentIsTheOtherDemo) {
  std::istringstream lines(source_text("apps/demo.toml"));
  std::string line, text = "[appliance]\nname = \"demo\"\n[pool]\nbytes = \"256 MiB\"\n";
  bool in_part = false;
  while (std::getline(lines, line)) {
    in_part = in_part || line == "# [[shard]]";
    if (in_part && line.size() > 2) text += line.substr(2) + "\n";
  }
  text += "[[blockd.volume]]\nname = \"ram0\"\nbytes = \"64 MiB\"\n";
  STRCMP_EQUAL(described(parsed(source_text("apps/demo-two-shards.toml"))).c_str(),
               described(parsed(text)).c_str());
}

// ---- The documentation ----

TEST(Configuration, DocumentationHasEveryKeyAsTheParserKnowsIt) {
  std::istringstream lines(source_text("docs/configuration.md"));
  const std::vector<ConfigurationKey> keys = configuration_keys();
  size_t row = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `") || line.find("` | ") == std::string::npos) continue;
    std::vector<std::string> cells;
    std::istringstream rest(line.substr(1));
    for (std::string cell; std::getline(rest, cell, '|');) cells.push_back(trimmed(cell));
    if (cells.size() != 5) continue;  // another table of the document
    CHECK_TEXT(row < keys.size(), ("documented, but unknown: " + cells[0]).c_str());
    STRCMP_EQUAL(keys[row].name.c_str(), cells[0].c_str());
    STRCMP_EQUAL(keys[row].type.c_str(), cells[1].c_str());
    STRCMP_EQUAL(keys[row].default_text.c_str(), cells[2].c_str());
    STRCMP_EQUAL(keys[row].range.c_str(), cells[3].c_str());
    CHECK_TEXT(!cells[4].empty(), cells[0].c_str());
    ++row;
  }
  CHECK_TEXT(row == keys.size(), row < keys.size() ? keys[row].name.c_str() : "");
}

// A default that is written out changes nothing.
TEST(Configuration, DocumentedDefaultsAreTheOnesThatApply) {
  const std::string expected = described(parsed(file_with({})));
  int checked = 0;
  for (const ConfigurationKey& key : configuration_keys()) {
    if (key.default_text == "required" || key.type == "shard") continue;
    const size_t dot = key.name.rfind('.');
    const std::string table = key.name.substr(0, dot);
    const std::string setting = key.name.substr(dot + 1) + " = " + key.default_text;
    std::string text = file_with({});
    size_t at = text.find("[" + table + "]");
    if (at == std::string::npos) {
      text += "[" + table + "]\n" + setting + "\n";
    } else {
      text.insert(text.find('\n', at) + 1, setting + "\n");
    }
    STRCMP_EQUAL(expected.c_str(), described(parsed(text)).c_str());
    ++checked;
  }
  LONGS_EQUAL(10, checked);
}

TEST(Configuration, DocumentedExamplesAreGood) {
  const std::string document = source_text("docs/configuration.md");
  const std::string fence = "```toml\n";
  int checked = 0;
  for (size_t at = document.find(fence); at != std::string::npos; at = document.find(fence, at)) {
    at += fence.size();
    ACCEPTED(document.substr(at, document.find("```", at) - at));
    ++checked;
  }
  LONGS_EQUAL(3, checked);
}

TEST(Configuration, DocumentedErrorsAreWhatComes) {
  const std::string document = source_text("docs/configuration.md");
  const auto check = [&document](size_t line, const char* text) {
    const std::string shown = "    bedplate: " + refusal(file_with(line, text), "demo.toml") + "\n";
    CHECK_TEXT(document.find(shown) != std::string::npos, shown.c_str());
  };
  check(2, "name = \"Demo\"");
  check(4, "byte = \"256 MiB\"");
  check(4, "bytes = 268435457");
  check(7, "");
  const std::string unreadable = load_refusal("demo.toml.that.is.not.there");
  STRCMP_CONTAINS("No such file or directory; name a readable file with the appliance's "
                  "configuration",
                  unreadable.c_str());
}

// ---- Random damage ----

// Whatever happens to a file: it is accepted, or refused with a position that lies in it.
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
