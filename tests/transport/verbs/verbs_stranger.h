// A foreign program that an appliance knows as a peer, and that may send the appliance anything. It
// has records and messages with every kind of fault.
//
// The tests within one process share it with the hostile guest of tests/guest.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/file.h"
#include "tests/support/patience.h"
#include "transport/registration.h"
#include "transport/sockets/socket_address.h"
#include "transport/verbs/device/queue_pair.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate::test {

inline constexpr AmId kHeard = 3;
inline constexpr AmId kUnheard = 9;  // there is no handler for it

struct StrangerOptions {
  const VerbsDevice* device = nullptr;      // it and the keys outlive the stranger
  const KeyTable* keys = nullptr;           // of the process's pool
  SocketAddress address = {};               // where the appliance listens
  const char* name = "c";                   // the name that the stranger claims
  std::function<void()> meanwhile = [] {};  // called while it waits
};

class Stranger {
 public:
  explicit Stranger(const StrangerOptions& options)
      : mtu(options.device->port().mtu),
        options_(options),
        end_(all_ends().emplace(all_ends().end())),
        queue_pair_(end_->queue_pair),
        completions_(ibv_create_cq(options_.device->context(), 1024, nullptr, nullptr, 0)) {
    end_->completions = completions_;
    const QueuePairOptions queue = {.completions = completions_, .send_count_max = 512};
    BP_ASSERT(queue_pair_.create(*options_.device, queue).ok());
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger() { all_ends().erase(end_); }

  // Destroys the queue pairs of all strangers, which must not be used any more. A test that fails
  // leaves its strangers on the stack, and a device with a queue pair left would end the program
  // before the failure is reported.
  static void release_all() { all_ends().clear(); }

  void dial() {
    auto connecting = start_connecting(options_.address);
    BP_ASSERT(connecting.ok());
    fd_ = connecting.take();
    set_blocking(fd_.number(), true);
  }
  // Ignores errors, because the appliance may have hung up.
  void say(const void* data, size_t bytes) {
    [[maybe_unused]] const ssize_t sent = send(fd_.number(), data, bytes, MSG_NOSIGNAL);
  }
  void hang_up() { fd_.close(); }
  // Its device no longer answers, but it does not hang up.
  void fall_silent() { BP_ASSERT(queue_pair_.reset().ok()); }
  // Returns the appliance's answer. Returns nothing if none comes, or if the appliance hangs up
  // (is_hung_up_on).
  std::optional<HandshakeRecord> answer() {
    HandshakeRecord record = {};
    size_t got = 0;
    is_hung_up_on = false;
    const uint64_t deadline_ns = monotonic_ns() + test::kPatienceNs;
    while (got < sizeof record) {
      if (monotonic_ns() > deadline_ns) return std::nullopt;
      options_.meanwhile();
      const ssize_t bytes = recv(fd_.number(), reinterpret_cast<char*>(&record) + got,
                                 sizeof record - got, MSG_DONTWAIT);
      is_hung_up_on = bytes == 0 || (bytes < 0 && errno != EAGAIN);
      if (is_hung_up_on) return std::nullopt;
      if (bytes > 0) got += static_cast<size_t>(bytes);
      usleep(100);
    }
    return record;
  }
  // A valid hello.
  HandshakeRecord hello() const {
    const QueuePairAddress address = queue_pair_.address(kMark, mtu);
    HandshakeRecord record = {};
    record.kind = static_cast<uint16_t>(HandshakeKind::kHello);
    std::snprintf(record.name, sizeof record.name, "%s", options_.name);
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
  // Dials, and makes the handshake. Returns whether the appliance has let it in.
  bool connect() {
    dial();
    HandshakeRecord record = hello();
    say(&record, sizeof record);
    return go_on(record);
  }
  // Continues the handshake, once the hello has been said.
  bool go_on(HandshakeRecord record) {
    if (!be_welcomed()) return false;
    record.kind = static_cast<uint16_t>(HandshakeKind::kReady);
    finish_record(record);
    say(&record, sizeof record);
    return true;
  }
  // Takes the welcome and connects its queue pair to the appliance, which then waits for kReady.
  bool be_welcomed() {
    const auto welcome = answer();
    if (!welcome.has_value() || check_record(*welcome, HandshakeKind::kWelcome) != Refusal::kNone) {
      return false;
    }
    peer_instance = welcome->instance;
    reach(*welcome);
    return true;
  }
  // The reverse: the appliance dials it at `listener`, which does not block. Returns the
  // appliance's hello; nothing if that does not come in time.
  std::optional<HandshakeRecord> pick_up(const Fd& listener) {
    const uint64_t deadline_ns = monotonic_ns() + test::kPatienceNs;
    for (fd_.close(); !fd_.is_open(); usleep(100)) {
      if (monotonic_ns() > deadline_ns) return std::nullopt;
      options_.meanwhile();
      fd_ = Fd(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    }
    return answer();
  }
  // Picks up, and sends a welcome. Returns whether the appliance has answered.
  bool be_called(const Fd& listener) {
    const auto called = pick_up(listener);
    if (!called.has_value()) return false;
    HandshakeRecord record = hello();
    record.kind = static_cast<uint16_t>(HandshakeKind::kWelcome);
    finish_record(record);
    reach(*called);
    say(&record, sizeof record);
    return answer().has_value();
  }
  VerbsMessageHeader header(VerbsMessageKind kind = VerbsMessageKind::kMessage) const {
    VerbsMessageHeader message = {};
    message.mark = kMark;
    message.index = index_;
    message.kind = kind;
    message.am = kHeard;
    return message;
  }
  void post(const VerbsMessageHeader& message, const void* body, uint32_t bytes) {
    auto* buffer = static_cast<std::byte*>(std::malloc(sizeof message + bytes));
    std::memcpy(buffer, &message, sizeof message);
    std::memcpy(buffer + sizeof message, body, bytes);
    post_raw(buffer, static_cast<uint32_t>(sizeof message) + bytes);
  }
  // Ownership: takes `buffer`, which came from malloc.
  void post_raw(std::byte* buffer, uint32_t bytes) {
    ibv_send_wr request = {};
    request.opcode = IBV_WR_SEND;
    submit(request, buffer, bytes);
  }
  // Reads or writes memory of the appliance. Returns the status of the completion;
  // IBV_WC_RESP_TIMEOUT_ERR if there is none in time.
  ibv_wc_status access(ibv_wr_opcode operation, uint64_t address, uint32_t key, uint32_t bytes) {
    ibv_send_wr request = {};
    request.opcode = operation;
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = key;
    submit(request, static_cast<std::byte*>(std::calloc(1, bytes)), bytes);
    const uint64_t deadline_ns = monotonic_ns() + test::kPatienceNs;
    ibv_wc completion;
    while (ibv_poll_cq(completions_, 1, &completion) == 0) {
      if (monotonic_ns() > deadline_ns) return IBV_WC_RESP_TIMEOUT_ERR;
      options_.meanwhile();
    }
    return completion.status;
  }
  // Writes one byte, where it has no right to. Returns the status of the completion.
  ibv_wc_status write(uint64_t address, uint32_t key) {
    return access(IBV_WR_RDMA_WRITE, address, key, 1);
  }

  // Lends 100 bytes at `address` as `loan`. No handler takes the message, so it is released at
  // once.
  void post_loan(uint64_t address, uint32_t loan, uint32_t number) {
    VerbsMessageHeader message = header(VerbsMessageKind::kLoan);
    const auto kind = pack_reach(Reach::kExport, kRead, static_cast<uint32_t>(instance));
    const VerbsLoanBody body = {{address, 100, 1, kind}, loan, 1};
    message.am = kUnheard;
    message.number = number;
    message.bytes = sizeof body;
    post(message, &body, sizeof body);
  }

  // Waits until `count` of the posted messages have arrived, whether they were handled or not.
  void await_arrival(int count) {
    ibv_wc completion;
    while (count > 0) count -= ibv_poll_cq(completions_, 1, &completion);
  }

  static constexpr uint32_t kMark = 0x1234;
  uint64_t instance = 4711;
  ibv_mtu mtu;                 // the MTU that the stranger claims
  uint64_t peer_instance = 0;  // the appliance's, once it has let the stranger in
  bool is_hung_up_on = false;

 private:
  // The stranger's objects of the device.
  struct End {
    QueuePair queue_pair;
    ibv_cq* completions = nullptr;

    ~End() {
      queue_pair.destroy();
      if (completions != nullptr) ibv_destroy_cq(completions);
    }
  };
  static std::list<End>& all_ends() {
    static std::list<End> ends;
    return ends;
  }

  // Connects its queue pair to the sender of `record`.
  void reach(const HandshakeRecord& record) {
    index_ = record.index;
    peer_ = {record.queue_pair,
             record.packet_number,
             {},
             record.lid,
             static_cast<ibv_mtu>(record.mtu),
             1};
    std::memcpy(peer_.gid.raw, record.gid, sizeof record.gid);
    BP_ASSERT(queue_pair_.reset().ok());
    BP_ASSERT(queue_pair_.connect(kMark, mtu, peer_, {.timeout_log2 = 14, .count = 1}).ok());
  }
  void submit(ibv_send_wr& request, std::byte* buffer, uint32_t bytes) {
    ibv_sge piece = {reinterpret_cast<uintptr_t>(buffer), bytes,
                     VerbsDevice::local_key(options_.keys->key(buffer, bytes).key)};
    request.send_flags = IBV_SEND_SIGNALED;
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    ibv_post_send(queue_pair_.handle(), &request, &bad);
    buffers_.emplace_back(buffer, std::free);
  }

  const StrangerOptions options_;
  Fd fd_;
  const std::list<End>::iterator end_;
  QueuePair& queue_pair_;
  ibv_cq* const completions_;
  QueuePairAddress peer_;
  uint16_t index_ = 0;
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> buffers_;
};

// A hello that is answered with a refusal.
struct RecordFault {
  Refusal refusal;
  void (*spoil)(HandshakeRecord& record);
  bool is_summed;  // the record has a valid checksum all the same
};

inline const RecordFault kRecordFaults[] = {
    {Refusal::kMalformed, [](HandshakeRecord& record) { record.received = 1; }, false},
    {Refusal::kMalformed, [](HandshakeRecord& record) { record.kind = 9; }, true},
    {Refusal::kMalformed, [](HandshakeRecord& record) { record.mtu = 77; }, true},
    {Refusal::kMalformed, [](HandshakeRecord& record) { record.instance = 0; }, true},
    {Refusal::kMalformed, [](HandshakeRecord& record) { record.queue_pair = ~0u; }, true},
    {Refusal::kMalformed,
     [](HandshakeRecord& record) { std::memset(record.name, 'x', sizeof record.name); }, true},
    {Refusal::kVersion, [](HandshakeRecord& record) { record.version = 2; }, false},
    {Refusal::kNotListed, [](HandshakeRecord& record) { record.name[0] = 'd'; }, true},
    {Refusal::kShape, [](HandshakeRecord& record) { record.window = 63; }, true},
    {Refusal::kShape, [](HandshakeRecord& record) { record.message_bytes = 8192; }, true},
};

// An attack by message: a stranger that was let in sends it, and is cut off.
struct MessageAttack {
  const char* name;
  void (*run)(Stranger& stranger);
};

inline const MessageAttack kMessageAttacks[] = {
    {"a message shorter than a header",
     [](Stranger& stranger) {
       stranger.post_raw(static_cast<std::byte*>(std::calloc(1, 64)), 31);
     }},
    {"a message longer than any receive",
     [](Stranger& stranger) {
       static const char body[4096] = {};
       stranger.post(stranger.header(), body, sizeof body);
     }},
    {"another length than it has",
     [](Stranger& stranger) {
       VerbsMessageHeader header = stranger.header();
       header.bytes = 100;
       stranger.post(header, "x", 1);
     }},
    {"not the first message",
     [](Stranger& stranger) {
       VerbsMessageHeader header = stranger.header();
       header.number = 1;
       stranger.post(header, "", 0);
     }},
    {"acknowledges what was never sent",
     [](Stranger& stranger) {
       VerbsMessageHeader header = stranger.header();
       header.consumed = 1;
       stranger.post(header, "", 0);
     }},
    {"acknowledges nothing, in order to fill the shared queue",
     [](Stranger& stranger) {
       stranger.post(stranger.header(VerbsMessageKind::kAcknowledgement), "", 0);
     }},
    {"a kind that does not exist",
     [](Stranger& stranger) { stranger.post(stranger.header(VerbsMessageKind{77}), "", 0); }},
    {"somebody else's index",
     [](Stranger& stranger) {
       VerbsMessageHeader header = stranger.header();
       header.index = 0;
       stranger.post(header, "", 0);
     }},
    {"an index that does not exist",
     [](Stranger& stranger) {
       VerbsMessageHeader header = stranger.header();
       header.index = 999;
       stranger.post(header, "", 0);
     }},
    {"returns what was never lent",
     [](Stranger& stranger) {
       VerbsMessageHeader header = stranger.header(VerbsMessageKind::kReturns);
       const ReturnedLoan loan = {5, 1};
       header.bytes = sizeof loan;
       stranger.post(header, &loan, sizeof loan);
     }},
    {"a loan whose number does not exist",
     [](Stranger& stranger) { stranger.post_loan(4096, kVerbsLoanCountMax, 0); }},
    {"lends again what it cannot have got back",
     [](Stranger& stranger) {
       for (uint32_t number = 0; number < 2; ++number) stranger.post_loan(4096, 7, number);
       stranger.await_arrival(2);  // one poll takes both
     }},
    {"a loan that runs over the end of all addresses",
     [](Stranger& stranger) { stranger.post_loan(UINT64_MAX - 10, 0, 0); }},
};

}  // namespace bedplate::test
