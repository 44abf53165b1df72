#include "transport/dpdk/net/group_reports_datapath.h"

#include <algorithm>
#include <utility>

#include <rte_ip.h>

#include "platform/assert.h"

namespace bedplate {
namespace {

constexpr uint8_t kIgmpQuery = 0x11;
constexpr uint8_t kIgmpV2Report = 0x16;
constexpr uint8_t kIgmpV2Leave = 0x17;
constexpr uint8_t kIgmpV3Report = 0x22;
constexpr uint8_t kMldQuery = 130;
constexpr uint8_t kMldV1Report = 131;
constexpr uint8_t kMldV1Done = 132;
constexpr uint8_t kMldV2Report = 143;
// Types of records.
constexpr uint8_t kIsInclude = 1;
constexpr uint8_t kIsExclude = 2;
constexpr uint8_t kToInclude = 3;
constexpr uint8_t kToExclude = 4;

constexpr uint32_t kIgmpOldBytes = 8;
constexpr uint32_t kIgmpV3QueryBytes = 12;
constexpr uint32_t kMldOldBytes = 24;
constexpr uint32_t kMldV2QueryBytes = 28;
constexpr uint32_t kReportHeadBytes = 8;
constexpr uint32_t kRecordHeadBytes = 4;
constexpr uint32_t kRobustnessMax = 7;            // of three bits
constexpr uint64_t kDelayMaxNs = 10'000'000'000;  // of an answer, even if a query allows more
constexpr uint8_t kControlClass = 0xc0;           // RFC 3376, 4: internetwork control
const IpAddress kAllIgmpV3Routers = ipv4_address(224, 0, 0, 22);
const IpAddress kAllRouters4 = ipv4_address(224, 0, 0, 2);
const IpAddress kAllHosts4 = ipv4_address(224, 0, 0, 1);
const IpAddress kAllMldV2Routers = link_group(0x16);
const IpAddress kAllRouters6 = link_group(2);

uint16_t number_at(const uint8_t* bytes) noexcept {
  return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]);
}

void put_number(uint8_t* bytes, uint32_t value) noexcept {
  bytes[0] = static_cast<uint8_t>(value >> 8);
  bytes[1] = static_cast<uint8_t>(value);
}

// RFC 3376, 4.1.1, and RFC 3810, 5.1.3: larger codes are floating-point numbers.
uint64_t igmp_delay_ns(uint8_t code) noexcept {
  constexpr uint64_t kUnitNs = 100'000'000;
  if (code < 128) return code * kUnitNs;
  return (uint64_t{(code & 0x0fU) | 0x10U} << ((code >> 4 & 7) + 3)) * kUnitNs;
}

uint64_t mld_delay_ns(uint16_t code) noexcept {
  constexpr uint64_t kUnitNs = 1'000'000;
  if (code < 32768) return code * kUnitNs;
  return (uint64_t{(code & 0x0fffU) | 0x1000U} << ((code >> 12 & 7) + 3)) * kUnitNs;
}

}  // namespace

GroupReports::GroupReports(FrameSender& sender, const Routes& routes, Memberships& memberships,
                           NetCounters& counters) noexcept
    : sender_(sender), routes_(routes), memberships_(memberships), counters_(counters) {
  sides_[0].family = AF_INET;
  sides_[1].family = AF_INET6;
  // Stations of a link should not answer at the same time: each seeds with its own MAC address.
  random_ = 1ULL << 56;
  std::memcpy(&random_, &sender.mac(), sizeof(rte_ether_addr));
}

bool GroupReports::is_reported(const IpAddress& group) noexcept {
  if (group.family == AF_INET) return !is_same(group, kAllHosts4);
  // RFC 3810, 6: neither ff02::1 nor groups that do not leave the station.
  return !is_same(group, link_group(1)) && (group.bytes[1] & 0x0f) > 1;
}

