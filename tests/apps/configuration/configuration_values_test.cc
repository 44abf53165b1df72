// Every refusal of a single value, and of values that do not fit together, with its exact position.
#include "apps/boot/loaded_configuration.h"
#include "tests/apps/configuration/configuration_support.h"

#include <cstdio>
#include <cstring>

#include <netinet/in.h>
#include <sys/socket.h>

using namespace bedplate;

TEST_GROUP(ConfigurationValues){};

// ---- Values ----

TEST(ConfigurationValues, RefusesNames) {
  const std::string cure = "; expected name: 1..32 of a-z, 0-9 and -";
  REFUSED("f:2:8: \"name\" is an integer" + cure, 2, "name = 7");
  REFUSED("f:2:8: \"name\" is a date or time" + cure, 2, "name = 2024-01-01");
  REFUSED("f:2:8: \"name\" is empty" + cure, 2, "name = \"\"");
  REFUSED("f:2:8: \"name\" is \"Demo\"" + cure, 2, "name = \"Demo\"");
  REFUSED("f:2:8: \"name\" is \"../x\"" + cure, 2, "name = \"../x\"");
  REFUSED("f:2:8: \"name\" contains a control character" + cure, 2, "name = \"a\\nb\"");
  REFUSED("f:2:8: \"name\" is 33 bytes long" + cure, 2, "name = \"" + std::string(33, 'x') + "\"");
  ACCEPTED(2, "name = \"" + std::string(32, 'x') + "\"");
}

TEST(ConfigurationValues, RefusesTexts) {
  const std::string cure = "; expected text: 1..255 bytes, unique";
  REFUSED("f:11:8: \"name\" is a boolean" + cure, 11, "name = true");
  REFUSED("f:11:8: \"name\" is empty" + cure, 11, "name = \"\"");
  REFUSED("f:11:8: \"name\" contains a control character" + cure, 11, "name = \"a\\u0000b\"");
  REFUSED("f:11:8: \"name\" is 256 bytes long" + cure, 11,
          "name = \"" + std::string(256, 'x') + "\"");
  ACCEPTED(11, "name = \"" + std::string(255, 'x') + "\"");
}

