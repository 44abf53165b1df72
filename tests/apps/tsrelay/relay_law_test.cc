// The data path's law for a stream: two legs with losses and FEC, a pace, a hundred outputs (one of
// them refused), a stall, a sender that restarts, packets without payload, and tables that change.
#include "tests/apps/tsrelay/relay_rig.h"
#include "tests/apps/tsrelay/ts_mux.h"

#include <cerrno>
#include <memory>
#include <vector>

#include "tests/support/datapath_law.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;
using namespace bedplate::test;

TEST_GROUP(RelayLaw){};

TEST(RelayLaw, AWholeStream) {
  BP_SKIP_WITHOUT_LAW();
  RelayRig sending(1, 1);
  sending.options.fec_columns = sending.options.fec_rows = 5;
  sending.options.has_fec_rows = true;
  sending.outputs[0].has_fec = true;
  sending.create();
  // Makes the input beforehand: the media, and the FEC of a sending relay.
  for (uint32_t i = 0; i < 2000; ++i) {
    sending.give(0, sending.rtp(i));
    sending.work(1'000'000);
  }
  RelayRig r(2, 100, true);
  r.options.fec_columns = 10;
  r.options.fec_rows = 10;
  r.options.pace_delay_ns = 1'000'000;
  r.outputs[3].has_fec = true;
  r.out.refused_port = RelayRig::port(50);
  r.out.notes = r.out_aside.notes = false;
  r.create();
  // Another sender, with other tables. Some of its packets are empty.
  TsMux mux;
  std::vector<Bytes> others;
  for (uint32_t i = 0; i < 200; ++i) {
    const auto pid = static_cast<uint16_t>(0x100 + i / 50 * 0x10);
    const MadeProgram program = {1, pid, pid, {{0x1B, pid, {}}}, static_cast<uint8_t>(i / 100)};
    Bytes one(kRtpHeaderBytes);
    write_rtp({.sequence = static_cast<uint16_t>(i), .ssrc = 99, .payload_type = 33}, one.data());
    if (i % 10 != 9) {
      for (const Bytes& part : {mux.table(kPatPid, made_pat(std::span(&program, 1), {})),
                                mux.table(pid, made_pmt(program)), mux.plain(pid, i * 540'000)}) {
        one.insert(one.end(), part.begin(), part.end());
      }
    }
    others.push_back(std::move(one));
  }
  const DatagramAddress first = at("10.0.0.1:5000");
  const DatagramAddress second = at("10.0.1.1:5000");
  uint32_t given = 0;
  LONGS_EQUAL(0, breaches_in([&] {
                for (size_t i = 0; i < sending.out.sent.size(); ++i) {
                  const auto& one = sending.out.sent[i];
                  if (one.to.port != RelayRig::port(0)) {
                    r.fec_sockets[0]->give(one.content, first);
                  } else {
                    if (i % 7 != 0) given += r.legs[0]->give(one.content, first) ? 1 : 0;
                    if (i % 5 != 0) given += r.legs[1]->give(one.content, second) ? 1 : 0;
                    if (i % 100 == 0) r.legs[0]->give({one.content.data(), 20}, second);
                  }
                  r.now += 500'000;
                  r.stream.work(r.now);
                  if (i == 500) r.out.room = 1000;
                  if (i == 1000) {
                    r.out.room = ~size_t{0};
                    r.out.owner.has_room(r.out.owner.context);
                    r.out.owner.failed(r.out.owner.context, EHOSTUNREACH, r.outputs[9].to);
                  }
                }
                for (const Bytes& one : others) {
                  given += r.legs[0]->give(one, first) ? 1 : 0;
                  r.now += 20'000'000;
                  r.stream.work(r.now);
                }
                r.stream.look_for_missing(r.now);
                r.stream.drain();
              }));
  CHECK(given > 3200);
  LONGS_EQUAL(2, r.leg(0).senders.read());
  LONGS_EQUAL(20, r.leg(0).empty.read());
  LONGS_EQUAL(1, r.counters->ts_programs.read());
  CHECK(r.counters->packets.read() > 1900);
  CHECK(r.output(0).packets.read() > 1000);
  LONGS_EQUAL(1, r.output(9).is_aside.read());
  LONGS_EQUAL(0, r.kept_count());
}
