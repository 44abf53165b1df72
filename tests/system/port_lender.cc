#include "tests/system/port_lender.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "apps/boot/service_context.h"
#include "apps/services/service_plan.h"
#include "platform/log.h"
#include "platform/units.h"
#include "transport/files/files.h"
#include "transport/messages/joined_process.h"
#include "transport/sockets/datagram_socket.h"

namespace bedplate::test {
namespace {

constexpr AmId kLent = 1, kSeen = 2;  // of the range that programs number themselves
constexpr uint32_t kBytesMax = 2048;
constexpr uint32_t kHeldMax = 64;
constexpr uint32_t kPeersMax = 4;

// Identifies the datagram and the peer.
struct Head {
  uint32_t held = 0;
  uint32_t peer = 0;
};

struct Seen {
  Head head;
  uint64_t address = 0;  // where it was read
  uint32_t sum = 0;
  uint32_t ignored = 0;
};

uint32_t sum_of(std::span<const std::byte> bytes) noexcept {
  uint32_t sum = 0x811c9dc5;  // FNV-1a
  for (const std::byte one : bytes) sum = (sum ^ static_cast<uint32_t>(one)) * 0x01000193;
  return sum;
}

// Reads lent datagrams in place, or by a get if the lender's memory is not mapped here.
class Reader {
 public:
  void create(Messenger& messenger) {
    messenger_ = &messenger;
    messenger.set_handler(kLent, {[](void* self, const Message& message) noexcept {
                                    static_cast<Reader*>(self)->read(message);
                                  },
                                  this});
  }

 private:
  struct Getting : Completion {
    Reader* self = nullptr;
    Endpoint* from = nullptr;
    Loan loan;
    Head head;
    std::vector<std::byte> into = std::vector<std::byte>(kBytesMax);
  };

  void read(const Message& message) noexcept {
    Head head;
    std::memcpy(&head, message.payload.data(), sizeof head);
    const Loan& loan = message.loan;
    if (!loan.memory.empty()) {
      say(message.from, head, reinterpret_cast<uintptr_t>(loan.memory.data()), loan.memory, loan);
      return;
    }
    Getting& getting = gettings_[head.held % kHeldMax];
    getting.self = this;
    getting.from = &message.from;
    getting.loan = loan;
    getting.head = head;
    getting.call = [](Completion& done, Outcome) noexcept {
      auto& its = static_cast<Getting&>(done);
      its.self->say(*its.from, its.head, its.loan.remote.address,
                    std::span(its.into).first(its.loan.remote.bytes), its.loan);
    };
    const SendStatus status =
        message.from.get(std::span(getting.into).first(loan.remote.bytes), loan.remote, &getting);
    if (status == SendStatus::kDone) getting.call(getting, Outcome::kDone);
    if (status != SendStatus::kDone && status != SendStatus::kPending) messenger_->release(loan);
  }
  void say(Endpoint& to, const Head& head, uint64_t address, std::span<const std::byte> bytes,
           const Loan& loan) noexcept {
    const Seen seen = {head, address, sum_of(bytes), 0};
    (void)to.am_send(kSeen, std::as_bytes(std::span(&seen, 1)));
    messenger_->release(loan);
  }

  Messenger* messenger_ = nullptr;
  std::array<Getting, kHeldMax> gettings_;
};

class Lender final : public Service {
 public:
  const char* name() const noexcept override { return "lend"; }
  void describe(ConfigurationTable& table) override {
    table.text("network", &network_, 0, 16).help("A port; or none: it only reads what is lent.");
    table.text("local", &local_, 0, 64).help("Its address.");
    table.texts("to", ConfigurationKey::Type::kOwners, &to_, kPeersMax).help("Peers.");
    table.path("file", &file_path_, 0, 200).help("Where all of it is written, by its numbers.");
  }
  Result<void> plan(ServicePlan& plan) override {
    const auto count = static_cast<uint32_t>(plan.configuration().shards.size());
    for (uint32_t shard = 0; shard < count; ++shard) plan.messages(shard);
    if (network_.empty()) return {};
    plan.datagram_socket(0, "lend", {.buffer_count = kHeldMax, .buffer_bytes = kBytesMax},
                         network_);
    if (file_path_.empty()) return {};
    FilePlan file;
    file.name = "lent";
    file.path = file_path_;
    file.key = "file";
    file.is_writable = file.create = true;
    plan.file(0, file);
    return {};
  }
  Result<void> create(ServiceContext& context) override {
    for (uint32_t shard = 0; shard < context.shard_count(); ++shard) {
      auto messenger = context.messenger(shard);
      BP_TRY(messenger);
      readers_.push_back(std::make_unique<Reader>());
      readers_.back()->create(*messenger.value());
      if (shard == 0) messenger_ = messenger.value();
    }
    return network_.empty() ? Result<void>{} : create_lender(context);
  }
  void start(uint32_t shard) noexcept override {
    if (shard == 0 && socket_ != nullptr) (void)socket_->start();
  }

 private:
  struct Held;
  struct Lend : Completion {
    Held* held = nullptr;
    SendStatus status = SendStatus::kDone;
    Seen seen;
  };
  // A datagram that is held until all peers and the file have released it.
  struct Held {
    Lender* self = nullptr;
    std::byte* bytes = nullptr;  // nullptr: it is free
    uint32_t byte_count = 0;
    DatagramAddress from;
    uint32_t waits_for = 0;
    Lend lends[kPeersMax];
    FileOperation write;
    int64_t written = 0;
  };