TEST(ConfigurationValues, RefusesPaths) {
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

TEST(ConfigurationValues, RefusesIntegers) {
  const std::string cure = "; expected integer: 0..1023";
  REFUSED("f:7:7: \"cpu\" is a string" + cure, 7, "cpu = \"0\"");
  REFUSED("f:7:7: \"cpu\" is a floating-point number" + cure, 7, "cpu = 0.0");
  REFUSED("f:7:7: \"cpu\" is -1" + cure, 7, "cpu = -1");
  REFUSED("f:7:7: \"cpu\" is 1024" + cure, 7, "cpu = 1024");
  REFUSED("f:7:7: \"cpu\" is 9223372036854775807" + cure, 7, "cpu = 9223372036854775807");
}

// Tests each integer key at the limits that all_keys() states, and one past each limit.
TEST(ConfigurationValues, IntegersKeepTheirLimits) {
  int checked = 0;
  for (const KeyDescription& key : all_keys()) {
    const bool is_elsewhere =
        key.name.starts_with("shard.") || key.name.starts_with("group.") ||
        key.name.starts_with("process.") || key.name.starts_with("verbs.") ||
        key.name.starts_with("tsrelay.") || key.name.starts_with("blockd.ceph.") ||
        key.name.starts_with("blockd.tenant.") || key.name.starts_with("blockd.listener.") ||
        key.name.starts_with("blockd.volume.rbd") || key.name.starts_with("kvd.listener.");
    if (key.type != "integer" || is_elsewhere) continue;
    const size_t dot = key.name.rfind('.');
    const std::string table = key.name.substr(0, dot), name = key.name.substr(dot + 1);
    long min = 0, max = 0;
    LONGS_EQUAL(2, std::sscanf(key.range.c_str(), "%ld..%ld", &min, &max));
    const std::string header = table == "blockd.volume" ? "[[" + table + "]]"
                               : table == "network"     ? "[[network]]\ninterface = \"a\""
                               : table == "port" ? "[[port]]\nname = \"p\"\ndevice = \"null\""
                               : table == "kvd"  ? "[kvd]\nlisten = [\"unix:/k\"]"
                                                 : "[" + table + "]";
    const auto file = [&](long value) {
      const std::string drive = name.starts_with("nvme_") ? "nvme = \"0000:01:00.0\"\n" : "";
      const std::string lines = header + "\n" + drive + name + " = " + std::to_string(value);
      for (size_t line = 1; line <= kLines.size(); ++line) {
        if (kLines[line - 1] == header) return file_with(line, lines);
      }
      return file_with({}) + lines + "\n";
    };
    ACCEPTED(file(min));
    ACCEPTED(file(max));
    for (const long value : {min - 1, max + 1}) {
      const std::string message = refusal(file(value));
      STRCMP_CONTAINS(
          ("\"" + name + "\" is " + std::to_string(value) + "; expected integer: " + key.range)
              .c_str(),
          message.c_str());
    }
    ++checked;
  }
  LONGS_EQUAL(31, checked);
}

TEST(ConfigurationValues, RefusesSizes) {
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
  REFUSED("f:12:9: \"bytes\" is \"99999999 TiB\"" + cure, 12, "bytes = \"99999999 TiB\"");
  REFUSED("f:12:9: \"bytes\" is 4097 bytes, not a multiple of 4 KiB" + cure, 12, "bytes = 4097");
  ACCEPTED(12, "bytes = \"64 TiB\"");
}

TEST(ConfigurationValues, RefusesBooleans) {
  REFUSED("f:13:13: \"read_only\" is an integer; expected boolean: true or false", 12,
          "bytes = 4096\nread_only = 1");
  REFUSED("f:13:13: \"read_only\" is a string; expected boolean: true or false", 12,
          "bytes = 4096\nread_only = \"true\"");
}

TEST(ConfigurationValues, RefusesChoices) {
  const auto pages = [](const char* value) {
    return file_with(4, std::string("bytes = \"1 GiB\"\npages = ") + value);
  };
  const std::string cure = "; expected choice: \"4 KiB\", \"2 MiB\", \"1 GiB\" or \"largest\"";
  REFUSED("f:5:9: \"pages\" is \"3 MiB\"" + cure, pages("\"3 MiB\""));
  REFUSED("f:5:9: \"pages\" is \"huge\"" + cure, pages("\"huge\""));
  REFUSED("f:5:9: \"pages\" is an integer" + cure, pages("4096"));
  CHECK(parsed(pages("\"4KiB\"")).pool.pages == PageWish::k4KiB);
  CHECK(parsed(pages("\"2097152\"")).pool.pages == PageWish::k2MiB);
  CHECK(parsed(pages("\"1 GiB\"")).pool.pages == PageWish::k1GiB);
  CHECK(parsed(pages("\"largest\"")).pool.pages == PageWish::kLargest);

  const auto sockets = [](const char* value) {
    return file_with(5, std::string("[event_loop]\nsockets = ") + value + "\n[[shard]]");
  };
  REFUSED("f:6:11: \"sockets\" is \"iouring\"; expected choice: \"io_uring-or-epoll\", "
          "\"io_uring\" or \"epoll\"",
          sockets("\"iouring\""));
  CHECK(parsed(sockets("\"io_uring\"")).event_loop.sockets == SocketBackendChoice::kIoUring);
  CHECK(parsed(sockets("\"epoll\"")).event_loop.sockets == SocketBackendChoice::kEpoll);
}

TEST(ConfigurationValues, RefusesListenLists) {
  const std::string cure = "; expected list of addresses: 1..8 addresses, unique";
  REFUSED("f:9:10: \"listen\" is a string" + cure, 9, "listen = \"activation:\"");
  REFUSED("f:9:10: \"listen\" has 0 addresses" + cure, 9, "listen = []");
  std::string list;
  for (int port = 1; port <= 8; ++port) list += "\"tcp:127.0.0.1:" + std::to_string(port) + "\",";
  ACCEPTED(9, "listen = [" + list + "]");
  REFUSED("f:9:10: \"listen\" has 9 addresses" + cure, 9,
          "listen = [" + list + "\"tcp:127.0.0.1:9\"]");
}

TEST(ConfigurationValues, RefusesAddressesWhereTheyStand) {
  REFUSED("f:10:3: \"tcp:localhost:1\" is not a listen address: the address is not numeric; "
          "write \"tcp:ADDRESS:PORT\" with a numeric address ([...] around IPv6), \"unix:/PATH\" "
          "or \"activation:\"",
          9, listen_line("tcp:127.0.0.1:1", "tcp:localhost:1"));
  REFUSED("f:10:13: an address in \"listen\" is an integer; write it as \"tcp:ADDRESS:PORT\", "
          "\"unix:/PATH\" or \"activation:\"",
          9, "listen = [\"tcp:127.0.0.1:1\",\n            10809]");
  // If the NUL ended the path, the path would be valid.
  REFUSED("f:9:11: an address in \"listen\" contains a control character; write it as "
          "\"tcp:ADDRESS:PORT\", \"unix:/PATH\" or \"activation:\"",
          9, "listen = [\"unix:/run/a\\u0000b\"]");
}

// ---- Across keys ----

TEST(ConfigurationValues, RefusesWhatIsTaken) {
  REFUSED("f:9:8: \"name\" \"main\" is already used by the [[shard]] at line 6; expected a "
          "different one: each [[shard]] has its own",
          7, "cpu = 0\n[[shard]]\nname = \"main\"\ncpu = 1");
  REFUSED("f:14:8: \"name\" \"ram0\" is already used by the [[blockd.volume]] at line 11; expected "
          "a different one: each [[blockd.volume]] has its own",
          12, "bytes = 4096\n[[blockd.volume]]\nname = \"ram0\"\nbytes = 4096");
  // The same name in another kind of table is no clash.
  ACCEPTED(11, "name = \"main\"");
  // Names are compared in full, although a message may shorten them to the same text.
  const std::string stem(254, 'x');
  ACCEPTED(
      file_with({{11, "name = \"" + stem + "a\""},
                 {12, "bytes = 4096\n[[blockd.volume]]\nname = \"" + stem + "b\"\nbytes = 4096"}}));
}

TEST(ConfigurationValues, ShardsShareACoreOnlyIfTheFileSaysSo) {
  const std::string second = "cpu = 0\n[[shard]]\nname = \"second\"\ncpu = 0";
  REFUSED("f:10:7: \"cpu\" 0 is already used by the [[shard]] at line 7; expected a different one: "
          "each [[shard]] has its own, unless shared_cores is true in [event_loop]",
          7, second);
  LONGS_EQUAL(2, refusals(file_with(7, second + "\n[[shard]]\nname = \"third\"\ncpu = 0")).size());
  // The table may come before or after the shards.
  for (const size_t line : {size_t{4}, size_t{12}}) {
    const std::string table = kLines[line - 1] + std::string("\n[event_loop]\nshared_cores = ");
    const auto both = parsed(file_with({{line, table + "true"}, {7, second}}));
    LONGS_EQUAL(2, both.shards.size());
    LONGS_EQUAL(both.shards[0].cpu, both.shards[1].cpu);
    CHECK(both.event_loop.shared_cores);
    LONGS_EQUAL(1, refusals(file_with({{line, table + "false"}, {7, second}})).size());
    // A value that is refused itself is the only problem.
    LONGS_EQUAL(1, refusals(file_with({{line, table + "1"}, {7, second}})).size());
  }
}

TEST(ConfigurationValues, RefusesUnknownShards) {
  REFUSED("f:9:21: no shard has the name \"mian\"; expected one of: main, other",
          file_with({{7, "cpu = 0"},
                     {8, "[blockd]\nconnections_shard = \"mian\""},
                     {12, "bytes = 4096\n[[shard]]\nname = \"other\"\ncpu = 1"}}));
  REFUSED("f:9:21: no shard has the name \"\"; expected one of: main", 8,
          "[blockd]\nconnections_shard = \"\"");
  REFUSED("f:9:21: \"connections_shard\" is an integer; expected shard: the name of a shard", 8,
          "[blockd]\nconnections_shard = 0");
  REFUSED("f:10:21: \"connections_shards\" names the shards, too; expected only one of them", 8,
          "[blockd]\nconnections_shards = [\"main\"]\nconnections_shard = \"main\"");
}

TEST(ConfigurationValues, RefusesPoolsThatAreNoMultipleOfThePage) {
  REFUSED("f:4:9: \"bytes\" is 268439552, not a multiple of the page size of 2 MiB; expected 256 "
          "MiB or 258 MiB",
          4, "bytes = 268439552");
  REFUSED("f:4:9: \"bytes\" is 4096, not a multiple of the page size of 2 MiB; expected 2 MiB", 4,
          "bytes = \"4 KiB\"");
  REFUSED("f:5:9: \"bytes\" is 268435456, not a multiple of the page size of 1 GiB; expected 1 GiB",
          4, "pages = \"1 GiB\"\nbytes = \"256 MiB\"");
  REFUSED("f:4:9: \"bytes\" is 4097, not a multiple of the page size of 4 KiB; expected 4 KiB or 8 "
          "KiB",
          4, "bytes = 4097\npages = \"4 KiB\"");
  ACCEPTED(4, "bytes = 4096\npages = \"4 KiB\"");
  REFUSED("f:4:9: \"bytes\" is 4096, not a multiple of the page size of 2 MiB; expected 2 MiB", 4,
          "bytes = 4096\npages = \"largest\"");
}

TEST(ConfigurationValues, RefusesAddressesThatClash) {
  const auto clash = [](const std::string& first, const std::string& second) {
    STRCMP_EQUAL(("f:10:3: \"" + second + "\" clashes with \"" + first +
                  "\" at line 9; expected another port or path (0.0.0.0 and [::] use a port on all "
                  "addresses)")
                     .c_str(),
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

// The kernel is the reference: two addresses clash exactly if the kernel refuses to listen at both.
TEST(ConfigurationValues, AddressesClashAsTheKernelSays) {
  const auto listener = [](const char* host, uint16_t port) {
    SocketAddress address;
    address.kind = std::strchr(host, ':') ? SocketAddress::Kind::kTcp6 : SocketAddress::Kind::kTcp4;
    address.host = host;
    address.port = port;
    return address;
  };
  const auto port_of = [](const Fd& listening) {
    sockaddr_in6 bound{};  // the port has the same offset in both families
    socklen_t bound_bytes = sizeof bound;
    getsockname(listening.number(), reinterpret_cast<sockaddr*>(&bound), &bound_bytes);
    return ntohs(bound.sin6_port);
  };
  std::vector<const char*> hosts = {"0.0.0.0", "127.0.0.1", "127.0.0.2"};
  // Without IPv6, fewer pairs of addresses are tested.
  if (listen_at(listener("::1", 0)).ok()) hosts.insert(hosts.end(), {"::", "::1"});
  for (const char* first_host : hosts) {
    for (const char* second_host : hosts) {
      uint16_t port = 0;
      bool kernel_accepts = false;
      for (bool is_known = false; !is_known;) {
        Result<Fd> first = listen_at(listener(first_host, 0));
        CHECK(first.ok());
        port = port_of(first.value());
        kernel_accepts = listen_at(listener(second_host, port)).ok();
        // A refusal that also comes without the first listener has another cause: tries again.
        first.value().close();
        is_known = kernel_accepts || listen_at(listener(second_host, port)).ok();
      }
      const std::string lines =
          listen_line(listener(first_host, port).text(), listener(second_host, port).text());
      CHECK_EQUAL_TEXT(kernel_accepts, refusal(9, lines).empty(), lines.c_str());
    }
  }
}

TEST(ConfigurationValues, ReadsWhatIsExpectedOfTheHeap) {
  const auto expected = [](const char* value) {
    return parsed(file_with({}) + "[alloc]\nexpect = " + value + "\n").alloc.expect;
  };
  CHECK(expected("\"any\"") == HeapExpectation::kAny);
  CHECK(expected("\"pool\"") == HeapExpectation::kPool);
  CHECK(expected("\"ordinary\"") == HeapExpectation::kOrdinary);
  REFUSED("f:14:10: \"expect\" is \"yes\"; expected choice: \"any\", \"pool\" or \"ordinary\"",
          file_with({}) + "[alloc]\nexpect = \"yes\"\n");
}
