// Buffers that a socket keeps: they stay until they are released, and their bytes are sent by
// reference.
#include "transport/dpdk/net/port_datagram_socket.h"

#include <cerrno>

#include "tests/support/death_test.h"
#include "tests/transport/dpdk/net/port_datagram_rig.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using namespace bedplate::frames;
using made_up::at;
using made_up::End;
using made_up::Rig;

TEST_GROUP_BASE(PortDatagramBuffers, made_up::PortDatagramBodies){};

TEST(PortDatagramBuffers, KeptBytesGoToManyByReferenceAndMayBeReleasedAtOnce) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  rig.know("192.0.2.9");
  end.keeps = true;
  rig.receive(udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, Bytes(1316, 0x47)));
  std::byte* kept = end.all[0].datagram.bytes;
  rig.port.holds = true;
  std::vector<OutgoingDatagram> outputs(50);
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].bytes = kept;
    outputs[i].byte_count = 1316;
    outputs[i].to = at("192.0.2.9:" + std::to_string(1 + i));
  }
  LONGS_EQUAL(50, end.socket.send_batch(outputs).sent_count);
  LONGS_EQUAL(0, rig.counters.copied_bytes.read());
  LONGS_EQUAL(1316, rig.counters.summed_bytes.read());  // once, for all of them
  // Each output takes one mbuf, for its headers.
  LONGS_EQUAL(51, 256 - rig.port.pool.free_count());
  for (const rte_mbuf* frame : rig.port.held) {
    LONGS_EQUAL(2, frame->nb_segs);
    POINTERS_EQUAL(kept, rte_pktmbuf_mtod(frame->next, std::byte*));
  }
  end.socket.release(kept);
  LONGS_EQUAL(51, 256 - rig.port.pool.free_count());
  for (size_t i = 0; i < 50; ++i) {
    CHECK(rig.port.sent[i] == ethernet(mac(kPeer), mac(kOwn), 0x0800,
                                       ipv4("192.0.2.1", "192.0.2.9",
                                            udp("192.0.2.1", 5004, "192.0.2.9",
                                                static_cast<uint16_t>(1 + i), Bytes(1316, 0x47)))));
  }
  rig.port.release_held();
  CHECK(rig.port.pool.is_whole());
}

TEST(PortDatagramBuffers, APartOfAKeptBufferGoesByReferenceToo) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  rig.know("192.0.2.9");
  end.keeps = true;
  rig.receive(udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, text("headerpayload")));
  std::byte* kept = end.all[0].datagram.bytes;
  rig.port.holds = true;
  CHECK(end.send("192.0.2.9:9", kept + 6, 7).sent_count == 1);
  POINTERS_EQUAL(kept + 6, rte_pktmbuf_mtod(rig.port.held[0]->next, std::byte*));
  end.socket.release(kept + 12);  // any address within it
  CHECK(part(rig.port.sent[0], 42) == text("payload"));
  LONGS_EQUAL(0, rig.counters.copied_bytes.read());
}

TEST(PortDatagramBuffers, WhatAnotherPortReceivedGoesByReference) {
  Rig other;
  rig.start();
  other.start();
  rig.port.other = &other.port;
  End& out = open("0.0.0.0:5004");
  rig.know("192.0.2.9");
  {
    End in(*other.stack);
    CHECK(in.open("0.0.0.0:5004").ok());
    in.keeps = true;
    other.receive(udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, text("across")));
    rig.port.holds = true;
    CHECK(out.send("192.0.2.9:9", in.all[0].datagram.bytes, 6).sent_count == 1);
    POINTERS_EQUAL(in.all[0].datagram.bytes, rte_pktmbuf_mtod(rig.port.held[0]->next, std::byte*));
    in.socket.release(in.all[0].datagram.bytes);
    CHECK(!other.port.pool.is_whole());
    rig.port.release_held();
    CHECK(other.port.pool.is_whole());
  }
  LONGS_EQUAL(0, rig.counters.copied_bytes.read());
  other.stack.reset();
}

