// FEC as it is sent and as it is received: every byte, the packets that it recovers, and the input
// that it must refuse.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "apps/tsrelay/fec_receiver_datapath.h"
#include "apps/tsrelay/fec_sender_datapath.h"
#include "tests/apps/tsrelay/dice.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

constexpr uint32_t kBufferBytes = 2048;

struct Made {
  std::vector<std::byte> bytes;
  bool is_row;
  size_t after;  // media packets added before it
};

// The sending side, and all FEC packets that it makes.
struct Sending final : FecSenderSink {
  FecSender sender;
  std::vector<Made> made;
  size_t media_count = 0;
  uint32_t out_count = 0;  // buffers in use
  uint32_t out_max = ~0U;

  Sending(uint32_t columns, uint32_t rows, bool has_rows) {
    sender.create({columns, rows, has_rows, kBufferBytes, this});
  }
  ~Sending() override { sender.restart(); }
  std::byte* take_buffer() noexcept override {
    if (out_count == out_max) return nullptr;
    ++out_count;
    return new std::byte[kBufferBytes];
  }
  void give_buffer(std::byte* buffer) noexcept override {
    --out_count;
    delete[] buffer;
  }
  void send_fec(std::byte* buffer, uint32_t bytes, bool is_row) noexcept override {
    made.push_back({{buffer, buffer + bytes}, is_row, media_count});
    give_buffer(buffer);
  }
  void add(const std::vector<std::byte>& datagram) {
    RtpPacket rtp;
    CHECK(parse_rtp(datagram, &rtp) == RtpFault::kNone);
    ++media_count;
    sender.add(std::span(datagram).subspan(kRtpHeaderBytes), rtp);
    CHECK(sender.is_valid());
  }
};

// The receiving side. An item is an index in `items`.
struct Receiving final : FecReceiverSink {
  std::unique_ptr<FecReceiver> receiver = std::make_unique<FecReceiver>();
  std::vector<std::vector<std::byte>> items;
  std::map<uint32_t, int> holds;
  std::map<uint16_t, std::vector<std::byte>> back;
  bool has_buffers = true;

  Receiving() { receiver->create(*this, kBufferBytes); }
  std::span<const std::byte> bytes_of(uint32_t item) noexcept override { return items[item]; }
  void hold(uint32_t item) noexcept override { ++holds[item]; }
  void let_go(uint32_t item) noexcept override {
    if (--holds[item] == 0) holds.erase(item);
  }
  std::byte* take_buffer() noexcept override {
    return has_buffers ? new std::byte[kBufferBytes] : nullptr;
  }
  void give_buffer(std::byte* buffer) noexcept override { delete[] buffer; }
  uint32_t recovered(std::byte* buffer, uint32_t bytes) noexcept override {
    items.push_back({buffer, buffer + bytes});
    delete[] buffer;
    back[load_u16(items.back().data() + 2)] = items.back();
    const auto item = static_cast<uint32_t>(items.size() - 1);
    hold(item);
    return item;
  }
  void media(const std::vector<std::byte>& datagram) {
    items.push_back(datagram);
    receiver->add_media(static_cast<uint32_t>(items.size() - 1), load_u16(datagram.data() + 2));
    CHECK(receiver->is_valid());
  }
  void fec(const std::vector<std::byte>& datagram) {
    items.push_back(datagram);
    receiver->add_fec(static_cast<uint32_t>(items.size() - 1));
    CHECK(receiver->is_valid());
  }
};

std::vector<std::byte> packet(Dice& dice, uint16_t sequence, size_t payload_bytes = 1316) {
  std::vector<std::byte> bytes(kRtpHeaderBytes + payload_bytes);
  RtpPacket head;
  head.sequence = sequence;
  head.timestamp = dice.below(1U << 31);
  head.payload_type = kRtpTransportStream;
  head.has_marker = dice.below(2) == 1;
  head.ssrc = 99;
  write_rtp(head, bytes.data());
  for (size_t i = kRtpHeaderBytes; i < bytes.size(); ++i) bytes[i] = std::byte(dice.below(256));
  return bytes;
}

}  // namespace

TEST_GROUP(Fec) { Dice dice; };

