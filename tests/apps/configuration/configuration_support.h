// Support for tests of the configuration: a valid file whose lines tests replace, the parser's
// messages, and the settings as text.
#pragma once

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "apps/blockd/block_service.h"
#include "apps/configuration/configuration.h"
#include "apps/control/control_service.h"
#include "apps/http/http_service.h"
#include "apps/init/image_settings.h"
#include "apps/kvd/kv_service.h"
#include "apps/peers/verbs_settings.h"
#include "apps/ports/port_service.h"
#include "apps/tsrelay/relay_service.h"

#include "CppUTest/TestHarness.h"
#include "apps/boot/loaded_configuration.h"

#ifndef BP_SOURCE_DIRECTORY
#define BP_SOURCE_DIRECTORY "."
#endif

namespace bedplate {

inline constexpr std::array<const char*, 12> kLines = {
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
  std::string text;  // replaces the line; may have several lines, or none
};

// Returns the valid file with some lines replaced.
inline std::string file_with(const std::vector<Change>& changes) {
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

inline std::string file_with(size_t line, const std::string& text) {
  return file_with({{line, text}});
}

// The lines that add a group and a process to the valid file.
inline constexpr const char* kMessagesLines =
    "[[group]]\nname = \"main\"\nmembers = 2\n"                             // 13 to 15
    "[[process]]\nname = \"worker\"\nuser = \"root\"\ngroup = \"main\"\n";  // 16 to 19
inline std::string file_with_messages(const std::string& more = "") {
  return file_with({}) + kMessagesLines + more;
}

// A configuration of a program with all services of this tree.
struct ParsedConfiguration : Configuration {
  std::shared_ptr<BlockService> service = std::make_shared<BlockService>();
  std::shared_ptr<KvService> kvd = std::make_shared<KvService>();
  std::shared_ptr<DpdkService> dpdk = std::make_shared<DpdkService>();
  std::shared_ptr<PortService> port = std::make_shared<PortService>(*dpdk);
  std::shared_ptr<RelayService> tsrelay = std::make_shared<RelayService>();
  std::shared_ptr<HttpService> http = std::make_shared<HttpService>();
  std::shared_ptr<ControlService> control = std::make_shared<ControlService>(nullptr);

  bool has_blockd() const {
    return std::find(services.begin(), services.end(), service.get()) != services.end();
  }
  BlockdSettings& blockd() const { return service->settings(); }
};

inline std::optional<ParsedConfiguration> parse(const std::string& text, const char* path,
                                                std::vector<Error>* problems) {
  ParsedConfiguration all;
  Service* const services[] = {all.dpdk.get(),    all.port.get(), all.service.get(), all.kvd.get(),
                               all.tsrelay.get(), all.http.get(), all.control.get()};
  auto read = parse_configuration(text, path, services, problems);
  if (!read) return std::nullopt;
  static_cast<Configuration&>(all) = *read;
  return all;
}

// The keys of a program with all services of this tree.
inline std::vector<KeyDescription> all_keys() {
  static BlockService blockd;
  static KvService kvd;
  static DpdkService dpdk;
  static PortService port(dpdk);
  static RelayService tsrelay;
  static HttpService http;
  static ControlService control(nullptr);
  Service* const services[] = {&dpdk, &port, &blockd, &kvd, &tsrelay, &http, &control};
  return configuration_keys(services);
}

// Returns a line for each problem of `text`; none: it is accepted.
inline std::vector<std::string> refusals(const std::string& text, const char* path = "f") {
  std::vector<Error> problems;
  const auto configuration = parse(text, path, &problems);
  CHECK_EQUAL(problems.empty(), configuration.has_value());
  std::vector<std::string> messages;
  for (const Error& problem : problems) {
    CHECK(problem.kind == ErrorKind::kConfiguration);
    char message[1024];
    messages.push_back(format_error(problem, message, sizeof message));
  }
  return messages;
}

// Returns the first problem of `text`; "": it is accepted.
inline std::string refusal(const std::string& text, const char* path = "f") {
  const std::vector<std::string> messages = refusals(text, path);
  return messages.empty() ? "" : messages[0];
}

inline std::string refusal(size_t line, const std::string& text) {
  return refusal(file_with(line, text));
}

#define REFUSED(message, ...) \
  STRCMP_EQUAL(std::string(message).c_str(), refusal(__VA_ARGS__).c_str())
#define ACCEPTED(...) STRCMP_EQUAL("", refusal(__VA_ARGS__).c_str())

inline ParsedConfiguration parsed(const std::string& text) {
  STRCMP_EQUAL("", refusal(text).c_str());
  std::vector<Error> problems;
  return *parse(text, "f", &problems);
}

template <typename Value>
std::string optional_text(const std::optional<Value>& value) {
  return value.has_value() ? std::to_string(static_cast<int>(*value)) : "-";
}

inline void describe_messages(const Configuration& c, std::ostream& out) {
  for (const GroupSettings& group : c.groups) {
    const GroupShape& s = group.shape;
    out << " group " << group.name << ' ' << to_text(s.kind) << ' ' << s.member_count << ' '
        << s.entry_count << ' ' << s.eager_bytes << ' ' << s.eager_count << ' ' << s.box_count
        << ' ' << s.box_bytes << ' ' << s.box_count_max << ' ' << s.send_threshold << ' '
        << s.loan_count << ' ' << s.is_multi_threaded << ' ' << s.line_bytes;
  }
  for (const ProcessSettings& process : c.processes) {
    out << " process " << process.name << ' ' << process.user << ' ' << process.trusted << ' '
        << process.group << ' ' << process.max_count << ' ' << process.place_count() << ' '
        << process.members << ' ' << process.heap_bytes;
    for (const std::string& owner : process.read) out << " r:" << owner;
    for (const std::string& owner : process.write) out << " w:" << owner;
    out << ' ' << process.box_bytes << ' ' << process.verbs;
  }
  if (c.processes.empty()) return;
  out << ' ' << c.messages.socket;
  for (const SingleCopyKind kind : c.messages.single_copy) out << ' ' << to_text(kind);
  out << ' ' << static_cast<int>(c.messages.on_join_failure);
}

inline std::string address_text(const std::optional<SocketAddress>& address) {
  return address ? address->text() : "-";
}

inline void describe_verbs(const VerbsSettings& v, std::ostream& out) {
  if (!v.enabled) return;
  out << " verbs " << v.required << " '" << v.device << "' " << int{v.port} << ' ' << v.shard << ' '
      << address_text(v.listen) << ' ' << static_cast<int>(v.connect) << ' ' << v.window << ' '
      << v.message_bytes << ' ' << v.operations << ' ' << v.bounce_bytes << ' ' << v.datagrams
      << ' ' << v.max_peers << ' ' << v.trust_windows << ' ' << v.back_off_min_ms << ' '
      << v.back_off_max_ms << ' ' << v.give_up_ms << ' ' << static_cast<int>(v.remote) << " '"
      << v.driver << "' '" << v.interface << "'";
  for (const VerbsPeerSettings& peer : v.peers) {
    out << " peer " << peer.name << ' ' << address_text(peer.address);
  }
  for (const VerbsExportSettings& one : v.exports) {
    out << " export " << one.name << ' ' << one.bytes << ' ' << one.may_read << one.may_write
        << one.may_atomic << ' ' << optional_text(one.pages);
  }
}

// Returns the settings that the first process of an image reads, as text.
inline std::string described_init(const ParsedConfiguration& c) {
  std::ostringstream out;
  for (const SocketAddress& address : c.blockd().image_listen) out << ' ' << address.text();
  const auto& [init, networks, watchdog, crash] = image_settings(c);
  out << " init " << static_cast<int>(init.on_terminate) << ' '
      << static_cast<int>(init.on_ctrl_alt_del);
  for (const NetworkSettings& network : networks) {
    out << " network " << network.interface << ' ' << network.address << ' ' << network.gateway
        << ' ' << network.mtu << ' ' << network.driver;
  }
  out << " watchdog " << watchdog.enabled << ' ' << watchdog.device << ' ' << watchdog.timeout_s
      << ' ' << watchdog.required << ' ' << watchdog.driver << " crash "
      << static_cast<int>(crash.action) << ' ' << crash.delay_s << ' '
      << static_cast<int>(crash.dump) << ' ';
  for (const std::string& owner : crash.owners) out << owner << ' ';
  out << crash.device;
  for (const std::string& driver : crash.drivers) out << ' ' << driver;
  return out.str();
}

// Returns the settings of a configuration as text, except those of described_init().
inline std::string described(const ParsedConfiguration& c) {
  std::ostringstream out;
  out << c.appliance.name << ' ' << c.appliance.runtime_directory << ' '
      << c.appliance.drain_timeout_ms << ' ' << c.pool.bytes << ' '
      << static_cast<int>(c.pool.pages) << ' ' << static_cast<int>(c.pool.enforce) << ' '
      << c.pool.heap_min_bytes << ' ' << optional_text(c.pool.heap_pages) << ' '
      << optional_text(c.pool.heap_node) << ' ' << static_cast<int>(c.event_loop.sockets) << ' '
      << c.event_loop.spin_us << ' ' << c.event_loop.stall_ms << ' '
      << static_cast<int>(c.alloc.expect);
  for (const ShardSettings& shard : c.shards) out << " shard " << shard.name << ' ' << shard.cpu;
  const BlockdSettings& blockd = c.blockd();
  out << " blockd " << c.has_blockd();
  for (const SocketAddress& address : blockd.listen) out << ' ' << address.text();
  out << ' ' << blockd.connections_shard << ' ';
  for (const uint32_t shard : blockd.volumes_shards) out << shard << ' ';
  out << blockd.max_connections << ' ' << blockd.requests_per_connection << ' '
      << blockd.handshake_timeout_ms << ' ' << blockd.client_timeout_s;
  for (const VolumeSettings& volume : blockd.volumes) {
    out << " volume " << volume.name << ' ' << volume.bytes << ' ' << volume.read_only << ' '
        << optional_text(volume.pages) << ' ' << optional_text(volume.node);
    if (volume.is_memory()) continue;
    out << ' ' << volume.file << ' ' << volume.device << ' ' << volume.queue.buffer_bytes << ' '
        << volume.queue.task_count;
  }
  describe_messages(c, out);
  describe_verbs(verbs_settings(c), out);
  return out.str();
}

inline std::string source_path(const char* name) {
  return std::string(BP_SOURCE_DIRECTORY "/") + name;
}

inline std::string source_text(const char* name) {
  std::ifstream file(source_path(name));
  CHECK_TEXT(file.good(), "run the tests in the source tree, or set BP_SOURCE_DIRECTORY");
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns a list of two addresses, on two lines.
inline std::string listen_line(const std::string& first, const std::string& second) {
  return "listen = [\"" + first + "\",\n  \"" + second + "\"]";
}

}  // namespace bedplate
