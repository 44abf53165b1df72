#include "apps/tsrelay/relay_settings.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <set>

#include <sys/socket.h>

#include "apps/tsrelay/local_reader_datapath.h"
#include "apps/tsrelay/recording_datapath.h"

namespace bedplate {
namespace {

using Rule = ConfigurationKey::Rule;
using relay::StreamFormat;

constexpr uint64_t kNameMax = 31;
constexpr uint64_t kAddressMax = 64;
constexpr uint64_t kInterfaceMax = 15;  // IFNAMSIZ without its NUL
constexpr uint32_t kArrivals = 64;      // datagrams received but not processed
constexpr uint32_t kOwnSpare = 64;
constexpr uint32_t kBufferBytesMax = 65536;
constexpr uint64_t kStreamsMax = 256;
constexpr uint64_t kLegsMax = relay::LegMerge::kLegsMax;
constexpr uint64_t kOutputsMax = 500;
constexpr uint64_t kRecordingsMax = 16;
constexpr uint64_t kReadersMax = 32;
constexpr uint64_t kRateBytesMax = kTiB;
// The load of all streams fits into 64 bits.
static_assert(~uint64_t{0} / kRateBytesMax / kStreamsMax >
              kLegsMax + kOutputsMax + kRecordingsMax + kReadersMax);

constexpr Choice<StreamFormat> kFormats[] = {
    {"auto", StreamFormat::kAuto}, {"rtp", StreamFormat::kRtp}, {"udp", StreamFormat::kUdp}};

}  // namespace

static void describe(ConfigurationTable& table, RelayLegSettings& settings) {
  table.text("address", &settings.address, 1, kAddressMax)
      .required()
      .help("The address to receive at, such as 239.1.1.1:5004, [ff3e::1]:5004, or 0.0.0.0:5004.");
  table.ip_address("source", &settings.source)
      .otherwise("any sender")
      .help("The only accepted sender of a multicast group (SSM).");
  table.text("interface", &settings.interface, 1, kInterfaceMax)
      .otherwise("as the routes say")
      .help("The interface on which a multicast group is joined.");
  table.name("network", &settings.network, 1, kNameMax)
      .otherwise("the kernel's")
      .help("The name of the [[port]] that receives it.");
  table.boolean("fec", &settings.fec)
      .help("Receives FEC (ST 2022-1) as well, at this port + 2 and + 4.");
}

static void describe(ConfigurationTable& table, RelayOutputSettings& settings) {
  table.text("to", &settings.to, 1, kAddressMax)
      .required()
      .help("The destination: an address or a multicast group, and a port.");
  table.text("name", &settings.name, 1, kNameMax)
      .otherwise("what to says")
      .help("The name of its counters.");
  table.text("interface", &settings.interface, 1, kInterfaceMax)
      .otherwise("as the routes say")
      .help("The interface that sends to a multicast group.");
  table.integer("ttl", &settings.ttl, 1, 255)
      .help("The hop limit of packets to a multicast group.");
  table.name("network", &settings.network, 1, kNameMax)
      .otherwise("the kernel's")
      .help("The name of the [[port]] that sends it.");
  table.boolean("broadcast", &settings.broadcast)
      .help("Allows a broadcast address: all stations of a network get it.");
  table.boolean("plain", &settings.plain).help("Sends without RTP headers.");
  table.boolean("adds_rtp", &settings.adds_rtp)
      .help("Adds RTP headers if the stream arrives without.");
  table.boolean("fec", &settings.fec)
      .help("Also sends the FEC of [tsrelay.stream.fec], to its port + 2 and + 4.");
}

static void describe(ConfigurationTable& table, RelayRecordingSettings& settings) {
  table.path("path", &settings.path, 2, 4000)
      .required()
      .help("The file. With several files, a dot and a number follow; the newest has the "
            "highest number.");
  table.integer("files", &settings.files, 1, 1000)
      .help("The number of files: the full ones, the current one, and the next, which is empty.");
  table.size("rotate_bytes", &settings.rotate_bytes, 0, kSizeMaxBytes)
      .help("The next file begins before a file becomes longer than this. 0: no limit.");
  table.integer("rotate_s", &settings.rotate_s, 0, 31'536'000)
      .help("The next file begins after this many seconds. 0: no limit.");
}

static void describe(ConfigurationTable& table, RelayFecSettings& settings) {
  table.integer("columns", &settings.columns, 1, relay::kFecColumnsMax)
      .help("L: the number of columns of the matrix, and of losses in a row that are recovered.");
  table.integer("rows", &settings.rows, 4, relay::kFecRowsMax)
      .help("D: the number of rows of the matrix.");
  table.boolean("row_packets", &settings.row_packets)
      .help("Makes FEC packets for rows as well as for columns.");
}

static void describe(ConfigurationTable& table, RelayStreamSettings& settings) {
  table.name("name", &settings.name, 1, kNameMax)
      .required()
      .unique()
      .help("The stream's name, in counters and in requests of local readers.");
  table.shard("shard", &settings.shard)
      .otherwise("one of `shards`, by load")
      .help("The shard that serves it ([Several shards](tsrelay.md#several-shards)).");
  table.size("rate_bytes", &settings.rate_bytes, kKiB, kRateBytesMax)
      .help("The bytes of a second for which it is planned: its share of a shard. No limit.");
  table.choice("format", &settings.format, kFormats)
      .help("The format of the input: transport stream in RTP, or in plain UDP; `auto` decides "
            "for each datagram.");
  table.integer("window_ms", &settings.window_ms, 0, 10'000)
      .help("How long the stream waits for a missing RTP packet: from the other leg, by FEC, or "
            "out of order. Without a gap nothing waits.");
  table.integer("window_packets", &settings.window_packets, 1, relay::LegMerge::kWindowMax)
      .help("The longest window, in packets.");
  table.integer("queue_packets", &settings.queue_packets, 64, 65536)
      .rule(ConfigurationKey::Rule::kRoundedToPowerOfTwo)
      .help("The most packets that wait for one output before the oldest are dropped. Paced "
            "packets wait there, too.");
  table.integer("sender_timeout_ms", &settings.sender_timeout_ms, 1, 60'000)
      .help("After this long without packets from a sender, the log says so, and another sender "
            "may take over.");
  table.integer("pace_ms", &settings.pace_ms, 0, 10'000)
      .help("Not 0: packets leave at the pace of their PCRs, on average this long after their "
            "arrival.");
  table.size("buffer_bytes", &settings.buffer_bytes, 256, kBufferBytesMax)
      .help("The longest datagram, a multiple of 64; longer ones are dropped.");
  table.size("receive_queue_bytes", &settings.receive_queue_bytes, 0, kGiB)
      .help("The size of the kernel's receive buffer of each leg. 0: its default.");
  table.size("send_queue_bytes", &settings.send_queue_bytes, 0, kGiB)
      .help(
          "The size of the kernel's send buffer for the outputs of one interface. 0: its default.");
  table.integer("readers", &settings.readers, 0, kReadersMax)
      .help("The most local processes that read it by messages; see Readers in "
            "[tsrelay.md](tsrelay.md#readers).");
  table.tables("leg", &settings.legs, 1, kLegsMax);
  table.tables("output", &settings.outputs, 0, kOutputsMax);
  table.tables("recording", &settings.recordings, 0, kRecordingsMax);
  table.table("fec", &settings.fec, false, &settings.has_fec);
}

void describe(ConfigurationTable& table, RelaySettings& settings) {
  table.shards_or_all("shards", &settings.shards)
      .help("The shards that serve streams. A stream without `shard` goes to the one with the "
            "least planned load ([Several shards](tsrelay.md#several-shards)).");
  table.tables("stream", &settings.streams, 1, kStreamsMax);
}

// ---- Sizes --------------------------------------------------------------------------------------

uint64_t RelayStreamSettings::load_bytes() const noexcept {
  return rate_bytes * (legs.size() + outputs.size() + recordings.size() + readers);
}

bool RelayStreamSettings::receives_fec() const noexcept {
  return std::any_of(legs.begin(), legs.end(), [](const auto& leg) { return leg.fec; });
}

bool RelayStreamSettings::adds_rtp() const noexcept {
  return std::any_of(outputs.begin(), outputs.end(), [](const auto& its) { return its.adds_rtp; });
}

uint32_t RelayStreamSettings::leg_buffer_bytes() const noexcept {
  return buffer_bytes + (adds_rtp() ? relay::kRtpHeadroomBytes : 0);
}

uint64_t RelayStreamSettings::recording_file_count() const noexcept {
  uint64_t count = 0;
  for (const RelayRecordingSettings& recording : recordings) count += recording.files;
  return count;
}

uint32_t RelayStreamSettings::ring_slots() const noexcept { return std::bit_ceil(queue_packets); }

uint32_t RelayStreamSettings::leg_buffers() const noexcept {
  const auto recording_count = static_cast<uint32_t>(recordings.size());
  return kArrivals + window_packets + ring_slots() +
         (receives_fec() ? relay::FecReceiver::kMediaMax : 0) +
         recording_count * relay::Recording::kWritesMax + readers * relay::LocalReader::kLoansMax;
}

uint32_t RelayStreamSettings::fec_buffers() const noexcept {
  return kArrivals + relay::FecReceiver::kSumsMax;
}

uint32_t RelayStreamSettings::own_buffers() const noexcept {
  uint32_t count = 0;
  if (has_fec) count += relay::FecSender::buffer_count(fec.columns) + ring_slots() / 2;
  if (receives_fec()) count += relay::kFecMatrixMax * relay::FecReceiver::kMatricesHeld;
  return count == 0 ? 0 : count + kOwnSpare;
}

uint32_t RelayStreamSettings::packet_count() const noexcept {
  uint32_t count = own_buffers();
  for (const RelayLegSettings& leg : legs)
    count += leg_buffers() + (leg.fec ? 2 * fec_buffers() : 0);
  return count;
}

std::vector<RelayGroup> groups_of(const RelayStreamSettings& settings) {
  std::vector<RelayGroup> groups;
  for (uint32_t i = 0; i < settings.outputs.size(); ++i) {
    const RelayOutputSettings& output = settings.outputs[i];
    const int family = parse_datagram_address(output.to).value().ip.family;
    const auto is_it = [&](const RelayGroup& group) {
      return group.interface == output.interface && group.network == output.network &&
             group.ttl == output.ttl && group.family == family &&
             group.broadcast == output.broadcast;
    };
    auto group = std::find_if(groups.begin(), groups.end(), is_it);
    if (group == groups.end()) {
      groups.push_back(
          {output.interface, output.network, output.ttl, family, output.broadcast, {}});
      group = groups.end() - 1;
    }
    group->outputs.push_back(i);
  }
  return groups;
}

std::string instance_of(const RelayStreamSettings& stream, uint32_t output) {
  const RelayOutputSettings& its = stream.outputs[output];
  const std::string& name = !its.name.empty() ? its.name : its.to;
  // An IPv6 address may exceed the length limit of names.
  return stream.name + "/" + (name.size() <= kNameMax ? name : "output-" + std::to_string(output));
}

// ---- Checks -------------------------------------------------------------------------------------

Error refused(const RelayStreamSettings& stream, const std::string& what, const char* answer,
              const char* cure) {
  return configuration_error_while("checking %s of the stream %s in [tsrelay]", what.c_str(),
                                   stream.name.c_str())
      .set_answer("%s", answer)
      .set_cure("%s", cure);
}

Error refused_broadcast(const RelayStreamSettings& stream, const RelayOutputSettings& output) {
  return refused(stream, "to = \"" + output.to + "\"",
                 "it is a broadcast address, and broadcast is not set",
                 "set broadcast = true, or send to a multicast group");
}

namespace {

bool begins(const IpAddress& ip, std::initializer_list<uint8_t> bytes) noexcept {
  return std::equal(bytes.begin(), bytes.end(), ip.bytes);
}

bool is_unspecified(const IpAddress& ip) noexcept {
  return std::all_of(ip.bytes, ip.bytes + ip.byte_count(), [](uint8_t byte) { return byte == 0; });
}

// The reason why no socket of the family can bind this address or send to it, and the cure;
// nullptr: a socket can.
struct Impossible {
  const char* answer = nullptr;
  const char* cure = nullptr;
};
Impossible impossible(const IpAddress& ip) noexcept {
  if (ip.family != AF_INET6) return {};
  if (begins(ip, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff})) {
    return {"it is an IPv4-mapped IPv6 address", "write the IPv4 address"};
  }
  if (ip.bytes[0] == 0xfe && (ip.bytes[1] & 0xc0) == 0x80) {
    return {"it is a link-local address, which is valid on one link only",
            "choose an address that is valid on all links (fc00::/7, 2000::/3), or a group"};
  }
  return {};
}

}  // namespace

static Result<void> check(const RelayStreamSettings& stream, const RelayLegSettings& leg) {
  const std::string what = "address = \"" + leg.address + "\"";
  BP_TRY_ASSIGN(const auto address, parse_datagram_address(leg.address));
  const IpAddress& ip = address.ip;
  const uint32_t farthest = address.port + (leg.fec ? relay::kFecRowPort : 0U);
  if (address.port == 0 || farthest > 65535) {
    return refused(stream, what, "its port is not valid", "choose 1..65535, or with fec 1..65531");
  }
  if (leg.fec && stream.format == StreamFormat::kUdp) {
    return refused(stream, what, "fec is set, but FEC restores RTP, and format is \"udp\"",
                   "leave fec out, or set format = \"auto\" or \"rtp\"");
  }
  if (!leg.source.empty() && !ip.is_multicast()) {
    return refused(stream, what, "it has a source, but is not a multicast group",
                   "leave source out, or receive a group (224.0.0.0/4, ff00::/8)");
  }
  if (const auto [answer, cure] = impossible(ip); answer != nullptr) {
    return refused(stream, what, answer, cure);
  }
  if (leg.source.empty()) return {};
  const IpAddress source = parse_ip_address(leg.source).value();
  if (source.family != ip.family) {
    return refused(stream, what, "its source is of the other address family",
                   "make both IPv4, or both IPv6");
  }
  if (source.is_multicast() || is_unspecified(source)) {
    return refused(stream, what, "its source cannot be the address of a sender",
                   "set the address of the sender");
  }
  return {};
}

static Result<void> check(const RelayStreamSettings& stream, const RelayOutputSettings& output) {
  const std::string what = "to = \"" + output.to + "\"";
  BP_TRY_ASSIGN(const auto address, parse_datagram_address(output.to));
  const uint32_t farthest = address.port + (output.fec ? relay::kFecRowPort : 0U);
  if (address.port == 0 || farthest > 65535) {
    return refused(stream, what, "its port is not valid", "choose 1..65535, or with fec 1..65531");
  }
  const IpAddress& ip = address.ip;
  if (is_unspecified(ip)) {
    return refused(stream, what, "it is the unspecified address",
                   "set that of the receiver, or a group");
  }
  if (const auto [answer, cure] = impossible(ip); answer != nullptr) {
    return refused(stream, what, answer, cure);
  }
  if (ip.family == AF_INET && begins(ip, {255, 255, 255, 255}) && !output.broadcast) {
    return refused_broadcast(stream, output);
  }
  if (output.broadcast && (ip.family != AF_INET || ip.is_multicast())) {
    return refused(stream, what, "broadcast is set, but it is not a broadcast address",
                   "leave broadcast out");
  }
  if (output.broadcast && !output.network.empty()) {
    return refused(stream, what, "a port sends nothing to broadcast addresses",
                   "leave its network out, or send to a multicast group");
  }
  if (output.fec && (!stream.has_fec || output.plain)) {
    return refused(stream, what, "fec is set, but there is no FEC for it",
                   "add a [tsrelay.stream.fec], and leave plain out: FEC needs RTP");
  }
  if (output.fec && stream.format == StreamFormat::kUdp && !output.adds_rtp) {
    return refused(stream, what, "fec is set, but its packets have no RTP, which FEC needs",
                   "set adds_rtp = true, or leave fec out");
  }
  if (output.plain && output.adds_rtp) {
    return refused(stream, what, "plain and adds_rtp are both set", "leave one of them out");
  }
  return {};
}

static Result<void> check_adding_rtp(const RelayStreamSettings& stream) {
  const auto refuse = [&](const char* answer, const char* cure) {
    return refused(stream, "adds_rtp", answer, cure);
  };
  if (stream.format == StreamFormat::kRtp) {
    return refuse("all packets of the stream already have RTP",
                  "leave adds_rtp out, or format = \"rtp\"");
  }
  if (stream.leg_buffer_bytes() > kBufferBytesMax) {
    return refuse("buffers of 64 KiB have no space for it", "lower buffer_bytes");
  }
  for (const RelayLegSettings& leg : stream.legs) {
    if (leg.network.empty()) continue;
    return refuse("packets that a port receives have no space for a header",
                  "receive the leg through the kernel: leave its network out");
  }
  return {};
}

static Result<void> check(const RelayStreamSettings& stream) {
  for (const RelayLegSettings& leg : stream.legs) BP_TRY(check(stream, leg));
  std::set<std::string> instances;
  for (uint32_t i = 0; i < stream.outputs.size(); ++i) {
    BP_TRY(check(stream, stream.outputs[i]));
    if (!instances.insert(instance_of(stream, i)).second) {
      return refused(stream, "output " + std::to_string(i), "another one has the same name",
                     "give it a name of its own");
    }
  }
  if (stream.adds_rtp()) BP_TRY(check_adding_rtp(stream));
  if (stream.legs.size() > 1 && stream.format == StreamFormat::kUdp) {
    return refused(stream, "two legs",
                   "without RTP, equal packets of both legs cannot be recognised",
                   "use RTP, or one leg");
  }
  if (stream.has_fec && stream.fec.columns * stream.fec.rows > relay::kFecMatrixMax) {
    return refused(stream, "fec", "a matrix has 100 packets at most", "lower columns or rows");
  }
  if (stream.has_fec && stream.fec.row_packets && stream.fec.columns < 4) {
    return refused(stream, "fec", "FEC of rows needs at least 4 columns",
                   "raise columns, or set row_packets = false");
  }
  if (stream.buffer_bytes % kCacheLineBytes != 0) {
    return refused(stream, "buffer_bytes", "it is not a multiple of 64", "round it up");
  }
  for (const RelayRecordingSettings& recording : stream.recordings) {
    if (recording.rotate_bytes != 0 && recording.rotate_bytes < stream.buffer_bytes) {
      return refused(stream, "rotate_bytes of path = \"" + recording.path + "\"",
                     "a packet can have buffer_bytes, and would not fit into a file",
                     "raise rotate_bytes, or lower buffer_bytes");
    }
    const bool rotates = recording.rotate_bytes != 0 || recording.rotate_s != 0;
    if (rotates == (recording.files > 1)) continue;
    return refused(
        stream, "path = \"" + recording.path + "\"",
        rotates ? "it rotates, but has only one file" : "it has several files, but does not rotate",
        "set both files = 2 or more and rotate_bytes or rotate_s, or neither");
  }
  return {};
}

Result<void> check(const RelaySettings& settings) {
  for (const RelayStreamSettings& stream : settings.streams) BP_TRY(check(stream));
  return {};
}

}  // namespace bedplate