// xorshift64*: good enough to spread reports in time.
uint64_t GroupReports::random_below(uint64_t limit) noexcept {
  random_ ^= random_ >> 12;
  random_ ^= random_ << 25;
  random_ ^= random_ >> 27;
  return limit == 0 ? 0 : random_ * 0x2545f4914f6cdd1dULL % limit;
}

bool GroupReports::is_valid() const noexcept {
  for (const Side& side : sides_) {
    if (side.frame != nullptr || side.record_count != 0) return false;
    if (side.answer_ns < deadline_ns_) return false;
    if (side.robustness < 1 || side.robustness > kRobustnessMax) return false;
  }
  for (uint32_t i = 0; i < memberships_.group_count_max(); ++i) {
    const LinkGroup& group = std::as_const(memberships_).group(i);
    if (!group.is_used() || !is_reported(group.address)) continue;
    if (group.answer_ns < deadline_ns_ || group.reports_left > kRobustnessMax) return false;
    if (group.reports_left > 0 && group.report_ns < deadline_ns_) return false;
  }
  return true;
}

void GroupReports::changed(LinkGroup& group) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(group.is_used());
  if (!is_reported(group.address)) {
    memberships_.forget_if_left(group);
    return;
  }
  group.reports_left = side_of(group.address.family).robustness;
  group.report_ns = 0;
  deadline_ns_ = 0;
}

// ---- Queries ------------------------------------------------------------------------------------

PacketDrop GroupReports::take_query(Side& side, const IpAddress& group, uint64_t delay_max_ns,
                                    uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(group.family == side.family);
  const uint64_t due_ns = now_ns + random_below(std::min(delay_max_ns, kDelayMaxNs));
  if (is_unspecified(group)) {
    side.answer_ns = std::min(side.answer_ns, due_ns);
  } else if (!is_multicast(group)) {
    return PacketDrop::kGroups;
  } else if (LinkGroup* its = memberships_.find_group(group)) {
    its->answer_ns = std::min(its->answer_ns, due_ns);
  }
  deadline_ns_ = std::min(deadline_ns_, due_ns);
  return PacketDrop::kNone;
}

PacketDrop GroupReports::take_igmp(const ParsedPacket& packet, uint64_t now_ns) noexcept {
  BP_DCHECK(packet.kind == PacketKind::kIgmp && packet.message_bytes >= kIgmpOldBytes);
  const uint8_t* message = packet.message;
  if (message[0] != kIgmpQuery) return PacketDrop::kNone;  // reports of other hosts change nothing
  Side& side = sides_[0];
  uint64_t delay_max_ns = igmp_delay_ns(message[1]);
  if (packet.message_bytes == kIgmpOldBytes) {
    // RFC 3376, 7.2.1. A query of IGMPv1 gives no delay, and is answered like one of IGMPv2.
    side.old_until_ns = now_ns + kOldQuerierNs;
    delay_max_ns = message[1] == 0 ? kDelayMaxNs : message[1] * uint64_t{100'000'000};
  } else if (packet.message_bytes < kIgmpV3QueryBytes ||
             packet.message_bytes - kIgmpV3QueryBytes < number_at(message + 10) * 4U) {
    return PacketDrop::kGroups;
  } else if ((message[8] & 7) > 1) {
    side.robustness = message[8] & 7;
  }
  uint32_t group;
  std::memcpy(&group, message + 4, sizeof group);
  return take_query(side, ipv4_address(group), delay_max_ns, now_ns);
}

