// Peers that do not keep to docs/verbs.md: garbage where a record is expected, and messages of a
// peer that was let in. Each is refused or cut off, told once, and the others do not notice.
#include <cstring>
#include <functional>

#include <sys/socket.h>
#include <sys/un.h>

#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/verbs_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr AmId kData = 3;
constexpr AmId kUnheard = 9;  // there is no handler for it

// A program that is not ours: it may say and send what it likes as the peer c of b.
class Stranger {
 public:
  explicit Stranger(VerbsRig& rig) : rig_(rig) {
    completions_ = ibv_create_cq(rig.device().context(), 256, nullptr, nullptr, 0);
    const QueuePairOptions options = {.completions = completions_, .send_count_max = 128};
    BP_ASSERT(queue_pair_.create(rig.device(), options).ok());
  }
  ~Stranger() {
    queue_pair_.destroy();
    ibv_destroy_cq(completions_);
  }

  void dial() {
    auto connecting = start_connecting(parse_socket_address(rig_.address()).take());
    fd_ = connecting.take();
    set_blocking(fd_.number(), true);
  }
  // b may have hung up.
  void say(const void* data, size_t bytes) {
    [[maybe_unused]] const ssize_t sent = send(fd_.number(), data, bytes, MSG_NOSIGNAL);
  }
  void hang_up() { fd_.close(); }
  // What it is answered; nothing when b hangs up.
  std::optional<ExchangeRecord> answer() {
    ExchangeRecord record = {};
    size_t got = 0;
    while (got < sizeof record) {
      rig_.poll();
      const ssize_t bytes = recv(fd_.number(), reinterpret_cast<char*>(&record) + got,
                                 sizeof record - got, MSG_DONTWAIT);
      if (bytes == 0) return std::nullopt;
      if (bytes > 0) got += static_cast<size_t>(bytes);
      usleep(100);
    }
    return record;
  }
  // A hello as it should be.
  ExchangeRecord hello(const char* name = "c") const {
    const QueuePairAddress address = queue_pair_.address(kMark);
    ExchangeRecord record = {};
    record.kind = static_cast<uint16_t>(ExchangeKind::kHello);
    std::snprintf(record.name, sizeof record.name, "%s", name);
    record.instance = instance;
    record.queue_pair = address.number;
    record.packet_number = kMark;
    std::memcpy(record.gid, address.gid.raw, sizeof record.gid);
    record.mtu = static_cast<uint8_t>(address.mtu);
    record.reads_max = 1;
    record.window = 64;
    record.message_bytes = 4096;
    finish_record(record);
    return record;
  }
  // Is let in. Returns whether it was.
  bool connect() {
    dial();
    ExchangeRecord record = hello();
    say(&record, sizeof record);
    const auto welcome = answer();
    if (!welcome.has_value() ||
        check_record(*welcome, ExchangeKind::kWelcome) != Refusal::kNone) {
      return false;
    }
    place_ = welcome->place;
    peer_ = {welcome->queue_pair, welcome->packet_number, {}, welcome->lid, IBV_MTU_1024, 1};
    std::memcpy(peer_.gid.raw, welcome->gid, sizeof welcome->gid);
    queue_pair_.reset();
    CHECK(queue_pair_.connect(kMark, peer_, {.timeout_log2 = 14, .count = 1}).ok());
    record.kind = static_cast<uint16_t>(ExchangeKind::kReady);
    finish_record(record);
    say(&record, sizeof record);
    return true;
  }
  VerbsMessageHeader header(VerbsMessageKind kind = VerbsMessageKind::kMessage) const {
    VerbsMessageHeader message = {};
    message.mark = kMark;
    message.place = place_;
    message.kind = kind;
    message.am = kData;
    return message;
  }
  void post(const VerbsMessageHeader& message, const void* body, uint32_t bytes) {
    auto* buffer = static_cast<std::byte*>(std::malloc(8192));
    std::memcpy(buffer, &message, sizeof message);
    std::memcpy(buffer + sizeof message, body, bytes);
    post_raw(buffer, static_cast<uint32_t>(sizeof message) + bytes);
  }
  void post_raw(std::byte* buffer, uint32_t bytes) {
    ibv_sge piece = {reinterpret_cast<uintptr_t>(buffer), bytes,
                     VerbsDevice::local_key(rig_.keys().key(buffer, bytes).key)};
    ibv_send_wr request = {};
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    ibv_post_send(queue_pair_.handle(), &request, &bad);
    buffers_.emplace_back(buffer, std::free);
  }

  // Until as many that were posted have arrived, whether b has looked or not.
  void await_arrival(int count) {
    ibv_wc completion;
    while (count > 0) count -= ibv_poll_cq(completions_, 1, &completion);
  }

  static constexpr uint32_t kMark = 0x1234;
  uint64_t instance = 4711;