TEST(Fec, ToTheByte) {
  Sending sending(4, 5, true);
  std::vector<std::vector<std::byte>> media;
  for (uint32_t i = 0; i < 40; ++i) {
    media.push_back(packet(dice, static_cast<uint16_t>(65530 + i), 188 * (1 + i % 7)));
    sending.add(media.back());
  }
  LONGS_EQUAL(10 + 4, sending.made.size());  // the second matrix's columns are sent with the third
  uint16_t row_sequence = 0;
  uint16_t column_sequence = 0;
  for (const Made& made : sending.made) {
    FecPacket fec;
    CHECK(parse_fec(made.bytes, &fec));
    CHECK_EQUAL(made.is_row, fec.is_row);
    LONGS_EQUAL(made.is_row ? 1 : 4, fec.offset);
    LONGS_EQUAL(made.is_row ? 4 : 5, fec.count);
    LONGS_EQUAL(kFecPayloadType, load_u8(made.bytes.data() + 1) & 0x7F);
    LONGS_EQUAL(made.is_row ? row_sequence++ : column_sequence++, load_u16(made.bytes.data() + 2));
    std::vector<std::byte> sum(1316);
    uint32_t length = 0;
    uint32_t timestamp = 0;
    size_t longest = 0;
    for (uint32_t i = 0; i < fec.count; ++i) {
      const auto& one = media[static_cast<uint16_t>(fec.sequence_at(i) - 65530)];
      longest = std::max(longest, one.size() - 12);
      length ^= static_cast<uint32_t>(one.size() - 12);
      timestamp ^= load_u32(one.data() + 4);
      for (size_t b = 12; b < one.size(); ++b) sum[b - 12] ^= one[b];
    }
    LONGS_EQUAL(longest, fec.sum.size());
    LONGS_EQUAL(length, fec.length_sum);
    LONGS_EQUAL(timestamp, fec.timestamp_sum);
    MEMCMP_EQUAL(sum.data(), fec.sum.data(), longest);
    if (made.is_row) LONGS_EQUAL(0, made.after % 4);
  }
  // One column is sent every five packets, never two at once.
  std::set<size_t> after;
  for (const Made& made : sending.made) {
    if (!made.is_row) CHECK(after.insert(made.after).second && made.after % 5 == 1);
  }
  LONGS_EQUAL(0, sending.sender.unprotected_count());
}

TEST(Fec, WhatCannotBeProtectedBeginsAMatrixAnew) {
  Sending sending(4, 4, true);
  for (const uint32_t sequence : {0U, 1U, 2U, 3U, 4U, 5U, 9U, 10U, 11U, 12U}) {
    sending.add(packet(dice, static_cast<uint16_t>(sequence)));
  }
  LONGS_EQUAL(2, sending.made.size());                 // 0..3 and 9..12
  LONGS_EQUAL(5, sending.sender.unprotected_count());  // the row of 4 and 5, and four columns
  sending.sender.restart();
  LONGS_EQUAL(0, sending.out_count);
  // Without buffers nothing is sent, and nothing breaks.
  sending.out_max = 0;
  for (uint32_t i = 0; i < 100; ++i) sending.add(packet(dice, static_cast<uint16_t>(i)));
  LONGS_EQUAL(2, sending.made.size());
  CHECK(sending.sender.unprotected_count() > 1);
}

TEST(Fec, AGapCountsColumnsThatWaitToBeSent) {
  Sending sending(4, 4, true);
  for (uint16_t i = 0; i < 16; ++i) sending.add(packet(dice, i));
  LONGS_EQUAL(4, sending.made.size());  // the rows; the columns wait for the next matrix
  sending.add(packet(dice, 16));        // sends the first column
  LONGS_EQUAL(5, sending.made.size());
  sending.add(packet(dice, 20));
  LONGS_EQUAL(3 + 1 + 1, sending.sender.unprotected_count());  // three wait; 16's column, row
}