TEST(PortDatagramBuffers, APortOfOneSegmentGetsCopies) {
  rig.port.can.multi_segment = false;
  rig.start();
  End& end = open("0.0.0.0:5004");
  rig.know("192.0.2.9");
  end.keeps = true;
  rig.receive(udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, text("abc")));
  rig.port.holds = true;
  CHECK(end.send("192.0.2.9:9", end.all[0].datagram.bytes, 3).sent_count == 1);
  LONGS_EQUAL(1, rig.port.held[0]->nb_segs);
  LONGS_EQUAL(3, rig.counters.copied_bytes.read());
  end.socket.release(end.all[0].datagram.bytes);
}

TEST(PortDatagramBuffers, KeptBuffersAreCountedAndThoseTooManyDropped) {
  rig.start();
  End& end = open("0.0.0.0:5004", {.buffer_count = 3, .buffer_bytes = 2048});
  end.keeps = true;
  const Bytes frame = udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, text("x"));
  for (int i = 0; i < 5; ++i) rig.receive(frame);
  LONGS_EQUAL(3, end.all.size());
  LONGS_EQUAL(2, rig.dropped(PacketDrop::kSocketFull));
  end.socket.release(end.all[1].datagram.bytes);
  rig.receive(frame);
  LONGS_EQUAL(4, end.all.size());
  for (const int i : {3, 0, 2}) end.socket.release(end.all[static_cast<size_t>(i)].datagram.bytes);
  CHECK(rig.port.pool.is_whole());
}

TEST(PortDatagramBuffers, ABufferThatIsNotKeptIsNotGivenBack) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  end.keeps = true;
  rig.receive(udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, text("x")));
  std::byte* kept = end.all[0].datagram.bytes;
  end.socket.release(kept);
  BP_CHECK_DIES("given back that was not kept", end.socket.release(kept));
}

TEST(PortDatagramBuffers, WhatIsKeptOutlivesCloseUntilTheNextOpen) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  end.keeps = true;
  end.meanwhile = [](End& self) { self.socket.close(); };
  rig.receive(udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, text("x")));
  LONGS_EQUAL(1, 256 - rig.port.pool.free_count());
  CHECK(end.open("0.0.0.0:5004").ok());
  CHECK(rig.port.pool.is_whole());
  end.meanwhile = [](End& self) {
    self.socket.close();
    CHECK(self.open("0.0.0.0:5005").ok());
  };
  rig.receive(udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, text("x")));
  CHECK(rig.port.pool.is_whole());
  LONGS_EQUAL(5005, end.socket.local().port);
}

TEST(PortDatagramBuffers, OneOfTwoSegmentsIsTakenWhereItLies) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  end.keeps = true;
  const Bytes frame = udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, text("second"));
  rte_mbuf* made = rig.port.frame(part(frame, 0, 42), part(frame, 42));
  rte_mbuf* second = made->next;
  rig.receive(made);
  CHECK(end.all[0].bytes == text("second"));
  POINTERS_EQUAL(rte_pktmbuf_mtod(second, std::byte*), end.all[0].datagram.bytes);
  LONGS_EQUAL(1, 256 - rig.port.pool.free_count());  // the headers' mbuf has gone
  rig.know("192.0.2.9");
  CHECK(end.send("192.0.2.9:9", end.all[0].datagram.bytes, 6).sent_count == 1);
  CHECK(part(rig.port.take_sent(), 42) == text("second"));
  end.socket.release(end.all[0].datagram.bytes);
  rig.receive(rig.port.frame(part(frame, 0, 44), part(frame, 44)));
  LONGS_EQUAL(1, rig.dropped(PacketDrop::kScattered));
}

TEST(PortDatagramBuffers, AnAttachedMbufIsKeptByItsOwner) {
  rig.start();
  End& end = open("0.0.0.0:5004");
  end.keeps = true;
  const Bytes frame = udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, text("lent"));
  rte_mbuf* owner = rig.port.frame(frame);
  rte_mbuf* attached = rig.port.pool.allocate();
  rte_pktmbuf_attach(attached, owner);
  rig.receive(attached);
  CHECK(rte_mbuf_refcnt_read(owner) == 2);
  rte_pktmbuf_free(owner);
  CHECK(end.all[0].bytes == text("lent"));
  end.socket.release(end.all[0].datagram.bytes);
  CHECK(rig.port.pool.is_whole());
}