// RFC 3810, 6.2: only a query with a link-local source counts.
PacketDrop GroupReports::take_mld(const ParsedPacket& packet, uint64_t now_ns) noexcept {
  BP_DCHECK(packet.kind == PacketKind::kIcmp6);
  const uint8_t* message = packet.message;
  if (message[0] != kMldQuery) return PacketDrop::kNone;
  if (packet.hops != 1 || !is_link_local(packet.from) || !packet.has_router_alert ||
      packet.message_bytes < kMldOldBytes) {
    return PacketDrop::kGroups;
  }
  Side& side = sides_[1];
  uint64_t delay_max_ns = mld_delay_ns(number_at(message + 4));
  if (packet.message_bytes == kMldOldBytes) {
    side.old_until_ns = now_ns + kOldQuerierNs;
    delay_max_ns = number_at(message + 4) * uint64_t{1'000'000};
  } else if (packet.message_bytes < kMldV2QueryBytes ||
             packet.message_bytes - kMldV2QueryBytes < number_at(message + 26) * 16U) {
    return PacketDrop::kGroups;
  } else if ((message[24] & 7) > 1) {
    side.robustness = message[24] & 7;
  }
  return take_query(side, ipv6_address(message + 8), delay_max_ns, now_ns);
}

// ---- Reports ------------------------------------------------------------------------------------

void GroupReports::advance(uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  if (now_ns < deadline_ns_) return;
  deadline_ns_ = kNever;
  for (uint32_t i = 0; i < memberships_.group_count_max(); ++i) {
    LinkGroup& group = memberships_.group(i);
    if (!group.is_used() || !is_reported(group.address)) continue;
    Side& side = side_of(group.address.family);
    if (group.reports_left > 0 && group.report_ns <= now_ns) {
      say(side, group, true, now_ns);
      --group.reports_left;
      group.report_ns = now_ns + 1 + random_below(kReportIntervalNs);
    }
    const bool is_asked = group.answer_ns <= now_ns || side.answer_ns <= now_ns;
    if (is_asked && group.is_joined()) say(side, group, false, now_ns);
    if (group.answer_ns <= now_ns) group.answer_ns = kNever;
    if (group.reports_left == 0) memberships_.forget_if_left(group);
    if (group.reports_left > 0) deadline_ns_ = std::min(deadline_ns_, group.report_ns);
    deadline_ns_ = std::min(deadline_ns_, group.answer_ns);
  }
  for (Side& side : sides_) {
    if (side.answer_ns <= now_ns) side.answer_ns = kNever;
    deadline_ns_ = std::min(deadline_ns_, side.answer_ns);
    finish(side);
  }
  BP_DCHECK(deadline_ns_ > now_ns);
}

void GroupReports::say(Side& side, const LinkGroup& group, bool is_change,
                       uint64_t now_ns) noexcept {
  BP_DCHECK(group.address.family == side.family && is_reported(group.address));
  BP_DCHECK((is_change || group.is_joined()) && "nobody is told of what is not there");
  if (now_ns < side.old_until_ns) {
    say_old(side, group);
  } else {
    add_record(side, group, is_change);
  }
}

void GroupReports::say_old(const Side& side, const LinkGroup& group) noexcept {
  const bool is_ipv6 = side.family == AF_INET6;
  const uint32_t bytes = is_ipv6 ? kMldOldBytes : kIgmpOldBytes;
  rte_mbuf* frame = sender_.make(bytes);
  if (frame == nullptr) return;
  auto* message = rte_pktmbuf_mtod(frame, uint8_t*);
  std::memset(message, 0, bytes);
  if (is_ipv6) {
    message[0] = group.is_joined() ? kMldV1Report : kMldV1Done;
    std::memcpy(message + 8, group.address.bytes, 16);
  } else {
    message[0] = group.is_joined() ? kIgmpV2Report : kIgmpV2Leave;
    std::memcpy(message + 4, group.address.bytes, 4);
  }
  send(side, frame, group.is_joined() ? group.address : is_ipv6 ? kAllRouters6 : kAllRouters4);
}

