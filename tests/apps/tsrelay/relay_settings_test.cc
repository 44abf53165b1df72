// Settings of [tsrelay] that do not fit together, and the memory that a stream takes.
// tests/system/tsrelay_test.py reads settings from files.
#include "apps/tsrelay/relay_settings.h"

#include <cstring>
#include <utility>

#include "apps/tsrelay/relay_service.h"
#include "tests/apps/boot/service_rig.h"
#include "transport/sockets/network_watch.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(RelaySettings) {
  RelaySettings settings;
  RelayStreamSettings* stream = nullptr;

  void setup() override {
    stream = &settings.streams.emplace_back();
    stream->name = "news";
    stream->legs.push_back({.address = "127.0.0.1:5004"});
    for (const char* to : {"127.0.0.1:6000", "239.1.1.1:6000", "[::1]:6000"}) {
      stream->outputs.push_back({.to = to});
    }
    stream->outputs.push_back({.to = "239.1.1.2:6000", .ttl = 4});
    stream->outputs.push_back({.to = "239.1.1.3:6000", .interface = "lo"});
    CHECK(check(settings).ok());
  }
  void refuses(const char* answer) {
    auto checked = check(settings);
    CHECK(!checked.ok());
    STRCMP_CONTAINS(answer, checked.error().answer);
    CHECK(checked.error().kind == ErrorKind::kConfiguration);
  }
};

TEST(RelaySettings, OneSocketForAllThatLeaveByTheSameRoute) {
  const auto groups = groups_of(*stream);
  LONGS_EQUAL(4, groups.size());
  CHECK((groups[0].outputs == std::vector<uint32_t>{0, 1}));
  CHECK((groups[1].outputs == std::vector<uint32_t>{2}));
  LONGS_EQUAL(4, groups[2].ttl);
  STRCMP_EQUAL("lo", groups[3].interface.c_str());
}

TEST(RelaySettings, CountersHaveNames) {
  STRCMP_EQUAL("news/127.0.0.1:6000", instance_of(*stream, 0).c_str());
  stream->outputs[0].name = "studio";
  STRCMP_EQUAL("news/studio", instance_of(*stream, 0).c_str());
  stream->outputs[1].to = "[2001:db8:1111:2222:3333:4444:5555:6666]:6000";
  STRCMP_EQUAL("news/output-1", instance_of(*stream, 1).c_str());
}

TEST(RelaySettings, BuffersAreForAllThatMayHoldOne) {
  const uint32_t plain = stream->leg_buffers();
  CHECK(plain > stream->window_packets + stream->ring_slots());
  LONGS_EQUAL(plain, stream->packet_count());
  LONGS_EQUAL(0, stream->own_buffers());
  stream->queue_packets = 1025;
  LONGS_EQUAL(2048, stream->ring_slots());
  stream->readers = 2;
  LONGS_EQUAL(plain + 1024 + 64, stream->leg_buffers());
  stream->has_fec = true;
  LONGS_EQUAL(21 + 1024 + 64, stream->own_buffers());
  stream->legs[0].fec = true;
  LONGS_EQUAL(21 + 1024 + 300 + 64, stream->own_buffers());
  LONGS_EQUAL(stream->leg_buffers() + 2 * stream->fec_buffers() + stream->own_buffers(),
              stream->packet_count());
}

TEST(RelaySettings, AddedRtpTakesRoomInTheBuffersOfLegs) {
  LONGS_EQUAL(2048, stream->leg_buffer_bytes());
  stream->outputs[1].adds_rtp = true;
  LONGS_EQUAL(2048 + 64, stream->leg_buffer_bytes());
  CHECK(check(settings).ok());
  stream->buffer_bytes = 65536;
  refuses("no space for it");
  stream->buffer_bytes = 2048;
  stream->outputs[1].plain = true;
  refuses("plain and adds_rtp are both set");
  stream->outputs[1].plain = false;
  stream->format = relay::StreamFormat::kRtp;
  refuses("all packets of the stream already have RTP");
  stream->format = relay::StreamFormat::kUdp;
  CHECK(check(settings).ok());
  stream->legs[0].network = "port0";
  refuses("no space for a header");
}

