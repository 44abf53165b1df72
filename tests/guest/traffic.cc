#include "tests/guest/traffic.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "platform/clock.h"

namespace bedplate::traffic {
namespace {

constexpr uint64_t kDataStream = 1;
constexpr uint32_t kDataBurst = 4;
constexpr uint64_t kGreetingNs = 100 * kNsPerMs;
constexpr uint64_t kSilenceNs = kNsPerSecond;
constexpr uint64_t kFlowNs = 500 * kNsPerMs;

struct Greeting {
  uint64_t instance;
  uint64_t to_instance;  // the receiver's instance, as far as the sender knows
  uint64_t has_received;
  uint64_t began_at;
  uint64_t received;
  RemoteMemory area;
};

struct DataHeader {
  uint64_t instance;
  uint64_t number;
};

// The bytes of message `number` after its header.
size_t data_bytes(uint64_t number) { return number * 263 % 3500; }

template <typename Type>
std::span<const std::byte> bytes_of(const Type& object) {
  return std::as_bytes(std::span(&object, 1));
}

}  // namespace

template <void (Traffic::*function)(const Message&) noexcept>
void Traffic::listen(AmId id) {
  const auto hear = [](void* self, const Message& message) noexcept {
    auto& traffic = *static_cast<Traffic*>(self);
    if (&message.from == traffic.options_.peer) return (traffic.*function)(message);
    ++traffic.strangers_;
    if (message.loan.is_there()) traffic.options_.messenger->release(message.loan);
  };
  options_.messenger->set_handler(id, {hear, this});
}

Traffic::Traffic(const TrafficOptions& options) : options_(options), borrower_(*options.messenger) {
  mine_ = options_.peer->expose(options_.area).take();
  for (uint32_t i = 0; i < kSlotCount; ++i) {
    slots_.push_back(std::make_unique<PutSlot>(i, &puts_, &gets_));
  }
  heard_ns_ = monotonic_ns();
  listen<&Traffic::take_greeting>(kGreeting);
  listen<&Traffic::take_data>(kData);
  listen<&Traffic::take_loan>(kLent);
  listen<&Traffic::take_unread>(kUnread);
}

void Traffic::step(bool may_begin) noexcept {
  greet();
  if (may_begin) send_data();
  lender_.step(*options_.peer, may_begin);
  borrower_.step(*options_.peer, peer_instance_);
  if (theirs_.bytes == kAreaBytes) {
    for (auto& slot : slots_) slot->step(*options_.peer, theirs_, may_begin);
    words_.step(*options_.peer, theirs_, may_begin);
  }
  look_at_silence(monotonic_ns());
  look_at_flow(monotonic_ns());
}

bool Traffic::is_drained() const noexcept {
  for (const auto& slot : slots_) {
    if (!slot->is_idle()) return false;
  }
  return words_.is_idle() && lender_.is_idle() && borrower_.is_idle() && acknowledged_ == sent_;
}

void Traffic::greet() noexcept {
  const uint64_t now_ns = monotonic_ns();
  if (now_ns < greeted_ns_ + kGreetingNs) return;
  const Greeting greeting = {options_.instance, peer_instance_, has_received_,
                             began_at_,         received_,      mine_};
  if (options_.peer->am_send(kGreeting, bytes_of(greeting)) == SendStatus::kDone) {
    greeted_ns_ = now_ns;
  }
}

void Traffic::send_data() noexcept {
  for (uint32_t i = 0; i < kDataBurst; ++i) {
    std::byte message[sizeof(DataHeader) + 3500];
    const DataHeader header = {options_.instance, sent_};
    std::memcpy(message, &header, sizeof header);
    const auto body = std::span(message).subspan(sizeof header, data_bytes(sent_));
    fill(body, kDataStream, sent_);
    const SendStatus status =
        options_.peer->am_send(kData, std::span(message).first(sizeof header + body.size()));
    gone_ += status == SendStatus::kGone;
    if (status != SendStatus::kDone) return;
    ++sent_;
  }
}

// Records that a message of the peer's `instance` has come.
void Traffic::hear_of(uint64_t instance) noexcept {
  const uint64_t now_ns = monotonic_ns();
  if (is_silent_) {
    std::printf("traffic: %s is heard, after %" PRIu64 " ms\n", options_.peer_name.c_str(),
                (now_ns - heard_ns_) / kNsPerMs);
  }
  is_silent_ = false;
  heard_ns_ = now_ns;
  if (instance == peer_instance_) return;
  if (peer_instance_ != 0) {
    std::printf("traffic: %s was started anew\n", options_.peer_name.c_str());
    borrower_.forget();
  }
  was_known_ = peer_instance_ != 0;
  acknowledged_before_ = acknowledged_;
  peer_instance_ = instance;
  theirs_ = {};
  has_received_ = false;
  for (auto& slot : slots_) slot->forget();
  words_.forget();
}

void Traffic::take_greeting(const Message& message) noexcept {
  Greeting greeting = {};
  if (message.payload.size() != sizeof greeting) return report_fault("a greeting cut short");
  std::memcpy(&greeting, message.payload.data(), sizeof greeting);
  hear_of(greeting.instance);
  theirs_ = greeting.area;
  // A greeting to another instance is meant for our predecessor.
  if (greeting.to_instance != options_.instance || greeting.has_received == 0) return;
  // An earlier instance of the peer acknowledged these messages, and this one has got them again.
  if (greeting.began_at < acknowledged_before_) {
    report_fault("message %" PRIu64 " came again; all before %" PRIu64 " were acknowledged",
                 greeting.began_at, acknowledged_before_);
  }
  if (greeting.received < acknowledged_ || greeting.received > sent_) {
    report_fault("%" PRIu64 " are acknowledged of %" PRIu64 ", after %" PRIu64, greeting.received,
                 sent_, acknowledged_);
  }
  acknowledged_ = greeting.received;
}

void Traffic::take_data(const Message& message) noexcept {
  DataHeader header = {};
  if (message.payload.size() < sizeof header) return report_fault("a message cut short");
  std::memcpy(&header, message.payload.data(), sizeof header);
  hear_of(header.instance);
  if (!has_received_) {
    // A new peer begins at 0. An older peer continues, because for it we may be a successor.
    if (was_known_ && header.number != 0) {
      report_fault("the first message of a new peer is %" PRIu64, header.number);
    }
    has_received_ = true;
    began_at_ = received_ = header.number;
  }
  if (header.number != received_) {
    report_fault("message %" PRIu64 " came; %" PRIu64 " is next", header.number, received_);
  }
  const auto body = message.payload.subspan(sizeof header);
  if (body.size() != data_bytes(header.number) || !is_filled(body, kDataStream, header.number)) {
    report_fault("message %" PRIu64 " is not what was sent", header.number);
  }
  received_ = header.number + 1;
}

void Traffic::take_loan(const Message& message) noexcept { borrower_.take(message); }

void Traffic::take_unread(const Message& message) noexcept {
  UnreadLoan loan = {};
  if (message.payload.size() != sizeof loan) return report_fault("a word cut short");
  std::memcpy(&loan, message.payload.data(), sizeof loan);
  if (loan.lender == options_.instance) lender_.take_unread(loan.number);
}

void Traffic::look_at_silence(uint64_t now_ns) noexcept {
  if (is_silent_ || now_ns < heard_ns_ + kSilenceNs) return;
  is_silent_ = true;
  std::printf("traffic: %s is silent\n", options_.peer_name.c_str());
}

// Prints `traffic: flows` once each kind has ended an operation since the last time.
void Traffic::look_at_flow(uint64_t now_ns) noexcept {
  if (now_ns < flow_told_ns_ + kFlowNs) return;
  const std::array<uint64_t, 7> flow = {acknowledged_,          received_,    lender_.ends().done(),
                                        borrower_.read_count(), puts_.done(), gets_.done(),
                                        atomics_.done()};
  for (size_t i = 0; i < flow.size(); ++i) {
    if (flow[i] == flow_[i]) return;
  }
  flow_ = flow;
  flow_told_ns_ = now_ns;
  std::printf("traffic: flows\n");
}

std::string Traffic::account(const VerbsCounters& counters) const {
  char line[1024];
  std::snprintf(line, sizeof line,
                "{\"faults\": %" PRIu64 ", \"sent\": %" PRIu64 ", \"acknowledged\": %" PRIu64
                ", \"gone\": %" PRIu64 ", \"began_at\": %" PRIu64 ", \"received\": %" PRIu64
                ", \"strangers\": %" PRIu64 ", \"loans\": %s, \"loans_unread\": %" PRIu64
                ", \"loans_read\": %" PRIu64 ", \"puts\": %s, \"gets\": %s, \"atomics\": %s, "
                "\"resent\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"connected\": %" PRIu64
                ", \"broken\": %" PRIu64 ", \"cut_off\": %" PRIu64 ", \"drained\": %s}",
                fault_count(), sent_, acknowledged_, gone_, began_at_, received_, strangers_,
                lender_.ends().text().c_str(), lender_.unread_count(), borrower_.read_count(),
                puts_.text().c_str(), gets_.text().c_str(), atomics_.text().c_str(),
                counters.resent.read(), counters.lost.read(), counters.connected.read(),
                counters.broken.read(), counters.cut_off.read(), is_drained() ? "true" : "false");
  return line;
}

}  // namespace bedplate::traffic