// Random losses in one matrix: the receiver recovers the packets that a simple model recovers.
TEST(Fec, BringsBackWhatCanBeBroughtBack) {
  for (int round = 0; round < 60; ++round) {
    const uint32_t columns = 4 + dice.below(5);
    const uint32_t rows = 4 + dice.below(5);
    const uint32_t matrix = columns * rows;
    Sending sending(columns, rows, true);
    Receiving receiving;
    const uint32_t first = dice.below(65536);
    const uint32_t count = 6 * matrix;
    std::map<uint16_t, std::vector<std::byte>> all;
    std::set<uint32_t> lost;
    size_t sent_fec = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const auto sequence = static_cast<uint16_t>(first + i);
      const auto one = packet(dice, sequence, 188 * (1 + dice.below(7)));
      all[sequence] = one;
      sending.add(one);
      // Only the fourth matrix has losses. The first matrices show their shape.
      const bool is_lost = i >= 3 * matrix && i < 4 * matrix && dice.below(100) < 12;
      if (is_lost) lost.insert(i - 3 * matrix);
      if (!is_lost) receiving.media(one);
      for (; sent_fec < sending.made.size(); ++sent_fec) {
        receiving.fec(sending.made[sent_fec].bytes);
      }
    }
    const std::set<uint32_t> lost_first = lost;
    for (size_t before = lost.size() + 1; lost.size() < before;) {
      before = lost.size();
      for (uint32_t i = 0; i < rows + columns; ++i) {
        std::vector<uint32_t> set;
        for (const uint32_t one : lost) {
          if (i < rows ? one / columns == i : one % columns == i - rows) set.push_back(one);
        }
        if (set.size() == 1) lost.erase(set[0]);
      }
    }
    LONGS_EQUAL(lost_first.size() - lost.size(), receiving.back.size());
    LONGS_EQUAL(receiving.back.size(), receiving.receiver->report().recovered);
    for (const auto& [sequence, bytes] : receiving.back) {
      CHECK(bytes == all[sequence]);
    }
    LONGS_EQUAL(0, receiving.receiver->report().malformed);
    CHECK(receiving.receiver->held_count() <=
          3 * matrix + FecReceiver::kHeldMore + FecReceiver::kSumsMax);
    receiving.receiver->restart();
    LONGS_EQUAL(0, receiving.holds.size());
  }
}