 private:
  VerbsRig& rig_;
  Fd fd_;
  ibv_cq* completions_ = nullptr;
  QueuePair queue_pair_;
  QueuePairAddress peer_;
  uint16_t place_ = 0;
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> buffers_;
};

}  // namespace

TEST_GROUP(VerbsHostile) {
  std::unique_ptr<VerbsRig> rig;
  uint32_t delivered = 0;

  bool start() {
    if (!has_verbs_device()) return false;
    rig = std::make_unique<VerbsRig>(VerbsRigOptions{.has_c = true});
    CHECK(rig->connect());
    rig->b.messenger->set_handler(kData, {[](void* count, const Message&) noexcept {
                                            ++*static_cast<uint32_t*>(count);
                                          },
                                          &delivered});
    return true;
  }
  // a and b go on as if nothing were.
  void check_that_a_is_unaffected() {
    const uint32_t before = delivered;
    for (int i = 0; i < 200; ++i) {
      CHECK(rig->poll_until(
          [&] { return rig->a.to("b").am_send(kData, {}) == SendStatus::kDone; }));
    }
    CHECK(rig->poll_until([&] { return delivered == before + 200; }));
    LONGS_EQUAL(0, rig->a.counters.broken.read());
  }
};

TEST(VerbsHostile, WhatIsNoRecordIsHungUpOnAndToldOnce) {
  if (!start()) BP_SKIP(kNoVerbs);
  StderrCapture log;
  for (int i = 0; i < 5; ++i) {
    Stranger stranger(*rig);
    stranger.dial();
    stranger.say("GET / HTTP/1.1\r\n", 16);
    CHECK_FALSE(stranger.answer().has_value());
  }
  LONGS_EQUAL(5, rig->b.verbs->refused_count());
  const std::string text = log.finish();
  STRCMP_EQUAL("bedplate: warning: verbs: refusing a connection from a local socket: a malformed "
               "record; further ones are counted only\n", text.c_str());
  check_that_a_is_unaffected();
}

TEST(VerbsHostile, RecordsWithAFaultAreAnsweredWithItsName) {
  if (!start()) BP_SKIP(kNoVerbs);
  struct Case {
    Refusal refusal;
    std::function<void(ExchangeRecord&)> spoil;
    bool is_summed;
  };
  const Case cases[] = {
      {Refusal::kMalformed, [](ExchangeRecord& record) { record.received = 1; }, false},
      {Refusal::kMalformed, [](ExchangeRecord& record) { record.kind = 9; }, true},
      {Refusal::kMalformed, [](ExchangeRecord& record) { record.mtu = 77; }, true},
      {Refusal::kMalformed, [](ExchangeRecord& record) { record.instance = 0; }, true},
      {Refusal::kMalformed, [](ExchangeRecord& record) { record.queue_pair = ~0u; }, true},
      {Refusal::kMalformed,
       [](ExchangeRecord& record) { std::memset(record.name, 'x', sizeof record.name); }, true},
      {Refusal::kVersion, [](ExchangeRecord& record) { record.version = 2; }, false},
      {Refusal::kNotListed, [](ExchangeRecord& record) { record.name[0] = 'd'; }, true},
      {Refusal::kShape, [](ExchangeRecord& record) { record.window = 63; }, true},
      {Refusal::kShape, [](ExchangeRecord& record) { record.message_bytes = 8192; }, true},
  };
  for (const Case& one : cases) {
    Stranger stranger(*rig);
    ExchangeRecord record = stranger.hello();
    one.spoil(record);
    if (one.is_summed) finish_record(record);
    stranger.dial();
    stranger.say(&record, sizeof record);
    const auto answer = stranger.answer();
    CHECK(answer.has_value());
    CHECK(check_record(*answer, ExchangeKind::kRefusal) == Refusal::kNone);
    STRCMP_EQUAL(to_text(one.refusal), to_text(static_cast<Refusal>(answer->refusal)));
  }
  check_that_a_is_unaffected();
}

TEST(VerbsHostile, WhoSaysHalfAndWaitsHoldsNothingUp) {
  if (!start()) BP_SKIP(kNoVerbs);
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 40; ++i) {
    strangers.push_back(std::make_unique<Stranger>(*rig));
    strangers.back()->dial();
    strangers.back()->say(kExchangeMagic, sizeof kExchangeMagic);
  }
  rig->restart_b();  // a has to come through once more
  rig->b.messenger->set_handler(kData, {[](void* count, const Message&) noexcept {
                                          ++*static_cast<uint32_t*>(count);
                                        },
                                        &delivered});
  for (auto& stranger : strangers) {
    stranger->dial();
    stranger->say(kExchangeMagic, sizeof kExchangeMagic);
  }
  CHECK(rig->connect());
  CHECK(rig->a.to("b").am_send(kData, {}) == SendStatus::kDone);
  CHECK(rig->poll_until([&] { return delivered == 1; }));
}