  Result<void> create_lender(ServiceContext& context) {
    if (!file_path_.empty()) {
      auto file = context.file("lent");
      BP_TRY(file);
      file_ = file.value();
    }
    for (Held& held : helds_) create_held(held);
    messenger_->set_handler(kSeen, {[](void* self, const Message& message) noexcept {
                                      static_cast<Lender*>(self)->seen(message);
                                    },
                                    this});
    auto socket = context.datagram_socket("lend");
    BP_TRY(socket);
    socket_ = socket.value();
    auto local = parse_datagram_address(local_);
    BP_TRY(local);
    DatagramOptions options;
    options.local = local.value();
    options.owner.context = this;
    options.owner.received = [](void* self, std::span<ReceivedDatagram> datagrams) noexcept {
      for (ReceivedDatagram& one : datagrams) static_cast<Lender*>(self)->lend(one);
    };
    return socket_->open(options);
  }
  void create_held(Held& held) noexcept {
    held.self = this;
    for (Lend& lend : held.lends) {
      lend.held = &held;
      lend.call = [](Completion& done, Outcome) noexcept {
        Held& its = *static_cast<Lend&>(done).held;
        its.self->ended(its);
      };
    }
    held.write.context = &held;
    held.write.completed = [](void* context, int64_t result) noexcept {
      auto& its = *static_cast<Held*>(context);
      its.written = result;
      its.self->ended(its);
    };
  }

  void lend(ReceivedDatagram& datagram) noexcept {
    if (datagram.byte_count < sizeof(uint64_t)) return;
    for (uint32_t i = 0; i < kHeldMax; ++i) {
      if (helds_[i].bytes != nullptr) continue;
      datagram.is_kept = true;
      return lend(helds_[i], i, datagram);
    }
  }
  void lend(Held& held, uint32_t index, const ReceivedDatagram& datagram) noexcept {
    held.bytes = datagram.bytes;
    held.byte_count = datagram.byte_count;
    held.from = datagram.from;
    held.waits_for = 1;
    for (uint32_t peer = 0; peer < to_.size(); ++peer) {
      Lend& its = held.lends[peer];
      its.seen = {};
      its.status = SendStatus::kGone;
      const Head head = {index, peer};
      auto endpoint = messenger_->connect({.name = to_[peer].c_str()});
      if (!endpoint.ok()) continue;
      its.status = endpoint.value()->am_send_loan(kLent, std::as_bytes(std::span(&head, 1)),
                                                  {held.bytes, held.byte_count}, &its);
      if (its.status == SendStatus::kPending) held.waits_for += 2;  // loan's end, peer's answer
    }
    if (file_ != nullptr) {
      ++held.waits_for;
      held.write.action = FileAction::kWrite;
      held.write.memory = held.bytes;
      held.write.bytes = held.byte_count;
      held.write.offset = number_of(held) * held.byte_count;
      file_->begin(held.write);
    }
    ended(held);
  }
  void seen(const Message& message) noexcept {
    Seen seen;
    if (message.payload.size() != sizeof seen) return;
    std::memcpy(&seen, message.payload.data(), sizeof seen);
    if (seen.head.held >= kHeldMax || seen.head.peer >= kPeersMax) return;
    Held& held = helds_[seen.head.held];
    held.lends[seen.head.peer].seen = seen;
    ended(held);
  }
  static uint64_t number_of(const Held& held) noexcept {
    uint64_t number = 0;
    std::memcpy(&number, held.bytes, sizeof number);
    return number;
  }
  void ended(Held& held) noexcept {
    if (--held.waits_for > 0) return;
    char text[512];
    int count = std::snprintf(text, sizeof text, "%" PRIu64 " at %" PRIxPTR "; ", number_of(held),
                              reinterpret_cast<uintptr_t>(held.bytes));
    const auto append = [&](const char* form, auto... values) {
      count +=
          std::snprintf(text + count, sizeof text - static_cast<size_t>(count), form, values...);
    };
    for (uint32_t peer = 0; peer < to_.size(); ++peer) {
      const Lend& its = held.lends[peer];
      if (its.status == SendStatus::kPending) {
        append("%s %" PRIx64 " %08x; ", to_[peer].c_str(), its.seen.address, its.seen.sum);
      } else {
        append("%s not lent: %s; ", to_[peer].c_str(), to_text(its.status));
      }
    }
    append("file %" PRId64, held.written);
    socket_->release(std::exchange(held.bytes, nullptr));
    OutgoingDatagram answer;
    answer.bytes = reinterpret_cast<const std::byte*>(text);
    answer.byte_count = static_cast<uint32_t>(count);
    answer.to = held.from;
    (void)socket_->send_batch({&answer, 1});
  }

  std::string network_;
  std::string local_;
  std::vector<std::string> to_;
  std::string file_path_;
  std::vector<std::unique_ptr<Reader>> readers_;  // one of each shard
  Messenger* messenger_ = nullptr;                // of the first shard
  DatagramSocket* socket_ = nullptr;
  File* file_ = nullptr;
  std::array<Held, kHeldMax> helds_;
};

}  // namespace

std::unique_ptr<Service> make_lender() { return std::make_unique<Lender>(); }

int run_reader(const char* socket_path, const char* process) {
  static bool is_over = false;
  JoinedProcessOptions options;
  options.join.socket_path = socket_path;
  options.join.process = process;
  options.on_peer = {[](void*, const PeerEvent& event) noexcept {
                       is_over = is_over || event.kind == PeerEventKind::kPoolGone;
                     },
                     nullptr};
  auto joined = JoinedProcess::join(options);
  if (!joined.ok()) return log_error(joined.error()), 1;
  Messenger& messenger = joined.value()->messenger();
  Reader reader;
  reader.create(messenger);
  std::puts("reading");
  std::fflush(stdout);
  while (!is_over) {
    if (messenger.poll(16) == 0) messenger.wait(10 * kNsPerMs);
  }
  return 0;
}

}  // namespace bedplate::test