// RFC 3376, 4.2.4; RFC 3810, 5.2.5.
void GroupReports::add_record(Side& side, const LinkGroup& group, bool is_change) noexcept {
  const uint32_t address_bytes = group.address.byte_count();
  IpAddress sources[Memberships::kSourceCountMax];
  const uint32_t source_count = group.wants_all() ? 0 : memberships_.sources(group, sources);
  BP_DCHECK(group.is_joined() || source_count == 0);
  BP_DCHECK(source_count <= Memberships::kSourceCountMax);
  const uint32_t bytes = kRecordHeadBytes + address_bytes * (1 + source_count);
  // The headers of IPv6 with the alert; those of IPv4 are shorter.
  constexpr uint32_t kIpBytesMax = sizeof(rte_ipv6_hdr) + 8;
  if (side.frame != nullptr &&
      (rte_pktmbuf_pkt_len(side.frame) + bytes + kIpBytesMax > sender_.mtu_bytes() ||
       bytes > rte_pktmbuf_tailroom(side.frame))) {
    finish(side);
  }
  if (side.frame == nullptr) {
    side.frame = sender_.make(kReportHeadBytes);
    if (side.frame == nullptr) return;
    auto* head = rte_pktmbuf_mtod(side.frame, uint8_t*);
    std::memset(head, 0, kReportHeadBytes);
    head[0] = side.family == AF_INET6 ? kMldV2Report : kIgmpV3Report;
  }
  if (bytes > rte_pktmbuf_tailroom(side.frame)) {
    counters_.drop(PacketDrop::kNoBuffer);
    return;
  }
  auto* record =
      reinterpret_cast<uint8_t*>(rte_pktmbuf_append(side.frame, static_cast<uint16_t>(bytes)));
  BP_ASSERT(record != nullptr);
  record[0] = group.wants_all() ? (is_change ? kToExclude : kIsExclude)
                                : (is_change ? kToInclude : kIsInclude);
  record[1] = 0;
  put_number(record + 2, source_count);
  record += kRecordHeadBytes;
  std::memcpy(record, group.address.bytes, address_bytes);
  for (uint32_t i = 0; i < source_count; ++i) {
    record += address_bytes;
    std::memcpy(record, sources[i].bytes, address_bytes);
  }
  BP_DCHECK(record + address_bytes ==
            rte_pktmbuf_mtod_offset(side.frame, uint8_t*, rte_pktmbuf_data_len(side.frame)));
  ++side.record_count;
}

void GroupReports::finish(Side& side) noexcept {
  if (side.frame == nullptr) return;
  put_number(rte_pktmbuf_mtod(side.frame, uint8_t*) + 6, side.record_count);
  send(side, side.frame, side.family == AF_INET6 ? kAllMldV2Routers : kAllIgmpV3Routers);
  side.frame = nullptr;
  side.record_count = 0;
}

void GroupReports::send(const Side& side, rte_mbuf* message, const IpAddress& to) noexcept {
  BP_DCHECK(to.family == side.family && is_multicast(to));
  const bool is_ipv6 = side.family == AF_INET6;
  IpFields fields = {.from = routes_.source_for(is_ipv6 ? kAllMldV2Routers : to),
                     .to = to,
                     .protocol = is_ipv6 ? uint8_t{IPPROTO_ICMPV6} : uint8_t{IPPROTO_IGMP},
                     .traffic_class = is_ipv6 ? uint8_t{0} : kControlClass,
                     .hops = 1,
                     .alerts_routers = true};
  if (fields.from.family == 0) fields.from = ipv4_address(rte_be32_t{0});  // RFC 3376, 4.2.13
  if (is_ipv6) {
    sender_.put_icmp6(message, fields, multicast_mac(to));
  } else {
    auto* bytes = rte_pktmbuf_mtod(message, uint8_t*);
    const auto sum = static_cast<uint16_t>(~rte_raw_cksum(bytes, rte_pktmbuf_data_len(message)));
    std::memcpy(bytes + 2, &sum, sizeof sum);
    sender_.put_ip(message, fields);
    sender_.put_ethernet(message, RTE_ETHER_TYPE_IPV4, multicast_mac(to));
  }
  sender_.send(message);
}

}  // namespace bedplate