TEST(VerbsHostile, NonsenseInMessagesIsCutOffForGood) {
  if (!start()) BP_SKIP(kNoVerbs);
  using Attack = std::function<void(Stranger&)>;
  const auto body_of_loan = [](const RemoteMemory& memory, uint32_t loan) {
    return VerbsLoanBody{memory, loan, 1};
  };
  const Attack attacks[] = {
      [](Stranger& stranger) {  // shorter than a header
        auto* buffer = static_cast<std::byte*>(std::calloc(1, 64));
        stranger.post_raw(buffer, 31);
      },
      [](Stranger& stranger) {  // another length than it has
        VerbsMessageHeader header = stranger.header();
        header.bytes = 100;
        stranger.post(header, "x", 1);
      },
      [](Stranger& stranger) {  // not the first
        VerbsMessageHeader header = stranger.header();
        header.number = 1;
        stranger.post(header, "", 0);
      },
      [](Stranger& stranger) {  // acknowledges what was never sent
        VerbsMessageHeader header = stranger.header();
        header.consumed = 1;
        stranger.post(header, "", 0);
      },
      [](Stranger& stranger) {  // acknowledges nothing, in order to fill the shared queue
        stranger.post(stranger.header(VerbsMessageKind::kAcknowledgement), "", 0);
      },
      [](Stranger& stranger) { stranger.post(stranger.header(VerbsMessageKind{77}), "", 0); },
      [](Stranger& stranger) {  // somebody else's place
        VerbsMessageHeader header = stranger.header();
        header.place = 0;
        stranger.post(header, "", 0);
      },
      [](Stranger& stranger) {
        VerbsMessageHeader header = stranger.header();
        header.place = 999;
        stranger.post(header, "", 0);
      },
      [](Stranger& stranger) {
        VerbsMessageHeader header = stranger.header(VerbsMessageKind::kReturns);
        const ReturnedLoan loan = {5, 1};
        header.bytes = sizeof loan;
        stranger.post(header, &loan, sizeof loan);
      },
      [&](Stranger& stranger) {  // a loan whose number does not exist
        VerbsMessageHeader header = stranger.header(VerbsMessageKind::kLoan);
        const auto kind = pack_reach(Reach::kExport, static_cast<uint32_t>(stranger.instance));
        const VerbsLoanBody body = body_of_loan({4096, 100, 1, kind}, kVerbsLoanCountMax);
        header.bytes = sizeof body;
        stranger.post(header, &body, sizeof body);
      },
      [&](Stranger& stranger) {  // lends again what it cannot have got back
        for (uint32_t i = 0; i < 2; ++i) {
          VerbsMessageHeader header = stranger.header(VerbsMessageKind::kLoan);
          const auto kind = pack_reach(Reach::kExport, static_cast<uint32_t>(stranger.instance));
          const VerbsLoanBody body = body_of_loan({4096, 100, 1, kind}, 7);
          header.am = kUnheard;  // so it is released at once
          header.number = i;
          header.bytes = sizeof body;
          stranger.post(header, &body, sizeof body);
        }
        stranger.await_arrival(2);  // b takes both in one poll
      },
      [&](Stranger& stranger) {  // a loan that runs over the end of all addresses
        VerbsMessageHeader header = stranger.header(VerbsMessageKind::kLoan);
        const auto kind = pack_reach(Reach::kExport, static_cast<uint32_t>(stranger.instance));
        const VerbsLoanBody body = body_of_loan({UINT64_MAX - 10, 100, 1, kind}, 0);
        header.bytes = sizeof body;
        stranger.post(header, &body, sizeof body);
      },
  };
  uint64_t instance = 100;
  for (const Attack& attack : attacks) {
    StderrCapture log;
    Stranger stranger(*rig);
    stranger.instance = ++instance;
    CHECK(stranger.connect());
    const uint64_t before = rig->b.counters.cut_off.read();
    attack(stranger);
    CHECK(rig->poll_until([&] { return rig->b.counters.cut_off.read() == before + 1; }));
    STRCMP_CONTAINS("verbs: cutting off c at a local socket: ", log.text().c_str());
    LONGS_EQUAL(0, delivered);
    // It may not come back as it is, only as another.
    stranger.hang_up();
    CHECK_FALSE(stranger.connect());
  }
  check_that_a_is_unaffected();
}

TEST(VerbsHostile, WhoSendsMoreThanItsWindowIsCutOff) {
  if (!start()) BP_SKIP(kNoVerbs);
  Stranger stranger(*rig);
  CHECK(stranger.connect());
  // b acknowledges each half window, but not to one that has no receive for it: c's one receive
  // is not even posted, so b's acknowledgements break the connection or the window is overrun.
  for (uint32_t i = 0; i < 100; ++i) {
    VerbsMessageHeader header = stranger.header();
    header.number = i;
    stranger.post(header, "", 0);
  }
  CHECK(rig->poll_until([&] { return rig->b.counters.broken.read() == 1; }));
  check_that_a_is_unaffected();
}