// FEC restores the other parts of RTP besides the payload, and packets without a payload.
TEST(Fec, PaddingExtensionsCsrcsAndEmptyPacketsComeBackAsTheyWere) {
  Sending sending(5, 5, true);
  Receiving receiving;
  std::map<uint16_t, std::vector<std::byte>> all;
  size_t given = 0;
  uint32_t lost = 0;
  for (uint32_t i = 0; i < 1000; ++i) {
    RtpPacket head = {.sequence = static_cast<uint16_t>(65'000 + i),
                      .timestamp = i,
                      .ssrc = 99,
                      .payload_type = kRtpTransportStream};
    head.has_padding = dice.below(3) == 0;
    head.has_extension = dice.below(4) == 0;
    head.csrc_count = static_cast<uint8_t>(dice.below(4) == 0 ? dice.below(16) : 0);
    std::vector<std::byte> one(kRtpHeaderBytes + 4 * head.csrc_count);
    write_rtp(head, one.data());
    if (head.has_extension) {
      one.resize(one.size() + 4 + 4 * 2);
      store_u16(one.data() + one.size() - 10, 2);
    }
    one.resize(one.size() + 188 * dice.below(4), std::byte(dice.below(256)));
    if (head.has_padding) {
      const uint32_t padding = 1 + dice.below(20);
      one.resize(one.size() + padding);
      one.back() = std::byte(padding);
    }
    all[head.sequence] = one;
    sending.add(one);
    const bool is_lost = i >= 100 && i < 900 && i % 15 == i / 15 % 5;
    lost += is_lost ? 1 : 0;
    if (!is_lost) receiving.media(one);
    for (; given < sending.made.size(); ++given) receiving.fec(sending.made[given].bytes);
  }
  LONGS_EQUAL(0, sending.sender.unprotected_count());
  LONGS_EQUAL(lost, receiving.back.size());
  for (const auto& [sequence, bytes] : receiving.back) CHECK(bytes == all[sequence]);
  LONGS_EQUAL(0, receiving.receiver->report().malformed);
  receiving.receiver->restart();
}

TEST(Fec, NothingIsHeldWithoutFec) {
  Receiving receiving;
  for (uint32_t i = 0; i < 2000; ++i) receiving.media(packet(dice, static_cast<uint16_t>(i), 188));
  LONGS_EQUAL(0, receiving.holds.size());
}

TEST(Fec, WhatIsNoFecIsRefused) {
  Sending sending(4, 4, false);
  for (uint32_t i = 0; i < 20; ++i) sending.add(packet(dice, static_cast<uint16_t>(i)));
  const std::vector<std::byte> good = sending.made.at(0).bytes;
  FecPacket fec;
  CHECK(parse_fec(good, &fec));
  const auto with = [&](size_t at, uint8_t value) {
    auto bad = good;
    bad[at] = std::byte{value};
    return bad;
  };
  CHECK(parse_fec(std::span(good).first(28), &fec));  // FEC of empty packets
  CHECK(!parse_fec(std::span(good).first(27), &fec));
  CHECK(!parse_fec({}, &fec));
  CHECK(!parse_fec(with(0, 0x40), &fec));
  CHECK(!parse_fec(with(16, 0x21), &fec));  // without the E bit
  CHECK(!parse_fec(with(17, 1), &fec));     // with a mask
  CHECK(!parse_fec(with(24, 8), &fec));     // another kind of sum
  CHECK(!parse_fec(with(25, 0), &fec));
  CHECK(!parse_fec(with(26, 0), &fec));
  CHECK(!parse_fec(with(26, 21), &fec));
  CHECK(!parse_fec(with(25, 255), &fec));
  CHECK(!parse_fec(with(24, 0x40), &fec));  // a row with an offset
  Receiving receiving;
  receiving.fec(with(25, 0));
  LONGS_EQUAL(1, receiving.receiver->report().malformed);
}

TEST(Fec, SumsThatMakeNoPacketAreRefused) {
  for (int kind = 0; kind < 3; ++kind) {
    Sending sending(4, 4, true);
    Receiving receiving;
    size_t given = 0;
    for (uint32_t i = 0; i < 64; ++i) {
      const auto one = packet(dice, static_cast<uint16_t>(i), 188);
      sending.add(one);
      if (i != 40) receiving.media(one);
      for (; given < sending.made.size(); ++given) {
        auto made = sending.made[given].bytes;
        if (kind == 0) made[14] = std::byte{0xFF};  // a length beyond the sum
        if (kind == 1) made[0] |= std::byte{0x1F};  // CSRCs, and an extension that is too long
        if (kind == 2) {                            // a short sum, and the length of a short packet
          made.resize(kFecHeadersBytes + 100);
          store_u16(made.data() + 14, 188 ^ 50);
        }
        receiving.fec(made);
      }
    }
    LONGS_EQUAL(0, receiving.back.size());
    CHECK(receiving.receiver->report().malformed >= 2);
  }
}

TEST(Fec, ASetWithoutABufferIsCounted) {
  Sending sending(4, 4, false);
  Receiving receiving;
  receiving.has_buffers = false;
  size_t given = 0;
  for (uint32_t i = 0; i < 64; ++i) {
    const auto one = packet(dice, static_cast<uint16_t>(i), 188);
    sending.add(one);
    if (i != 40) receiving.media(one);
    for (; given < sending.made.size(); ++given) receiving.fec(sending.made[given].bytes);
  }
  LONGS_EQUAL(1, receiving.receiver->report().unrecoverable);
  LONGS_EQUAL(0, receiving.receiver->report().malformed);
  receiving.receiver->restart();
  LONGS_EQUAL(0, receiving.holds.size());
}

TEST(Fec, AJumpOfNumbersLetsEverythingGo) {
  Sending sending(5, 5, true);
  Receiving receiving;
  size_t given = 0;
  for (uint32_t i = 0; i < 200; ++i) {
    const auto one = packet(dice, static_cast<uint16_t>(i < 100 ? i : i + 20'000), 188);
    sending.add(one);
    receiving.media(one);
    for (; given < sending.made.size(); ++given) receiving.fec(sending.made[given].bytes);
    CHECK(receiving.holds.size() <= 75 + FecReceiver::kHeldMore + 25);
  }
}