TEST(RelaySettings, WhatMakesNoSenseIsRefused) {
  stream->buffer_bytes = 2000;
  refuses("not a multiple of 64");
  stream->buffer_bytes = 2048;
  stream->legs[0].source = "10.0.0.1";
  refuses("not a multicast group");
  stream->legs[0].address = "[ff3e::1]:5004";
  refuses("of the other address family");
  stream->legs[0].source.clear();
  stream->has_fec = true;
  stream->fec.columns = 3;
  refuses("at least 4 columns");
  stream->fec.row_packets = false;
  CHECK(check(settings).ok());
  stream->outputs[0].fec = stream->outputs[0].plain = true;
  refuses("no FEC for it");
}

TEST(RelaySettings, FecNeedsRtp) {
  stream->has_fec = stream->outputs[0].fec = true;
  CHECK(check(settings).ok());
  stream->format = relay::StreamFormat::kUdp;
  refuses("no RTP, which FEC needs");
  stream->outputs[0].adds_rtp = true;
  CHECK(check(settings).ok());
  stream->legs[0].fec = true;
  refuses("FEC restores RTP");
  stream->format = relay::StreamFormat::kAuto;
  CHECK(check(settings).ok());
}

// An address that no socket can send to is refused in the configuration.
TEST(RelaySettings, OutputsThatCanNeverWork) {
  constexpr std::pair<const char*, const char*> kRefused[] = {
      {"0.0.0.0:6000", "the unspecified address"},
      {"[::]:6000", "the unspecified address"},
      {"[fe80::1]:6000", "link-local"},
      {"[::ffff:10.0.0.1]:6000", "IPv4-mapped"},
      {"255.255.255.255:6000", "broadcast"}};
  for (const auto& [to, answer] : kRefused) {
    stream->outputs[0].to = to;
    refuses(answer);
  }
}

TEST(RelaySettings, BroadcastIsAskedFor) {
  stream->outputs[0].to = "255.255.255.255:6000";
  stream->outputs[0].broadcast = true;
  CHECK(check(settings).ok());
  stream->outputs[1].to = "10.0.0.255:6000";
  LONGS_EQUAL(5, groups_of(*stream).size());  // it has its own socket: the others may not broadcast
  stream->outputs[0].network = "port0";
  refuses("a port sends nothing to broadcast addresses");
  stream->outputs[0].network = "";
  for (const char* to : {"239.1.1.9:6000", "[2001:db8::1]:6000"}) {
    stream->outputs[0].to = to;
    refuses("not a broadcast address");
  }
}

TEST(RelaySettings, LegsThatCanNeverHaveAnything) {
  stream->legs[0].address = "[fe80::1]:5004";
  refuses("link-local");
  stream->legs[0].address = "[::ffff:10.0.0.1]:5004";
  refuses("IPv4-mapped");
  stream->legs[0].address = "239.1.1.1:5004";
  for (const char* source : {"239.1.1.2", "0.0.0.0"}) {
    stream->legs[0].source = source;
    refuses("cannot be the address of a sender");
  }
}

TEST_GROUP_BASE(RelayPlan, service_rig::ServiceBodies){};

// The bell of the recordings' thread exists without that thread, too.
TEST(RelayPlan, HasADescriptorForTheBell) {
  RelayService service;
  RelayStreamSettings& stream = service.settings().streams.emplace_back();
  stream.name = "news";
  stream.legs.push_back({.address = "127.0.0.1:5004"});
  configuration.services = {&service};
  auto made = plan_appliance(configuration);
  CHECK(made.ok());
  LONGS_EQUAL(1 + NetworkWatch::kDescriptors + 1, made.value().services[0].descriptors);
}
